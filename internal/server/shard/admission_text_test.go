package shard

import (
	"strings"
	"testing"
)

func TestAdmissionIsRead(t *testing.T) {
	a := Admission{FilterBytes: 8192}
	for text, want := range map[string]Admission{
		"":                   {FilterBytes: 8192},
		"count:3":            {Count: 3, FilterBytes: 8192},
		"share:0.1":          {Share: 0.1, FilterBytes: 8192},
		"share:0.25,count:3": {Count: 3, Share: 0.25, FilterBytes: 8192},
	} {
		if err := a.UnmarshalText([]byte(text)); err != nil || a != want {
			t.Errorf("%q is %+v (%v), want %+v", text, a, err, want)
		}
	}
	before := a
	for text, want := range map[string]string{
		"count:1": "from 2 to 15", "count:16": "from 2 to 15", "count:x": "from 2 to 15", "count": "from 2 to 15",
		"share:1.5": "between 0 and 1", "share:nan": "between 0 and 1", "share:0": "between 0 and 1",
		"all": "want count:N or share:X", ",": "want count:N", "count:3,": "want count:N", "count:3,count:4": "each once",
	} {
		if err := a.UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if a != before {
		t.Errorf("what is refused leaves %+v, want %+v", a, before)
	}
}

// What is written is read as the same keys' admission, and written again as the same text.
func FuzzAdmission(f *testing.F) {
	for _, s := range []string{"", "count:3", "share:0.1", "count:15,share:1e-300", "share:0.25,count:2", "count:+4"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var a, again Admission
		if a.UnmarshalText([]byte(text)) != nil {
			return
		}
		written, err := a.MarshalText()
		if err == nil {
			err = again.UnmarshalText(written)
		}
		if err != nil || again != a {
			t.Fatalf("%q is %+v, written as %q and read as %+v (%v)", text, a, written, again, err)
		}
	})
}
