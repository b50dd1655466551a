package sample

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/data/table"
	"github.com/ringo-ml/ringo/internal/data/datatest"
	"github.com/ringo-ml/ringo/internal/data/layout"
)

// people is a table with missing values, and texts that look like numbers.
const people = "id,age,zip,job,day,paid,bought\n1,30,0123,nurse,2024-01-05,\"1.000,5\",yes\n2,,0456,\"a \"\"b\"\", c\",2023-07-31,3,no\n3,-1.5e1,0123,,,\"-0,25\",yes\n4,41.25,,nurse,2024-02-29,2,no\n"

// plain is a table of numbers and categories.
const plain = "id,age,zip,job,bought\n1,30,0123,nurse,yes\n2,,0456,baker,no\n3,-1.5e1,0123,,yes\n4,41.25,,nurse,no\n"

// encoder returns the description of a table.
func encoder(t testing.TB, text string) data.Description {
	t.Helper()
	path := filepath.Join(t.TempDir(), "t.csv")
	datatest.Write(t, filepath.Dir(path), map[string][]byte{"t.csv": []byte(text)})
	r, err := data.OpenTable(path)
	if err != nil {
		t.Fatal(err)
	}
	schema := table.Schema{"id": table.Ignore, "zip": table.Category}
	if text == people {
		schema["paid"], schema["day"] = "number:comma", table.Date
	}
	e, err := table.InferEncoder(r, table.Options{Schema: schema}, func(int64) bool { return false }, func(err error) error { return err })
	if err != nil {
		t.Fatal(err)
	}
	return data.Description{Name: "table", Encoder: e, Shape: data.Shape{Values: []int{e.Numbers()}, IDs: e.Categories(), Labels: 1}}
}

