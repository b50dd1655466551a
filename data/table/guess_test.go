package table

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"testing/iotest"
)

// column writes a table of 300 rows: a number x, the column c of which value writes each row, and
// the number y.
func column(name string, value func(i int) string) string {
	var b strings.Builder
	b.WriteString("x," + name + ",y\n")
	for i := range 300 {
		fmt.Fprintf(&b, "%d.5,%s,%d.25\n", i%41, value(i), i)
	}
	return b.String()
}

// goalOf300 writes a table of 300 rows: a number x, and the column y of which value writes each
// row.
func goalOf300(value func(i int) string) string {
	var b strings.Builder
	b.WriteString("x,y\n")
	for i := range 300 {
		fmt.Fprintf(&b, "%d.5,%s\n", i%41, value(i))
	}
	return b.String()
}

// but is one value in row 120, which is line 122, and another in each other row.
func but(one string, other func(i int) string) func(i int) string {
	return func(i int) string {
		if i == 120 {
			return one
		}
		return other(i)
	}
}

func fractions(i int) string { return fmt.Sprintf("%d.%d", i, i%10) }

// A column that one cell would turn into another kind is an error with line, value and the kinds to
// choose from.
func TestDoubtsAreErrors(t *testing.T) {
	for name, c := range map[string]struct{ content, reports string }{
		"a word in a target":       {goalOf300(but("sold", fractions)), `line 122: column "y": "sold" is no finite number, and 299 of 300 values are: correct it, or name the column's kind with data.schema: y=target or y=label`},
		"infinity in a target":     {goalOf300(but("-inf", fractions)), `line 122: column "y": "-inf"`},
		"a unit in a target":       {goalOf300(but("312 EUR", fractions)), `line 122: column "y": "312 EUR" is a number with a unit`},
		"units in a target":        {goalOf300(func(i int) string { return fractions(i) + " EUR" }), `line 2: column "y": "0.0 EUR" is a number with a unit`},
		"words of its own":         {goalOf300(func(i int) string { return fmt.Sprint("w", i) }), `300 different words in 300 rows are no classes`},
		"a fraction among classes": {goalOf300(but("0.5", func(i int) string { return fmt.Sprint(i % 2) })), `line 122: column "y": 0.5 is no whole number, and the other 299 values are 2 different ones`},
		"one class in two ways":    {goalOf300(but("1.0", func(i int) string { return fmt.Sprint(i % 2) })), `"1" and "1.0" are one number and two classes`},
		"one target":               {goalOf300(func(int) string { return "4.25" }), `all numbers are 4.25: a target needs different values`},
		"missing among targets":    {goalOf300(but("NA", fractions)), `line 122: column "y": no number to find: "NA" is a missing value among numbers`},
		"missing among numbers":    {goalOf300(but("NA", func(i int) string { return fmt.Sprint(i % 3) })), `line 122: column "y": no label: "NA" is a missing value among numbers`},
		"an empty class":           {goalOf300(but("", func(i int) string { return []string{"a", "b"}[i%2] })), `line 122: column "y": no label`},
		"no target":                {goalOf300(func(int) string { return "" }), `line 2: column "y": no label`},
		"infinity in a number":     {column("c", but("inf", fractions)), `line 122: column "c": "inf" is no finite number, and 299 of 300 values are: correct it, or name the column's kind with data.schema: c=number or c=category or c=ignore`},
		"words in a number":        {column("c", func(i int) string { return []string{fractions(i), "unknown", "unknown"}[i%3] }), `column "c": "unknown" is no finite number, and 100 of 300 values are`},
		"decimal commas":           {strings.ReplaceAll(strings.ReplaceAll(column("c", fractions), ",", ";"), ".", ","), `line 2: column "x": "0,5" has a comma, and numbers are read with a decimal point: replace it in the file, or name the column's kind with data.schema: x=number:comma or x=category or x=ignore`},
		"thousands":                {column("c", func(i int) string { return fmt.Sprintf("%q", fmt.Sprintf("%d,%03d.50", i+1, i)) }), `line 2: column "c": "1,000.50" has separators of thousands, or a decimal comma, and numbers are read without the former and with a decimal point: rewrite the column, or name the column's kind with data.schema: c=number:point or c=category`},
		"percentages":              {column("c", func(i int) string { return fmt.Sprint(i%7, "%") }), `line 2: column "c": "0%" is a number with a symbol: remove it in the file, or name the column's kind with data.schema: c=number:point% or c=number:comma% or`},
		"units":                    {column("c", func(i int) string { return fmt.Sprint(i, " bhp") }), `line 2: column "c": "0 bhp" is a number with a unit: remove it in the file, or name the column's kind with data.schema: c=number:pointbhp or c=number:commabhp or`},
		"the header again":         {column("c", but("c", func(i int) string { return []string{"a", "b"}[i%2] })), `line 122: column "c": the name of the column is a value of it, too: is the header repeated here, or has the file no header`},
		"a number too large":       {column("c", but("1e300", fractions)), `line 122: column "c": 1e300 is too large: the mean`},
	} {
		_, err := InferEncoder(text(t, c.content), Options{}, none, strict)
		if err == nil || !strings.Contains(err.Error(), c.reports) {
			t.Errorf("%s:\n got %v\nwant %s", name, err, c.reports)
		}
	}
}

