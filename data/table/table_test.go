package table

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
)

// text is a table in memory.
func text(t testing.TB, content string) Reader {
	t.Helper()
	r, err := openText(content)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func openText(content string) (*CSV, error) {
	return OpenCSV("f.csv", func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(content)), nil })
}

func none(int64) bool        { return false }
func strict(err error) error { return err }

const people = "id,age,city,sex,income\n" +
	"a1,30,Bern,f,1000\n" +
	"a2,40,\"Zug, old\",m,2000\n" +
	"a3,,Bern,?,3000\n" +
	"a4,50,NA,f,6000\n"

// What columns are for is guessed from what they hold, and told values win.
func TestKindsAreGuessed(t *testing.T) {
	for _, c := range []struct {
		choice Options
		want   string
	}{
		{Options{}, "age=number,city=category,id=category,income=label,sex=category"}, // few rows: nothing is an identifier
		{Options{Schema: Schema{"id": Ignore, "income": Target}}, "age=number,city=category,id=ignore,income=target,sex=category"},
		{Options{Target: "sex", Schema: Schema{"id": Ignore, "age": Category}}, "age=category,city=category,id=ignore,income=number,sex=label"},
	} {
		content := people
		if c.choice.Target == "sex" {
			content = strings.Replace(people, "?", "m", 1)
		}
		e, err := InferEncoder(text(t, content), c.choice, none, strict)
		if err != nil {
			t.Fatalf("%+v: %v", c.choice, err)
		}
		if got := e.Schema().String(); got != c.want {
			t.Errorf("%+v:\n got %s\nwant %s", c.choice, got, c.want)
		}
	}
	var b strings.Builder
	b.WriteString("key,x,code,empty,Label\n")
	for i := range 200 {
		code := fmt.Sprint(i)
		if i%3 == 0 {
			code = fmt.Sprint("K", i)
		}
		fmt.Fprintf(&b, "k%d,%d.5,%s,,%v\n", i, i, code, i%3)
	}
	e, err := InferEncoder(text(t, b.String()), Options{}, none, strict)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := e.Schema().String(), "Label=label,code=ignore,empty=ignore,key=ignore,x=number"; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	for _, why := range []string{`key (it has 200 different words in 200 rows)`, `code (it has 133 numbers and 67 words, such as "K0")`, "empty (it has no values)", "one of 3 classes (0, 1, 2)"} {
		if !strings.Contains(e.String(), why) {
			t.Errorf("%q lacks %q", e, why)
		}
	}
}

// The encoder's figures are those of a naive computation, and rows held out take no part in means
// and categories.
func TestEncoding(t *testing.T) {
	held := func(row int64) bool { return row == 3 }
	e, err := InferEncoder(text(t, people), Options{Target: "income", Schema: Schema{"id": Ignore, "income": Target}}, held, strict)
	if err != nil {
		t.Fatal(err)
	}
	var in, out Samples
	err = e.Encode(text(t, people), true, 1<<20, func(row int64) *Samples {
		if held(row) {
			return &out
		}
		return &in
	}, strict)
	if err != nil {
		t.Fatal(err)
	}
	if want := []float32{-1, 1, 0}; !slices.Equal(in.Values, want) { // 30 and 40: mean 35, deviation 5; none
		t.Errorf("ages %v, want %v", in.Values, want)
	}
	if want := []float32{3}; !slices.Equal(out.Values, want) { // 50
		t.Errorf("age held out %v, want %v", out.Values, want)
	}
	// Cities: 0 none, 1 Bern, 2 Zug; sexes: 3 none, 4 f, 5 m.
	if want := []int32{1, 4, 2, 5, 1, 3}; !slices.Equal(in.IDs, want) || e.Rows() != 6 {
		t.Errorf("ids %v, want %v of %d rows", in.IDs, want, e.Rows())
	}
	if want := []int32{0, 4}; !slices.Equal(out.IDs, want) {
		t.Errorf("ids held out %v, want %v", out.IDs, want)
	}
	d := math.Sqrt(2e6 / 3)
	for i, income := range []float64{1000, 2000, 3000} {
		if want := float32((income - 2000) / d); math.Abs(float64(in.Targets[i]-want)) > 1e-6 {
			t.Errorf("target %d is %v, want %v", i, in.Targets[i], want)
		}
	}
	// The same encoder from its text, over columns in another order and without the target.
	kept, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	again := new(Encoder)
	err = json.Unmarshal(kept, again)
	if err != nil {
		t.Fatal(err)
	}
	var new Samples
	err = again.Encode(text(t, "sex;more;city;age\nm;1;Basel;45\n"), false, 1<<20, func(int64) *Samples { return &new }, strict)
	if err != nil || !slices.Equal(new.Values, []float32{2}) || !slices.Equal(new.IDs, []int32{0, 5}) || len(new.Targets) != 0 {
		t.Errorf("%+v, %v", new, err)
	}
	if err := again.Encode(text(t, "sex,age\nm,1\n"), false, 1<<20, func(int64) *Samples { return &new }, strict); err == nil || !strings.Contains(err.Error(), `column "city": no such column`) {
		t.Errorf("a column is missing: %v", err)
	}
}

