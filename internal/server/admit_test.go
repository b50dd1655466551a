package server

import (
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/server/shard"
)

// Admissions of all tables and of single ones are read as they are written; what cannot be leaves them as they were.
func TestAdmitting(t *testing.T) {
	for _, text := range []string{"", "count:3", "count:3;wide=share:0.5", "deep=count:2,share:0.25;wide="} {
		var c Config
		if err := (admitting{&c}).UnmarshalText([]byte(text)); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		back, err := admitting{&c}.MarshalText()
		if err != nil || string(back) != text {
			t.Errorf("%s is written as %s, %v", text, back, err)
		}
	}
	c := Config{Admission: shard.Admission{Count: 4}}
	for text, want := range map[string]string{
		"count:1": "2 to 15", "count:3;share:0.5": "want TABLE=RULE", "a=count:2;a=count:3": "each table once", "x=count:99": "table x",
	} {
		if err := (admitting{&c}).UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), want) || c.Admission.Count != 4 || c.TableAdmission != nil {
			t.Errorf("%s: %v, %+v", text, err, c.TableAdmission)
		}
	}
}