// inFile returns the samples that prediction reads from a file.
func inFile(t *testing.T, d data.Description, path string) (all data.Batch) {
	t.Helper()
	in, err := data.OpenInput(d, data.InputConfig{Path: path, Batch: 1 << 10, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	rows, ok, err := in.Next()
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	all.CopyFrom(&rows.Batch)
	return all
}

// check compares the samples of requests with a file's, as one request and as parts of several.
func check(t *testing.T, d data.Description, path string, rows []any) *Codec {
	t.Helper()
	c, err := New(d)
	if err != nil {
		t.Fatal(err)
	}
	want := inFile(t, d, path)
	of := func(v any) *Rows {
		body, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		r, err := c.JSON(body, 1<<10)
		if err != nil {
			t.Fatalf("%.200s: %v", body, err)
		}
		return r
	}
	whole, single, middle := of(rows), of(rows[0]), of(rows[1:])
	for name, parts := range map[string][]Part{
		"one request": {{whole, 0, len(rows)}},
		"parts":       {{single, 0, 1}, {middle, 0, 1}, {whole, 2, len(rows)}},
	} {
		var got data.Batch
		Gather(&got, c.Shape(), parts)
		same := got.N == want.N && slices.Equal(bits(got.Values), bits(want.Values)) && slices.Equal(got.IDs, want.IDs) && slices.Equal(got.Keys, want.Keys)
		if !same || !slices.Equal(got.Bags.Keys, want.Bags.Keys) || !(len(got.Bags.Offsets) <= 1 && len(want.Bags.Offsets) <= 1 || slices.Equal(got.Bags.Offsets, want.Bags.Offsets)) {
			t.Errorf("%s, %s: %d rows %v %v %v, want %d %v %v %v", path, name, got.N, got.Values, got.IDs, got.Bags, want.N, want.Values, want.IDs, want.Bags)
		}
	}
	return c
}

func bits(x []float32) (out []uint32) {
	for _, v := range x {
		out = append(out, math.Float32bits(v))
	}
	return out
}

// TestSamplesOfATableEqualThoseOfAFile: rows of a request have the bits of the same rows in a file,
// and unknown words are listed with row and column.
func TestSamplesOfATableEqualThoseOfAFile(t *testing.T) {
	d := encoder(t, people)
	path := filepath.Join(t.TempDir(), "new.csv")
	datatest.Write(t, filepath.Dir(path), map[string][]byte{"new.csv": []byte("id,age,zip,job,day,paid,bought\n1,30,0123,nurse,2024-01-05,\"1.000,5\",yes\n2,,0456,\"a \"\"b\"\", c\",2023-07-31,3,no\n3,-1.5e1,0123,,,\"-0,25\",yes\n4,41.25,77,pilot,2025-12-24,2,no\n")})
	row := func(age, zip, job, day, paid any) any {
		return map[string]any{"id": "x", "age": age, "zip": zip, "job": job, "day": day, "paid": paid}
	}
	c := check(t, d, path, []any{row(30, "0123", "nurse", "2024-01-05", 1000.5), row(nil, "0456", `a "b", c`, "2023-07-31", 3), row(json.Number("-1.5e1"), "0123", nil, nil, -0.25), row(41.25, 77, "pilot", "2025-12-24", 2)})
	r, err := c.JSON([]byte(`[{"age":1,"zip":"0123","job":"","day":null,"paid":1},{"age":1,"zip":true,"job":"pilot","day":"","paid":null,"bought":null}]`), 2)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{`row 1: column "zip": "true"`, `row 1: column "job": "pilot"`}; !slices.Equal(r.Unknown, want) || r.UnknownWords != 2 {
		t.Errorf("unknown words %q", r.Unknown)
	}
}

// TestSamplesOfClicksEqualThoseOfAFile: rows become ids, keys or bags as the lines of a log do.
func TestSamplesOfClicksEqualThoseOfAFile(t *testing.T) {
	dir := t.TempDir()
	text := string(datatest.ClickText(9))
	for i, line := range datatest.ClickLines(0, 30) {
		if i%3 == 0 {
			text += string(line)
		}
	}
	datatest.Write(t, dir, map[string][]byte{"c.tsv": []byte(text)})
	var rows []any
	for line := range strings.Lines(text) {
		row := map[string]any{}
		for i, field := range strings.Split(strings.TrimSuffix(line, "\n"), "\t")[1:] {
			name, value := fmt.Sprintf("I%d", i+1), any(json.Number(field))
			if i >= 13 {
				name, value = fmt.Sprintf("C%d", i-12), field
			}
			if row[name] = value; field == "" {
				row[name] = nil
			}
		}
		rows = append(rows, row)
	}
	path := filepath.Join(dir, "c.tsv")
	var slots []data.Slot
	for i := range 26 {
		slots = append(slots, data.Slot{Name: fmt.Sprintf("C%d", i+1)})
	}
	check(t, data.Description{Name: "criteo", Rows: 1000, Shape: data.Shape{Values: []int{13}, IDs: 26, Labels: 1}}, path, rows)
	check(t, data.Description{Name: "criteo", Shape: data.Shape{Values: []int{13}, Keys: 26, Slots: slots, Labels: 1}}, path, rows)
	l, err := layout.Open("criteo")
	if err != nil {
		t.Fatal(err)
	}
	check(t, data.Description{Name: "clicks", Layout: l, Shape: data.Shape{Values: []int{13}, Slots: slots, Labels: 1}}, path, rows)
}

const bags = `
separator: comma
header: true
columns:
  - {name: y, kind: label}
  - {name: item, kind: category, values: key}
  - {name: x, kind: number, transform: log}
  - {name: city, kind: category}
  - {name: tags, kind: bag}
  - {name: seen, kind: sequence, separator: ";", table: item, values: key}
`

// bagged returns the description of a layout.
func bagged(t testing.TB, text string) data.Description {
	t.Helper()
	l, err := layout.Read("l.yaml", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	s := data.Shape{Values: []int{1}, Labels: 1}
	for _, c := range l.Of(layout.Column.Slotted) {
		s.Slots = append(s.Slots, data.Slot{Name: c.Name, Sequence: c.Kind == layout.Sequence})
	}
	return data.Description{Name: "clicks", Layout: l, Shape: s}
}

// TestSamplesOfBagsEqualThoseOfAFile: bags, sequences and quoted texts have the keys of a file.
func TestSamplesOfBagsEqualThoseOfAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "b.csv")
	text := "city,item,tags,x,seen,more\nOslo,7,\"a|b, c\",0.5,1;2;18446744073709551615,-\n,8,,,,-\n\"say \"\"x\"\"\",9,z,12,3,-\n"
	datatest.Write(t, filepath.Dir(path), map[string][]byte{"b.csv": []byte(text)})
	d := bagged(t, bags)
	rows := []any{
		map[string]any{"city": "Oslo", "item": 7, "tags": []any{"a", "b, c"}, "x": 0.5, "seen": []any{1, 2, json.Number("18446744073709551615")}},
		map[string]any{"city": nil, "item": "8", "tags": nil, "x": nil, "seen": []any{}},
		map[string]any{"city": `say "x"`, "item": 9, "tags": []any{"z"}, "x": 12, "seen": []any{"3"}},
	}
	c := check(t, d, path, rows)
	whole, err := json.Marshal(rows)
	if err != nil {
		t.Fatal(err)
	}
	want, err := c.JSON(whole, 3)
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.Tensors([]Tensor{
		{"x", []int{3}, []byte(`[0.5,null,12]`)}, {"tags", []int{3, 1}, []byte(`[["a|b, c"],[""],["z"]]`)}, {"seen", []int{3}, []byte(`["1;2;18446744073709551615",null,3]`)},
		{"item", []int{3}, []byte(`[7,"8",9]`)}, {"city", []int{3}, []byte(`["Oslo","","say \"x\""]`)},
	}, 3)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("tensors: %v %v, want %v", got, err, want)
	}
}