// Classes that rows held out alone have are classes, and one that the encoder does not know is a
// fault of its line.
func TestLabels(t *testing.T) {
	const rows = "x,y\n1,b\n2,a\n3,c\n"
	e, err := InferEncoder(text(t, rows), Options{}, func(row int64) bool { return row == 2 }, strict)
	if err != nil {
		t.Fatal(err)
	}
	goal, _ := e.Goal()
	if !slices.Equal(goal.Words, []string{"a", "b", "c"}) {
		t.Errorf("classes %q", goal.Words)
	}
	err = e.Encode(text(t, "x,y\n1,a\n2,d\n"), true, 1<<20, func(int64) *Samples { return new(Samples) }, strict)
	var f *Fault
	if !errors.As(err, &f) || f.Line != 3 || f.Column != "y" || !strings.Contains(f.Problem, `"d" is none of the 3 classes`) {
		t.Errorf("an unknown class: %v", err)
	}
}

// Bad rows are asked about, one by one, and left out.
func TestBadRowsAreAskedAbout(t *testing.T) {
	const rows = "x,y,z\n1,2,a\n1,2\nfoo,3,b\n2,Inf,a\n3,4,b\n5,6,\n"
	schema := Schema{"x": Number, "y": Number, "z": Label}
	var faults []string
	lenient := func(err error) error { faults = append(faults, err.Error()); return nil }
	e, err := InferEncoder(text(t, rows), Options{Schema: schema}, none, lenient)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"f.csv: line 3: fields: 2: want 3, as many as the header has names",
		`f.csv: line 4: column "x": "foo" is no finite number`,
		`f.csv: line 5: column "y": "Inf" is no finite number`,
		`f.csv: line 7: column "z": no label`,
	}
	slices.Sort(faults)
	if !slices.Equal(faults, want) {
		t.Errorf("faults %q", faults)
	}
	var s Samples
	if err := e.Encode(text(t, rows), true, 1<<20, func(int64) *Samples { return &s }, func(error) error { return nil }); err != nil || s.N != 2 {
		t.Errorf("%d rows, %v", s.N, err)
	}
	if c := e.Columns[0]; c.Mean != 2 || c.Deviation != 1 {
		t.Errorf("x has mean %v and deviation %v, of 1 and 3", c.Mean, c.Deviation)
	}
	if _, err := InferEncoder(text(t, rows), Options{Schema: schema}, none, strict); err == nil || err.Error() != want[0] {
		t.Errorf("without leave: %v", err)
	}
}

// endlessRows gives a header, and then one byte for ever.
type endlessRows struct {
	header string
	byte   byte
	given  int64
}

func (e *endlessRows) Read(p []byte) (int, error) {
	n := copy(p, e.header)
	e.header = e.header[n:]
	for i := n; i < len(p); i++ {
		p[i] = e.byte
	}
	e.given += int64(len(p))
	return len(p), nil
}