// A kind that the schema names is taken without a doubt.
func TestSchemaEndsDoubts(t *testing.T) {
	for _, c := range []struct {
		content string
		schema  Schema
	}{
		{column("c", but("3+", func(i int) string { return fmt.Sprint(i % 3) })), Schema{"c": Category}},
		{column("c", but("c", func(i int) string { return []string{"a", "b"}[i%2] })), Schema{"c": Category}},
		{column("c", but("inf", fractions)), Schema{"c": Ignore}},
		{goalOf300(but("0.5", func(i int) string { return fmt.Sprint(i % 2) })), Schema{"y": Target}},
		{goalOf300(func(i int) string { return fmt.Sprint("w", i) }), Schema{"y": Label}},
	} {
		if _, err := InferEncoder(text(t, c.content), Options{Schema: c.schema}, none, strict); err != nil {
			t.Errorf("%v: %v", c.schema, err)
		}
	}
}

// TestNotesNameGuesses: guesses, and values unlike the others, are in the notes, with the number of
// rows.
func TestNotesNameGuesses(t *testing.T) {
	for name, c := range map[string]struct{ content, note string }{
		"None as a class":     {goalOf300(func(i int) string { return []string{"None", "low", "high"}[i%3] }), `column "y": the word None is a class, of 100 rows; an empty field is a missing value`},
		"its number":          {goalOf300(func(i int) string { return []string{"None", "low", "high"}[i%3] }), `one of 3 classes (None, high, low)`},
		"missing values":      {column("c", func(i int) string { return []string{"NA", "", "7", "8.5"}[i%4] }), `missing values: c 150 (empty 75, NA 75)`},
		"the separator":       {strings.ReplaceAll(column("c", fractions), ",", ";"), `f.csv: fields separated by semicolons, names of 3 columns in line 1`},
		"an index":            {column("", fractions)[2:], ""},
		"a counter":           {column("id", func(i int) string { return fmt.Sprint(i + 1) }), `column "id": its integers ascend from row to row, and are left out as identifiers: data.schema=id=number makes them an input`},
		"an outlier":          {column("c", but("1e6", func(i int) string { return fmt.Sprint(i % 50) })), `column "c": 1000000 (f.csv: line 122) is 17.3 deviations from the mean: is it correct?`},
		"case":                {column("c", but("Red", func(i int) string { return []string{"red", "blue"}[i%2] })), `column "c": "Red" and "red" differ in case or spaces alone`},
		"one value":           {column("c", func(int) string { return "3" }), `column "c": all numbers are 3`},
		"numbers and words":   {column("c", func(i int) string { return []string{"S", "M", "38"}[i%3] }), `column "c": 100 numbers and 200 words: the numbers are words, too`},
		"a column left out":   {column("c", func(i int) string { return fmt.Sprint("w", i) }), `ignores c (it has 300 different words in 300 rows)`},
		"mixed, and left out": {column("c", func(i int) string { return []string{fractions(i), fmt.Sprint("A", i), fractions(i)}[i%3] }), `ignores c (it has 200 numbers and 100 words, such as "A1")`},
	} {
		if name == "an index" {
			c.content = "," + strings.ReplaceAll(column("c", fractions), "\n", "\n7,")
			c.content, c.note = strings.TrimSuffix(c.content, "7,"), `column "Unnamed: 0" is ignored: it is a row index of pandas or R`
		}
		r := text(t, c.content)
		e, err := InferEncoder(r, Options{}, none, strict)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if notes := strings.Join(e.Notes(r), "\n"); !strings.Contains(notes, c.note) {
			t.Errorf("%s:\n got %s\nwant %s", name, notes, c.note)
		}
	}
}

