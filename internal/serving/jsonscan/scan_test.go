package jsonscan

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// parse builds a value by the functions of the package.
func parse(t *testing.T, value []byte) (any, error) {
	switch Kind(value) {
	case "object":
		out := map[string]any{}
		err := Object(value, func(name string, value []byte) (err error) {
			out[name], err = parse(t, value)
			return err
		})
		return out, err
	case "array":
		out := []any{}
		err := Array(value, func(value []byte) error {
			x, err := parse(t, value)
			out = append(out, x)
			return err
		})
		return out, err
	case "string":
		return String(value), nil
	case "null":
		return nil, nil
	case "boolean":
		return value[0] == 't', nil
	}
	return json.Number(value), nil
}

// FuzzScan: a text that Check accepts has the value that encoding/json reads, and a repeated name
// is an error.
func FuzzScan(f *testing.F) {
	for _, text := range []string{`{"a":[1,-2.5e3,null],"b\"\u00e9":{"c":"x\\\"y"}}`, " [ ] ", `[[ ],{ },"",true,false]`, `{"a":1,"a":2}`, `3 `, `"\ud800"`, `nul`, strings.Repeat("[", 40) + strings.Repeat("]", 40), "{\"a\"\t:\n1 , \"b\" :[1 ,2 ]}", "\xff", `["\`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if Check(text) != nil {
			return
		}
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		var want any
		if err := d.Decode(&want); err != nil {
			t.Fatalf("%q: encoding/json: %v", text, err)
		}
		got, err := parse(t, Trim(text))
		if err != nil {
			if !strings.Contains(err.Error(), "occurs twice") {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%q: %#v, want %#v", text, got, want)
		}
		_ = Show(text)
	})
}

// TestCheckRejectsTexts: the error of a text names the position or the limit.
func TestCheckRejectsTexts(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "unexpected end of JSON input",
		`{"a":NaN}`:              "byte 6 of the body: no JSON: invalid character 'N'",
		`{"a":1}x`:               "byte 8 of the body",
		"[\"\xff\"]":             "not UTF-8",
		strings.Repeat("[", 1e5): "no JSON",
		strings.Repeat("[", 33) + strings.Repeat("]", 33): "byte 33 of the body: more than 32 nested",
	} {
		if err := Check([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %q", text, err, want)
		}
	}
	if err := Check([]byte(`{"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[":"{{{{\"{"}`)); err != nil {
		t.Error(err)
	}
	if Only([]byte(`[[1]]`)) == nil || Only([]byte(`[1,2]`)) != nil || Only([]byte(`[]`)) != nil {
		t.Error("the only value of an array")
	}
	if got := Show([]byte(strings.Repeat("é", 30))); got != strings.Repeat("é", 20)+"…" {
		t.Error(got)
	}
}