// Hostile files are named faults, with the line, and what never ends is read no further than a
// limit.
func TestHostileTables(t *testing.T) {
	for name, c := range map[string]struct{ content, says string }{
		"empty":             {"", "f.csv: the file is empty"},
		"one column":        {"abc\n1\n", "line 1: one column alone"},
		"no header":         {"1,2\n3,4\n", "line 1: 1, …: these are numbers: want a header"},
		"binary":            {"PK\x00\x01,\n", "line 1: a zero byte"},
		"twice":             {"a,b,a\n1,2,3\n", `columns 1 and 3 are both called "a"`},
		"no name":           {"a,,b\n1,2,3\n", "column 2 of 3 has no name"},
		"no rows":           {"a,b\n", "no rows to train on"},
		"a quote":           {"a,b\n1,2\n1,x\"y\n", "line 3: byte 4 of the line: bare \" in non-quoted"},
		"an open quote":     {"a,b\n1,2\n1,\"y\n", "line 3"},
		"one class":         {"a,y\n1,x\n2,x\n", `column "y": all labels are ["x"]`},
		"nothing left":      {"k,y\n,x\n,z\n", "no column remains as input of a model"},
		"columns":           {strings.Repeat("c,", maxColumns) + "c\n", "columns: want 16384 at most"},
		"a row too long":    {"a,b\n1," + strings.Repeat("x", 2*maxRecord) + "\n", "a row of more than 1048576 bytes"},
		"a header too long": {"a," + strings.Repeat("x", 2*maxRecord), "a row of more than 1048576 bytes"},
		"huge numbers":      {"a,y\n1e308,1\n-1e308,0\n1.7e308,1\n", "is too large: the mean"},
	} {
		r, err := openText(c.content)
		if err == nil {
			_, err = InferEncoder(r, Options{}, none, strict)
		}
		if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "f.csv") {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
	for _, b := range []byte{'x', '\n', '"', ','} {
		for _, header := range []string{"", "a,b\n1,\""} {
			in := &endlessRows{header: header, byte: b}
			r, err := OpenCSV("f.csv", func() (io.ReadCloser, error) { return io.NopCloser(in), nil })
			if err != nil {
				continue
			}
			in.header, in.given = header, 0
			if header != "" && b != '"' && b != ',' {
				if _, err = InferEncoder(r, Options{}, none, strict); err == nil || !strings.Contains(err.Error(), "a row of more than") {
					t.Errorf("%q for ever: %v", b, err)
				}
			}
			if in.given > 4*maxRecord {
				t.Errorf("%q for ever: %d bytes were read", b, in.given)
			}
		}
	}
}

// A category may not have more values than an embedding table is to have rows for.
func TestTooManyCategories(t *testing.T) {
	s := newSurvey("c", Category, false)
	s.limit = 10
	at := func(problem string, args ...any) *Fault { return &Fault{Problem: fmt.Sprintf(problem, args...)} }
	for i := range 11 {
		s.text(fmt.Sprint("w", i), true, at)
		s.learn(fmt.Sprint("w", i), count{1, 1}, at)
	}
	s.Rows = 11
	if _, err := s.column("f", 0); err == nil || !strings.Contains(err.Error(), "more than 10 different values: this is no category") {
		t.Error(err)
	}
	s.Kind = guess
	if kind, why, _ := s.guess(); kind != Ignore || !strings.Contains(why, "different words") {
		t.Errorf("guessed %s, %s", kind, why)
	}
}

func TestSchemaText(t *testing.T) {
	s, err := ParseSchema(" age=number, a=b=category,y=label")
	if err != nil || s["a=b"] != Category || s.String() != "a=b=category,age=number,y=label" {
		t.Errorf("%v, %v", s, err)
	}
	for text, says := range map[string]string{"age": "want COLUMN=KIND", "age=int": `is to be "int"`, "a=number,a=label": "each column once", "=number": "by its name"} {
		if _, err := ParseSchema(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, choice := range []Options{{Target: "nix"}, {Schema: Schema{"nix": Number}}, {Target: "age", Schema: Schema{"income": Target}}, {Target: "age", Schema: Schema{"age": Number}}} {
		if _, err := InferEncoder(text(t, people), choice, none, strict); err == nil || !strings.Contains(err.Error(), "f.csv") {
			t.Errorf("%+v: %v", choice, err)
		}
	}
	for _, kept := range []string{"", "{", `{"columns":[{"name":"a","kind":"number"}]}`, `{"columns":[]}`, `{"columns":[{"name":"a","kind":"nix"}]}`,
		`{"columns":[{"name":"a","kind":"number","deviation":1},{"name":"b","kind":"label","words":["x"]},{"name":"c","kind":"label","words":["y"]}]}`} {
		if err := json.Unmarshal([]byte(kept), new(Encoder)); err == nil {
			t.Errorf("the encoder %s was taken", kept)
		}
	}
}

// Whatever an encoder's text holds, it is refused, or encodes a table without a panic, its own
// columns in its own numbers.
func FuzzEncoder(f *testing.F) {
	f.Add(`{"columns":[{"name":"sex","kind":"category","words":["m","w"]},{"name":"age","kind":"number","mean":3,"deviation":1}]}`)
	f.Add(`{"columns":[{"name":"age","kind":"target","deviation":1},{"name":"city","kind":"category","words":["Basel","Basel"]}]}`)
	f.Add(`{"columns":[{"name":"city","kind":"label","words":[]},{"name":"sex","kind":"ignore"}]}`)
	f.Fuzz(func(t *testing.T, kept string) {
		e := new(Encoder)
		if json.Unmarshal([]byte(kept), e) != nil {
			return
		}
		lenient := func(error) error { return nil }
		_ = e.Each(text(t, people), []string{"sex"}, 2, func(int64) bool { return true }, lenient, func(a *Unlabelled) error {
			if len(a.Values) != a.N*e.Numbers() || len(a.IDs) != a.N*e.Categories() || len(a.Rows) != a.N || len(a.PassThrough) != a.N {
				t.Errorf("%d rows: %+v", a.N, a)
			}
			for _, id := range a.IDs {
				if id < 0 || int(id) >= e.Rows() {
					t.Errorf("category %d of %d", id, e.Rows())
				}
			}
			return nil
		})
	})
}

// Rows that are asked about are those that Encode gives, batch by batch, whoever's they are; a bad
// one leaves its batch shorter.
func TestEach(t *testing.T) {
	e, err := InferEncoder(text(t, people), Options{Target: "income", Schema: Schema{"id": Ignore}}, none, strict)
	if err != nil {
		t.Fatal(err)
	}
	rows := "age,more,city,sex\n"
	for i := range 11 {
		rows += fmt.Sprintf("%d,r%d,Basel,m\n", 20+i, i)
	}
	rows = strings.Replace(rows, "24,r4", "old,r4", 1)
	bad := 0
	skip := func(error) error { bad++; return nil }
	var all Samples
	if err := e.Encode(text(t, rows), false, 1<<20, func(int64) *Samples { return &all }, skip); err != nil {
		t.Fatal(err)
	}
	got, kept, batches := make([]float32, 0, 10), "", ""
	for rank := range int64(2) {
		err := e.Each(text(t, rows), []string{"more"}, 4, func(k int64) bool { return k%2 == rank }, skip, func(a *Unlabelled) error {
			got = append(got, a.Values...)
			batches += fmt.Sprintf("%v ", a.Rows)
			for _, k := range a.PassThrough {
				kept += k[0]
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	want := slices.Concat(all.Values[:4], all.Values[7:], all.Values[4:7])
	if bad != 2 || !slices.Equal(got, want) || batches != "[0 1 2 3] [8 9 10] [5 6 7] " || kept != "r0r1r2r3r8r9r10r5r6r7" {
		t.Errorf("%d bad, %v, want %v; %s; %s", bad, got, want, batches, kept)
	}
}

// Whatever a file holds, it is read or refused with the file's name, and what one pass takes
// another one encodes.
func FuzzCSV(f *testing.F) {
	f.Add(people, "")
	f.Add("a\tb\r\n1\tx\r\n2\ty\r\n", "a=number")
	f.Add("\ufeffa;b\n\"1\";\"x\n\"\n", "b=ignore")
	f.Add("a,b\n1,\"", "a=label")
	f.Fuzz(func(t *testing.T, content, told string) {
		schema, err := ParseSchema(told)
		if err != nil {
			return
		}
		r, err := openText(content)
		if err != nil {
			var fault *Fault
			if !errors.As(err, &fault) || fault.File != "f.csv" {
				t.Fatalf("%v", err)
			}
			return
		}
		lenient := func(error) error { return nil }
		held := func(row int64) bool { return row%5 == 4 }
		e, err := InferEncoder(r, Options{Schema: schema}, held, lenient)
		if err != nil {
			if !strings.Contains(err.Error(), "f.csv") {
				t.Fatalf("%v", err)
			}
			return
		}
		var s Samples
		if err := e.Encode(r, true, 1<<24, func(int64) *Samples { return &s }, lenient); err != nil {
			t.Fatal(err)
		}
		if len(s.Values) != s.N*e.Numbers() || len(s.IDs) != s.N*e.Categories() || len(s.Labels)+len(s.Targets) != s.N {
			t.Fatalf("%d rows of %d numbers and %d categories: %d, %d, %d, %d", s.N, e.Numbers(), e.Categories(), len(s.Values), len(s.IDs), len(s.Labels), len(s.Targets))
		}
		for _, id := range s.IDs {
			if id < 0 || int(id) >= e.Rows() {
				t.Fatalf("id %d of %d", id, e.Rows())
			}
		}
		for _, x := range append(s.Values, s.Targets...) {
			if math.IsNaN(float64(x)) {
				t.Fatal("not a number")
			}
		}
	})
}