// A file that is no UTF-8 is refused with line, byte and remedy, however it is read.
func TestOtherEncodingsAreErrors(t *testing.T) {
	rows := strings.Repeat("1,Ulm\n", 50_000)
	for name, c := range map[string]struct{ content, reports string }{
		"Latin-1":       {"a,b\n1,x\n2,K\xf6ln\n", "f.csv: line 3: byte 4 of the line, 0xf6, is not UTF-8: convert the file, for instance with `iconv -f WINDOWS-1252 -t UTF-8 OLD > NEW`"},
		"in the header": {"gr\xf6\xdfe,b\n1,x\n", "f.csv: line 1: byte 3 of the line, 0xf6"},
		"late":          {"a,b\n" + rows + "2,K\xf6ln\n", "f.csv: line 50002: byte 4 of the line, 0xf6"},
		"cut":           {"a,b\n1,\xc3", "f.csv: line 2: byte 3 of the line, 0xc3"},
		"zero":          {"a,b\n" + rows + "2,\x00\n", "f.csv: line 50002: a zero byte, byte 3 of the line"},
		"UTF-16":        {"\xff\xfea\x00,\x00", "f.csv: line 1: the file is UTF-16: convert it to UTF-8"},
		"UTF-16, big":   {"\xfe\xff\x00a\x00,", "f.csv: line 1: the file is UTF-16: convert it to UTF-8"},
		"CR":            {"a,b\r1,2\r3,4\r", "lines end with CR alone"},
	} {
		for _, slowly := range []bool{false, true} {
			r, err := OpenCSV("f.csv", func() (io.ReadCloser, error) {
				if slowly && len(c.content) < 1000 {
					return io.NopCloser(iotest.HalfReader(strings.NewReader(c.content))), nil
				}
				return io.NopCloser(strings.NewReader(c.content)), nil
			})
			if err == nil {
				_, err = InferEncoder(r, Options{}, none, strict)
			}
			if err == nil || !strings.Contains(err.Error(), c.reports) {
				t.Errorf("%s: %v, want %s", name, err, c.reports)
			}
		}
	}
	in := &bounded{r: iotest.OneByteReader(strings.NewReader("a,b\nKöln,東京\n")), budget: 100, name: "f", line: 1}
	if _, err := io.ReadAll(in); err != nil {
		t.Errorf("characters that come byte by byte: %v", err)
	}
}