// TestSamplesOfPixelsEqualThoseOfImages: bytes in an array, flat or nested, have the values of the
// same image in a file.
func TestSamplesOfPixelsEqualThoseOfImages(t *testing.T) {
	for _, d := range []data.Description{
		{Name: "mnist", Shape: data.Shape{Values: []int{28, 28, 1}, Labels: 1}}, {Name: "cifar10", Shape: data.Shape{Values: []int{32, 32, 3}, Labels: 1}},
	} {
		dir, size, channels := t.TempDir(), d.Shape.Values[0], d.Shape.Values[2]
		var rows []any
		for i := range 3 {
			im := datatest.Colourful(size, size, uint64(i))
			var flat []int
			var nested [][]any
			for y := range size {
				var line []any
				for x := range size {
					p := im.NRGBAAt(x, y)
					if channels == 1 {
						p.G, p.B = p.R, p.R
						im.SetNRGBA(x, y, p)
						flat, line = append(flat, int(p.R)), append(line, int(p.R))
						continue
					}
					flat, line = append(flat, int(p.R), int(p.G), int(p.B)), append(line, []int{int(p.R), int(p.G), int(p.B)})
				}
				nested = append(nested, line)
			}
			datatest.Write(t, dir, map[string][]byte{fmt.Sprintf("%d.png", i): datatest.EncodePNG(im)})
			rows = append(rows, map[string]any{"pixels": []any{flat, nested}[i%2]})
		}
		check(t, d, dir, rows)
	}
}

