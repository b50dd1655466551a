package setting_test

import (
	"bytes"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/setting"
)

func TestAgreement(t *testing.T) {
	var a setting.Agreement
	for _, c := range []struct {
		who    string
		values setting.Values
		want   []string
	}{
		{"rank 0", setting.Values{"sync": "bsp", "training.lr": "0.1"}, nil},
		{"rank 1", nil, nil},
		{"rank 2", setting.Values{"sync": "bsp", "ps.admission": ""}, nil},
		{"rank 3", setting.Values{"sync": "bsp", "training.seed": "7", "training.lr": "0.2", "ps.admission": "count:3"}, []string{
			`ps.admission is "" on rank 2 and count:3 on rank 3: give all processes of a job the same`,
			"training.lr is 0.1 on rank 0 and 0.2 on rank 3: give all processes of a job the same",
		}},
		{"server 1", setting.Values{"training.seed": "8"}, nil}, // who was refused has told nothing
	} {
		got := a.Join(c.who, c.values)
		if len(c.want) == 0 {
			if got != nil {
				t.Errorf("%s: %v", c.who, got)
			}
			continue
		}
		if text := strings.Join(c.want, "; "); got == nil || got.Error() != text {
			t.Fatalf("%s: got %v, want %q", c.who, got, text)
		}
		err := fmt.Errorf("joining: %w", got)
		if lines := setting.Lines(err, func(p setting.Path) string { return "--" + string(p) }); lines[0] != "joining: --"+strings.Join(c.want, "; --") {
			t.Errorf("%s: a command tells %q", c.who, lines)
		}
	}
}

func TestWhatIsToldIsBounded(t *testing.T) {
	long := strings.Repeat("ä", 3000)
	var l setting.Disagreements
	for range 100 {
		l = append(l, setting.Conflict{Path: "a.b", Process: "rank 0", Text: long, Other: "rank 1", OtherText: "x y\x1b"})
	}
	if l.Check() == nil {
		t.Error("100 long ones are not refused")
	}
	if text := l[0].Fault().Error(); len(text) > 400 || !strings.Contains(text, `"x y\x1b"`) {
		t.Errorf("%d bytes: %s", len(text), text)
	}
	short := l.Short()
	for i := range short {
		short[i].OtherText = "x y"
	}
	if err := short.Check(); err != nil || len(short) != setting.MaxDisagreements {
		t.Errorf("%d are left: %v", len(short), err)
	}
	short[3].Process = "rank\n1"
	if short.Check() == nil {
		t.Error("a line's end is not refused")
	}
	many := setting.Values{}
	for i := range 20 {
		many[setting.Path(fmt.Sprintf("a.%02d", i))] = strings.Repeat("x", 4<<10)
	}
	for name, v := range map[string]setting.Values{
		"no path": {"": "x"}, "a long path": {setting.Path(strings.Repeat("p", 129)): ""}, "a long text": {"a": strings.Repeat("x", 32<<10+1)},
		"a line's end": {"a": "x\ny"}, "an escape": {"a\x1b": ""}, "no text": {"a": "\xff"}, "too many": many,
	} {
		if v.Check() == nil {
			t.Errorf("%s is not refused", name)
		}
	}
}

// What is read is what was written, and in no other way.
func FuzzValues(f *testing.F) {
	for _, v := range []setting.Values{nil, {"a": ""}, {"sync": "bsp", "training.lr": "0.1", "model": "mlp"}} {
		b, _ := v.AppendBinary(nil)
		f.Add(b)
	}
	f.Add([]byte{1, 0, 'b', 0, 0, 1, 0, 'a', 0, 0}) // out of order
	f.Fuzz(func(t *testing.T, b []byte) {
		var v, again setting.Values
		if v.UnmarshalBinary(b) != nil {
			return
		}
		written, err := v.AppendBinary(nil)
		if err != nil || !bytes.Equal(written, b) {
			t.Fatalf("% x is %v, written as % x (%v)", b, v, written, err)
		}
		if err := again.UnmarshalBinary(written); err != nil || !maps.Equal(again, v) || v.Check() != nil {
			t.Fatalf("%v is read again as %v (%v)", v, again, err)
		}
	})
}