// A file without a header is an error, whether its first line has numbers, or words that come
// again.
func TestMissingHeadersAreErrors(t *testing.T) {
	for content, reports := range map[string]string{
		"5.1,3.5,setosa\n4.9,3.0,setosa\n": `line 1: "5.1" is a number, not a column name: want a header first, a line with the names of all 3 columns`,
		"name,2019,y\na,1,2\n":             `"2019" is a number, not a column name`,
		"1,2\n3,4\n":                       `want a header with the names of the columns first`,
		"p,x,s\ne,b,s\np,x,y\ne,b,y\n":     `line 3: column "p": the name of the column is a value of it, too`,
		"p,x,x\ne,b,s\n":                   `columns 2 and 3 are both called "x": rename one; the first line is the header`,
		"a,b,\n1,2,\n":                     `column 3 of 3 has no name: name it, or remove it (a separator at the end of each line?)`,
	} {
		r, err := openText(content)
		if err == nil {
			_, err = InferEncoder(r, Options{}, none, strict)
		}
		if err == nil || !strings.Contains(err.Error(), reports) {
			t.Errorf("%q: %v, want %s", content, err, reports)
		}
	}
}

// The separator is the one that all first lines have in equal number.
func TestSeparatorFitsAllLines(t *testing.T) {
	for content, want := range map[string]rune{
		"a,b\n1,2\n":                         ',',
		"size,m;price,EUR;z\n1;2;3\n1;2;3\n": ';',
		"a\tb,c\td\n1\t2\t3\n":               '\t',
		"\"a;b;c\",d\n\"x;y\",1\n":           ',',
		"a;b\n1,5;2,5\n":                     ';',
		"ab\n12\n":                           0,
	} {
		if got := separator([]byte(content)); got != want {
			t.Errorf("%q is separated by %q, want %q", content, got, want)
		}
	}
}

// Files that are one table have their rows numbered one after another, faults in the file that has
// them, and the same columns.
func TestJoinedFilesAreOneTable(t *testing.T) {
	part := func(name, content string) Reader {
		r, err := OpenCSV(name, func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(content)), nil })
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	content := column("c", fractions)
	lines := strings.SplitAfter(content, "\n")
	all, err := Join("d", []Reader{part("d/1", strings.Join(lines[:101], "")), part("d/2", lines[0]), part("d/3", lines[0]+strings.Join(lines[101:], ""))})
	if err != nil {
		t.Fatal(err)
	}
	held := func(row int64) bool { return row%7 == 3 }
	joined, err := InferEncoder(all, Options{}, held, strict)
	if err != nil {
		t.Fatal(err)
	}
	one, err := InferEncoder(text(t, content), Options{}, held, strict)
	if err != nil || joined.Columns[0].Mean != one.Columns[0].Mean || joined.Columns[2].Deviation != one.Columns[2].Deviation {
		t.Errorf("joined: %+v, one file: %+v, %v", joined.Columns, one.Columns, err)
	}
	all, err = Join("d", []Reader{part("d/1", content), part("d/2", column("c", but("sold", fractions)))})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = InferEncoder(all, Options{}, none, strict); err == nil || !strings.HasPrefix(err.Error(), `d/2: line 122: column "c": "sold"`) {
		t.Errorf("a word in the second file: %v", err)
	}
	if _, err = Join("d", []Reader{part("d/1", content), part("d/2", column("z", fractions))}); err == nil || !strings.HasPrefix(err.Error(), "d/2: its columns are x, z, y, the columns of d/1 are x, c, y") {
		t.Errorf("other columns: %v", err)
	}
}

// Rows without a label may be left out as bad rows, each counted once by a caller that knows them
// by their text.
func TestRowsWithoutLabelAreBad(t *testing.T) {
	faults := map[string]int{}
	lenient := func(err error) error { faults[err.Error()]++; return nil }
	e, err := InferEncoder(text(t, goalOf300(func(i int) string { return []string{"0", "1", "NA"}[i%3] })), Options{}, none, lenient)
	if err != nil {
		t.Fatal(err)
	}
	if goal, _ := e.Goal(); len(faults) != 100 || len(goal.Words) != 2 {
		t.Errorf("%d faults, classes %q", len(faults), goal.Words)
	}
	sum := 0.0
	for i := range 300 {
		if i%3 < 2 {
			sum += float64(i%41) + 0.5
		}
	}
	if mean := e.Columns[0].Mean; math.Abs(mean-sum/200) > 1e-9 {
		t.Errorf("mean %v of rows with a label, want %v", mean, sum/200)
	}
}