// TestJSONRejectsRows: a row that misses, repeats or mistypes a column is an error with its
// position.
func TestJSONRejectsRows(t *testing.T) {
	d := encoder(t, plain)
	of := func(d data.Description) *Codec {
		c, err := New(d)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c, b := of(d), of(bagged(t, bags))
	criteo := of(data.Description{Name: "criteo", Rows: 1000, Shape: data.Shape{Values: []int{13}, IDs: 26, Labels: 1}})
	image := of(data.Description{Name: "mnist", Shape: data.Shape{Values: []int{2, 2, 1}, Labels: 1}})
	values := of(data.Description{Name: "arrays", Shape: data.Shape{Values: []int{2}, Labels: 1}})
	all := map[string]any{}
	for _, f := range criteo.Fields() {
		all[f.Name] = nil
	}
	with := func(name string, value any) string {
		was := all[name]
		all[name] = value
		text, err := json.Marshal([]any{map[string]any{}, all}[1:])
		if all[name] = was; err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	good := `{"age":1,"zip":"0123","job":"nurse"}`
	for _, test := range []struct {
		c          *Codec
		body, want string
	}{
		{c, `{"age":1,"zip":"0123"}`, `row 0: column "job": missing: want a value, or null`},
		{c, `[` + good + `,{"age":1,"zip":"0123","jobs":"x"}]`, `row 1: column "jobs": no column of the model: want age, zip, job`},
		{c, `{"age":"30","zip":"0123","job":"nurse"}`, `row 0: column "age": string "30": want a number`},
		{c, `{"age":1e999,"zip":"0123","job":"nurse"}`, `column "age": 1e999: out of the range`},
		{c, `{"age":1e300,"zip":"0123","job":"nurse"}`, `row 0: column "age": 1e+300 is too far from the mean`},
		{c, `{"age":NaN,"zip":"0123","job":"nurse"}`, `byte 8 of the body: no JSON`},
		{c, `{"age":1,"zip":["0123"],"job":"nurse"}`, `column "zip": array ["0123"]: want a text`},
		{c, `{"age":1,"age":2,"zip":"0123","job":"nurse"}`, `row 0: "age" occurs twice`},
		{c, `[` + good + `,3]`, `row 1: number 3: want an object`},
		{c, `[]`, `no rows`},
		{c, `"x"`, `the body is of type string`},
		{c, `[` + good + `,` + good + `,` + good + `,` + good + `]`, `more than 3 rows`},
		{b, `{"city":"a","item":"x","tags":[],"x":1,"seen":[]}`, `row 0: column 1, item: "x": want a key`},
		{b, `{"city":"a","item":1,"tags":["a|b"],"x":1,"seen":[]}`, `row 0: column "tags": "a|b": "|" is no part of a value`},
		{b, `{"city":"a\nb","item":1,"tags":[],"x":1,"seen":[]}`, `row 0: column "city"`},
		{b, `{"city":"a","item":1,"tags":["a",null],"x":1,"seen":[]}`, `row 0: column "tags": an empty value`},
		{b, `{"city":"a","item":1,"tags":"a","x":1,"seen":[]}`, `row 0: column "tags": string "a": want an array`},
		{criteo, with("C1", "xyz"), `row 0: column "C1": field 15 is "xyz", want`},
		{criteo, with("I2", 1.5), `row 0: column "I2": field 3 is "1.5", want`},
		{criteo, with("C3", "a\tb"), `row 0: column "C3": "a\tb"`},
		{image, `{"pixels":[1,2,3]}`, `3 elements: want 4`},
		{image, `{"pixels":[1,2,3,4,5]}`, `more than 4 elements`},
		{image, `{"pixels":[1,2,3,256]}`, `row 0: column "pixels": 256: want integers from 0 to 255`},
		{image, `{"pixels":[1,2,3,0.5]}`, `0.5: want integers`},
		{image, `{"pixels":[[1,2],[3]]}`, `1 elements: want 2`},
		{image, `{"pixels":[[1,2],3]}`, `number 3 in an array of shape`},
		{image, `{"pixels":[null,1,1,1]}`, `null: want a number`},
		{image, `{"pixels":3}`, `number 3: want an array`},
		{values, `{"values":[1,1e39]}`, `1e+39: out of the range of float32`},
	} {
		if _, err := test.c.JSON([]byte(test.body), 3); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%.80s: %v, want %q", test.body, err, test.want)
		}
	}
	if _, err := New(data.Description{Name: "text"}); err == nil {
		t.Error("a language model has rows")
	}
}

// TestTensorsRejectsInputs: an input with another name, shape or length is an error with its name.
func TestTensorsRejectsInputs(t *testing.T) {
	c, err := New(encoder(t, plain))
	if err != nil {
		t.Fatal(err)
	}
	tensor := func(name string, shape []int, text string) Tensor { return Tensor{name, shape, []byte(text)} }
	age, zip, job := tensor("age", []int{2}, `[1,2]`), tensor("zip", []int{2, 1}, `[["0123"],["x"]]`), tensor("job", []int{2}, `["nurse",null]`)
	if r, err := c.Tensors([]Tensor{age, zip, job}, 2); err != nil || r.N != 2 || r.UnknownWords != 1 {
		t.Fatal(r, err)
	}
	for want, in := range map[string][]Tensor{
		`input "job" is missing`:                   {age, zip},
		`input "age" occurs twice`:                 {age, age},
		`input "x": no input`:                      {tensor("x", []int{2}, "[]")},
		`input "age": shape [2 2]: want [n]`:       {tensor("age", []int{2, 2}, `[1,2,3,4]`)},
		`input "age": shape [0]: want at least 1`:  {tensor("age", []int{0}, `[]`)},
		`input "zip": 1 rows, and input "age" has`: {age, tensor("zip", []int{1}, `["x"]`)},
		`input "age": 1 values, and the shape`:     {tensor("age", []int{2}, `[1]`)},
		`row 2: column "age": more values`:         {tensor("age", []int{2}, `[1,2,3]`)},
		`row 1: column "age": string "2"`:          {tensor("age", []int{2}, `[1,"2"]`)},
		`row 0: column "zip": want one value`:      {age, tensor("zip", []int{2, 1}, `[["a","b"]]`)},
		`more than 2 rows`:                         {tensor("age", []int{3}, `[1,2,3]`)},
	} {
		if _, err := c.Tensors(in, 2); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	image, err := New(data.Description{Name: "mnist", Shape: data.Shape{Values: []int{2, 2, 1}, Labels: 1}})
	if err != nil {
		t.Fatal(err)
	}
	for text, row := range map[string]int{`[1,2,3,4,5,6,700,8]`: 1, `[[[1,2],[3,4]],[[5,6],[7,8.5]]]`: 1, `[-1,2,3,4,5,6,7,8]`: 0} {
		_, err := image.Tensors([]Tensor{tensor("pixels", []int{2, 2, 2, 1}, text)}, 2)
		if at := (*RowError)(nil); !errors.As(err, &at) || at.Row != row {
			t.Errorf("%s: %v, want row %d", text, err, row)
		}
	}
}

// FuzzJSON: any body is an error, or rows with all values of their shape.
func FuzzJSON(f *testing.F) {
	d := encoder(f, plain)
	c, err := New(d)
	if err != nil {
		f.Fatal(err)
	}
	click := bagged(f, bags)
	b, err := New(click)
	if err != nil {
		f.Fatal(err)
	}
	image, err := New(data.Description{Name: "mnist", Shape: data.Shape{Values: []int{2, 2, 1}, Labels: 1}})
	if err != nil {
		f.Fatal(err)
	}
	for _, text := range []string{`{"age":1,"zip":"0123","job":"nurse"}`, `[{"city":"a","item":1,"tags":["x"],"x":1,"seen":[1,2]}]`, `{"pixels":[[1,2],[3,4]]}`, `{"pixels":[1,2,3,4]}`, `[{}]`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, c := range []*Codec{c, b, image} {
			r, err := c.JSON(body, 3)
			if err != nil {
				continue
			}
			s := c.Shape()
			if r.N < 1 || r.N > 3 || len(r.Values) != r.N*s.Size() || len(r.IDs) != r.N*s.IDs || len(s.Slots) > 0 && len(r.Bags.Offsets) != r.N*len(s.Slots)+1 {
				t.Fatalf("%q: %d rows, %d values, %d ids, %d offsets", body, r.N, len(r.Values), len(r.IDs), len(r.Bags.Offsets))
			}
			var out data.Batch
			Gather(&out, s, []Part{{r, 0, r.N}, {r, r.N - 1, r.N}})
		}
	})
}