// Tables that are studied together share a doubt, and a second pass; one of them under two names
// counts once.
func TestTogetherDoubtsAreShared(t *testing.T) {
	sound := goalOf300(fractions)
	_, errs := together(t, Options{}, sound, goalOf300(but("sold", fractions)))
	for i, err := range errs {
		if err == nil || !strings.Contains(err.Error(), `line 122: column "y": "sold" is no finite number, and 599 of 600 values are`) {
			t.Errorf("table %d: %v", i, err)
		}
	}
	own := []*survey{newSurvey("x", guess, false)}
	for i, name := range []string{"a/t.csv", "b/t.csv"} {
		c := Chunk{N: 2, Columns: []Vector{{Words: []string{"1.5", "word"}}}, lines: []int64{2, 3}}
		own[0] = newSurvey("x", guess, false)
		own[0].chunk(named(name), &c, &c.Columns[0], []bool{true, true}, none)
		text, err := toSend(name, own)
		if err != nil {
			t.Fatal(err)
		}
		all, err := share("c/t.csv", own, func([]byte) ([][]byte, error) { return [][]byte{text, text}, nil })
		if err != nil || all[0].Rows != 2 || all[0].FirstText.File != name {
			t.Errorf("table %d: %+v, %v", i, all[0], err)
		}
	}
}

// named is a Reader with a name alone.
type named string

func (n named) Name() string                                            { return string(n) }
func (n named) Columns() []string                                       { return nil }
func (n named) Scan([]int, func(error) error, func(*Chunk) error) error { return nil }

// A category has all its words, although its numbers came first and seemed to be all.
func TestCategoriesHaveAllWords(t *testing.T) {
	content := column("c", func(i int) string {
		if i < 30 {
			return fmt.Sprint(i % 25)
		}
		return fmt.Sprint("w", i%20)
	})
	e, err := InferEncoder(text(t, content), Options{}, none, strict)
	if err != nil {
		t.Fatal(err)
	}
	if c := e.Columns[1]; c.Kind != Category || len(c.Words) != 45 {
		t.Errorf("%s of %d words: %q", c.Kind, len(c.Words), c.Words)
	}
}

// Records of a run have each column with its kind, and the number of missing values by word.
func TestFoundListsColumns(t *testing.T) {
	e, err := InferEncoder(text(t, people), Options{Target: "income", Schema: Schema{"id": Ignore, "income": Target}}, none, strict)
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(e.Found())
	want := `[{"name":"id","kind":"ignore","guessed":false},` +
		`{"name":"age","kind":"number","guessed":true,"missing":{"":1},"rows":4,"histogram":{"start":30,"width":1,"counts":[1,0,0,0,0,0,0,0,0,0,1,0,0,0,0,0,0,0,0,0,1]}},` +
		`{"name":"city","kind":"category","guessed":true,"detail":"2 words: Bern, Zug, old","values":2,"missing":{"NA":1},"rows":4,"frequent":[{"word":"Bern","rows":2},{"word":"Zug, old","rows":1}]},` +
		`{"name":"sex","kind":"category","guessed":true,"detail":"2 words: f, m","values":2,"missing":{"?":1},"rows":4,"frequent":[{"word":"f","rows":2},{"word":"m","rows":1}]},` +
		`{"name":"income","kind":"target","guessed":false,"detail":"mean 3000, deviation 1871 (1 in metrics)","rows":4,"histogram":{"start":896,"width":128,"counts":[1,0,0,0,0,0,0,0,1,0,0,0,0,0,0,0,1,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,1]}}]`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v\nwant %s", got, err, want)
	}
}

// A number so far from the mean of training that a model would get infinity is a bad row.
func TestNumbersTooFarAreBad(t *testing.T) {
	e, err := InferEncoder(text(t, column("c", fractions)), Options{}, none, strict)
	if err != nil {
		t.Fatal(err)
	}
	var s Samples
	err = e.Encode(text(t, "x,c\n1,2\n1,1e300\n"), false, 1<<20, func(int64) *Samples { return &s }, strict)
	if err == nil || !strings.Contains(err.Error(), `line 3: column "c": 1e300 is too far from the mean of training`) {
		t.Errorf("%v", err)
	}
}

// TestRareWordsArePooled: words of fewer training rows than the limit have the code of unknown
// words, and are counted; words at the limit keep their own.
func TestRareWordsArePooled(t *testing.T) {
	content := column("c", func(i int) string {
		switch {
		case i == 299:
			return "held"
		case i >= 290 && i < 294:
			return "four"
		case i >= 294 && i < 297:
			return "three"
		}
		return "often"
	})
	counts := map[string]int64{}
	for i, line := range strings.Split(strings.TrimSpace(content), "\n")[1:] {
		if i != 299 {
			counts[strings.Split(line, ",")[1]]++
		}
	}
	if counts["four"] != 4 || counts["three"] != 3 || counts["often"] < 280 {
		t.Fatalf("%v", counts)
	}
	r := text(t, content)
	e, err := InferEncoder(r, Options{MinCount: 4}, func(row int64) bool { return row == 299 }, strict)
	if err != nil {
		t.Fatal(err)
	}
	if got := e.Columns[1]; strings.Join(got.Words, " ") != "four often" || got.MinCount != 4 {
		t.Errorf("got %+v", got)
	}
	if note, notes := `column "c": 1 word of fewer than 4 rows are pooled with unknown ones: 3 rows to train on`, strings.Join(e.Notes(r), "\n"); !strings.Contains(notes, note) {
		t.Errorf("got %s\nwant %s", notes, note)
	}
	var s Samples
	if err := e.Encode(r, true, 1<<20, func(int64) *Samples { return &s }, strict); err != nil {
		t.Fatal(err)
	}
	pooled := 0
	for _, id := range s.IDs {
		if id == 0 {
			pooled++
		}
	}
	if pooled != 4 || s.Unseen["c"] != 4 || e.Found()[1].Pooled != 1 {
		t.Errorf("%d rows pooled, %v, %+v", pooled, s.Unseen, e.Found()[1])
	}
}

// TestIdentifiersAreLeftOut: ascending integers, one for each row, are no input unless they are the
// only one or the schema names them.
func TestIdentifiersAreLeftOut(t *testing.T) {
	id := func(i int) string { return fmt.Sprint(1000 + 3*i + i%2) }
	for name, c := range map[string]struct {
		content string
		schema  Schema
		want    Kind
	}{
		"ascending":     {column("c", id), nil, Ignore},
		"by the schema": {column("c", id), Schema{"c": Number}, Number},
		"missing":       {column("c", but("", id)), nil, Number},
		"twice":         {column("c", but("1357", id)), nil, Number},
		"fractions":     {column("c", but("1360.5", id)), nil, Number},
		"few":           {strings.Join(strings.Split(column("c", id), "\n")[:20], "\n"), nil, Number},
		"alone":         {"c,y\n" + onlyColumns(column("c", id)), nil, Number},
	} {
		e, err := InferEncoder(text(t, c.content), Options{Schema: c.schema, Target: "y"}, none, strict)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, got := range e.Columns {
			if got.Name == "c" && got.Kind != c.want {
				t.Errorf("%s: got %s, want %s", name, got.Kind, c.want)
			}
		}
	}
}

// onlyColumns returns the rows of column without x.
func onlyColumns(content string) string {
	var b strings.Builder
	for _, line := range strings.Split(strings.TrimSpace(content), "\n")[1:] {
		_, rest, _ := strings.Cut(line, ",")
		b.WriteString(rest + "\n")
	}
	return b.String()
}
