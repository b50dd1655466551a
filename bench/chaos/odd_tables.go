package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
)

// oddTable is a table of 400 rows: what is to be found follows from size, age and town.
type oddTable struct {
	trap    *trap
	head    []string
	rows    [][]string
	classes bool
	sep     string
	end     string
	name    string              // of the file
	bytes   func([]byte) []byte // of the whole text; nil: as it is
	args    []string            // more of ringo train
	renamed map[string]string   // classes with other names
}

var (
	towns   = []string{"Ulm", "Kiel", "Bonn", "Lyon", "Oslo"}
	effects = []float64{0, 8, -8, 4, -4}
	kinds   = []string{"low", "middle", "high"}
)

const oddRows, sizeAt, ageAt, townAt, targetAt = 400, 0, 1, 2, 3

// row is one sample and what is to be found, as number and as word.
func (t *trap) row() (cells []string, y float64, kind string) {
	size, age, town := 10*t.rng.Float64(), 1+t.rng.IntN(90), t.rng.IntN(len(towns))
	y = 3*size - float64(age)/10 + effects[town]
	kind = kinds[min(int(size/3.34), 2)]
	return []string{strconv.FormatFloat(size, 'f', 3, 64), strconv.Itoa(age), towns[town]}, y, kind
}

// table makes the sound table.
func (t *trap) table(classes bool) *oddTable {
	o := &oddTable{trap: t, head: []string{"size", "age", "town", "price"}, classes: classes, sep: ",", end: "\n", name: "t.csv"}
	if classes {
		o.head[targetAt] = "kind"
	}
	for range oddRows {
		o.rows = append(o.rows, o.sample())
	}
	return o
}

func (o *oddTable) sample() []string {
	cells, y, kind := o.trap.row()
	if o.classes {
		return append(cells, kind)
	}
	return append(cells, strconv.FormatFloat(y, 'f', 3, 64))
}

// text is the whole table as text.
func (o *oddTable) text() []byte {
	var b strings.Builder
	if o.head != nil {
		b.WriteString(strings.Join(o.head, o.sep) + o.end)
	}
	for _, r := range o.rows {
		b.WriteString(strings.Join(r, o.sep) + o.end)
	}
	if o.bytes != nil {
		return o.bytes([]byte(b.String()))
	}
	return []byte(b.String())
}

// job writes the table and a sound question.
func (o *oddTable) job() oddJob {
	path := o.trap.write(o.name, o.text())
	question := "size,age,town\n"
	var numbers []float64
	var words []string
	for range 100 {
		cells, y, kind := o.trap.row()
		question += strings.Join(cells, ",") + "\n"
		numbers, words = append(numbers, y), append(words, cmp.Or(o.renamed[kind], kind))
	}
	j := oddJob{Args: append([]string{"mlp", "--data", path, "--batch", "16", "--epochs", "40", "--lr", "0.005"}, o.args...), Question: o.trap.write("question.csv", []byte(question)), Score: r2(numbers)}
	if o.classes {
		j.Score = accuracy(words)
	}
	return j
}

// any is the number of a row that is not near an end, and its line in the file.
func (o *oddTable) any() (row, line int) {
	row = 20 + o.trap.rng.IntN(oddRows-40)
	return row, row + 2
}

// each changes one column of all rows.
func (o *oddTable) each(column int, change func(cell string) string) {
	for _, r := range o.rows {
		r[column] = change(r[column])
	}
}

// some changes one column of about one row in n.
func (o *oddTable) some(n, column int, change func(cell string) string) {
	for _, r := range o.rows {
		if o.trap.rng.IntN(n) == 0 {
			r[column] = change(r[column])
		}
	}
}

// withPrice and withKind are oddities of tables whose target is a number or a class.
func withPrice(change func(o *oddTable)) func(t *trap) oddJob { return tabled(false, change) }
func withKind(change func(o *oddTable)) func(t *trap) oddJob  { return tabled(true, change) }

func tabled(classes bool, change func(o *oddTable)) func(t *trap) oddJob {
	return func(t *trap) oddJob {
		o := t.table(classes)
		change(o)
		return o.job()
	}
}

// cell writes one cell of one row.
func cell(column int, text string) func(o *oddTable) {
	return func(o *oddTable) {
		row, _ := o.any()
		o.rows[row][column] = text
	}
}

// put inserts a row.
func put(cells ...string) func(o *oddTable) {
	return func(o *oddTable) {
		row, _ := o.any()
		o.rows = slices.Insert(o.rows, row, cells)
	}
}

func quotedCell(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }

func utf16Bytes(text []byte) []byte {
	out := []byte{0xff, 0xfe}
	for _, u := range utf16.Encode([]rune(string(text))) {
		out = append(out, byte(u), byte(u>>8))
	}
	return out
}

func latin1(text []byte) []byte {
	var out []byte
	for _, r := range string(text) {
		out = append(out, byte(r))
	}
	return out
}

// aLine is what an error about one line contains.
var aLine = []string{"line "}

var oddTables = []oddity{
	{name: "table: unchanged", sound: true, make: withPrice(func(*oddTable) {})},
	{name: "table: unchanged, classes", sound: true, make: withKind(func(*oddTable) {})},
	{name: "table: byte order mark", sound: true, make: withPrice(func(o *oddTable) { o.head[0] = "\ufeff" + o.head[0] })},
	{name: "table: CRLF", sound: true, make: withKind(func(o *oddTable) { o.end = "\r\n" })},
	{name: "table: all quoted", sound: true, make: withPrice(func(o *oddTable) {
		for c := range o.head {
			o.each(c, quotedCell)
		}
	})},
	{name: "table: tabs", sound: true, make: withPrice(func(o *oddTable) { o.sep, o.name = "\t", "t.tsv" })},
	{name: "table: semicolons", sound: true, make: withKind(func(o *oddTable) { o.sep = ";" })},
	{name: "table: no newline at the end", sound: true, make: withPrice(func(o *oddTable) { o.bytes = func(b []byte) []byte { return b[:len(b)-1] } })},
	{name: "table: target first, by name", sound: true, make: withPrice(func(o *oddTable) {
		o.head = []string{"price", "size", "age", "town"}
		for i, r := range o.rows {
			o.rows[i] = []string{r[targetAt], r[0], r[1], r[2]}
		}
		o.args = []string{"--set", "data.target=price"}
	})},
	{name: "table: scientific notation", sound: true, make: withPrice(func(o *oddTable) {
		o.each(sizeAt, func(s string) string { f, _ := strconv.ParseFloat(s, 64); return strconv.FormatFloat(f, 'e', 4, 64) })
	})},
	{name: "table: towns with commas and umlauts", make: withPrice(func(o *oddTable) {
		o.each(townAt, func(s string) string { return quotedCell("Köln, " + s) })
	}), say: []string{"town"}},
	{name: "table: some numbers missing", sound: true, say: []string{"missing"}, make: withKind(func(o *oddTable) { o.some(30, ageAt, func(string) string { return "" }) })},
	{name: "table: some towns missing", sound: true, make: withKind(func(o *oddTable) { o.some(30, townAt, func(string) string { return "" }) })},
	{name: "table: a constant column", make: withPrice(func(o *oddTable) { o.insert("unit", func(int) string { return "m2" }) }), say: []string{"unit"}},
	{name: "table: a plus before numbers", make: withPrice(func(o *oddTable) { o.each(sizeAt, func(s string) string { return "+" + s }) }), blame: append(aLine, "size")},
	{name: "table: spaces beside numbers", make: withPrice(func(o *oddTable) { o.each(sizeAt, func(s string) string { return " " + s + " " }) }), blame: append(aLine, "size")},
	{name: "table: a column of row numbers", make: withPrice(func(o *oddTable) { o.insert("id", strconv.Itoa) }), say: []string{"id"}, blame: []string{"id"}},
	{name: "table: an index of pandas", make: withPrice(func(o *oddTable) { o.insert("", strconv.Itoa) }), say: []string{"index", "no name"}, blame: []string{"index", "name"}},
	{name: "table: a column of days", make: withKind(func(o *oddTable) {
		o.insert("day", func(i int) string { return fmt.Sprintf("2026-%02d-%02d", 1+i%12, 1+i%28) })
	}), say: []string{"day"}, blame: []string{"day"}},
	{name: "table: Latin-1", make: withPrice(func(o *oddTable) {
		o.each(townAt, func(s string) string { return strings.ReplaceAll(s, "o", "ö") })
		o.bytes = latin1
	}), blame: []string{"UTF-8"}},
	{name: "table: one byte of Latin-1", make: withKind(func(o *oddTable) { cell(townAt, "K\xf6ln")(o) }), blame: []string{"UTF-8"}},
	{name: "table: Latin-1 in classes", make: withKind(func(o *oddTable) {
		o.each(targetAt, func(s string) string { return strings.ReplaceAll(s, "i", "\xef") })
	}), blame: []string{"UTF-8"}},
	{name: "table: Latin-1 in a name", make: withPrice(func(o *oddTable) { o.head[0] = "gr\xf6\xdfe" }), blame: []string{"UTF-8"}},
	{name: "table: UTF-16", make: withPrice(func(o *oddTable) { o.bytes = utf16Bytes }), blame: []string{"UTF-16", "UTF-8"}},
	{name: "table: a zero byte", make: withKind(func(o *oddTable) { cell(townAt, "Ulm\x00")(o) }), blame: append(aLine, "zero byte", "NUL"), say: []string{"town"}},
	{name: "table: decimal commas", make: withPrice(func(o *oddTable) {
		o.sep = ";"
		comma := func(s string) string { return strings.Replace(s, ".", ",", 1) }
		o.each(sizeAt, comma)
		o.each(targetAt, comma)
	}), blame: []string{"comma"}, say: []string{"comma"}},
	{name: "table: one decimal comma", make: withKind(func(o *oddTable) { cell(sizeAt, `"3,5"`)(o) }), blame: aLine},
	{name: "table: no header", make: withKind(func(o *oddTable) { o.head = nil }), blame: []string{"header"}},
	{name: "table: no header, numbers", make: withPrice(func(o *oddTable) { o.head = nil }), blame: []string{"header"}},
	{name: "table: the header again", make: withPrice(func(o *oddTable) { put(o.head...)(o) }), blame: aLine},
	{name: "table: the header again, classes", make: withKind(func(o *oddTable) { put(o.head...)(o) }), blame: aLine},
	{name: "table: a line of sums at the end", make: withPrice(func(o *oddTable) { o.rows = append(o.rows, []string{"Total", "", "", "9999"}) }), blame: aLine},
	{name: "table: a comment", make: withPrice(func(o *oddTable) { put("# measured by hand")(o) }), blame: aLine},
	{name: "table: a row with a field less", make: withPrice(func(o *oddTable) { put("3.5", "40", "Ulm")(o) }), blame: aLine},
	{name: "table: a row with a field more", make: withKind(func(o *oddTable) { put("3.5", "40", "Ulm", "low", "x")(o) }), blame: aLine},
	{name: "table: a quote without end", make: withKind(func(o *oddTable) { cell(townAt, `"Ulm`)(o) }), blame: aLine},
	{name: "table: a field of 2 MiB", make: withKind(func(o *oddTable) { cell(townAt, strings.Repeat("x", 2<<20))(o) }), blame: aLine},
	{name: "table: a name twice", make: withPrice(func(o *oddTable) { o.head[1] = "size" }), blame: []string{"size"}},
	{name: "table: two columns without names", make: withPrice(func(o *oddTable) { o.head[0], o.head[1] = "", "" }), blame: []string{"name"}},
	{name: "table: one word among target numbers", make: withPrice(cell(targetAt, "sold")), blame: aLine},
	{name: "table: -inf among target numbers", make: withPrice(cell(targetAt, "-inf")), blame: aLine},
	{name: "table: NaN among target numbers", make: withPrice(cell(targetAt, "NaN")), blame: aLine, say: []string{"price", "left out"}},
	{name: "table: a target with its currency", make: withPrice(cell(targetAt, "31 EUR")), blame: aLine},
	{name: "table: all targets with a currency", make: withPrice(func(o *oddTable) { o.each(targetAt, func(s string) string { return s + " EUR" }) }), blame: []string{"price"}},
	{name: "table: all sizes as percentages", make: withPrice(func(o *oddTable) { o.each(sizeAt, func(s string) string { return s + "%" }) }), blame: []string{"size"}, say: []string{"left out"}},
	{name: "table: 1e300 as target", make: withPrice(cell(targetAt, "1e300")), blame: aLine},
	{name: "table: 1e5000 as target", make: withPrice(cell(targetAt, "1e5000")), blame: aLine},
	{name: "table: a target a million times too large", make: withPrice(cell(targetAt, "31000000")), blame: append(aLine, "price"), say: aLine},
	{name: "table: one word among numbers", make: withPrice(cell(sizeAt, "big")), blame: aLine},
	{name: "table: inf among numbers", make: withKind(cell(sizeAt, "inf")), blame: aLine},
	{name: "table: 1e300 among numbers", make: withKind(cell(sizeAt, "1e300")), blame: aLine},
	{name: "table: a number a million times too large", make: withKind(cell(sizeAt, "5000000")), blame: aLine, say: aLine},
	{name: "table: a zero-width space", make: withKind(cell(sizeAt, "\u200b3.5")), blame: aLine},
	{name: "table: full-width digits", make: withKind(cell(sizeAt, "３.5")), blame: aLine},
	{name: "table: a hexadecimal number", make: withKind(cell(ageAt, "0x1F")), blame: aLine},
	{name: "table: a number with underscores", make: withKind(cell(ageAt, "1_0")), blame: aLine},
	{name: "table: a class None", make: withKind(func(o *oddTable) { o.rename("low", "None") }), say: []string{"3 classes", "left out", "without"}, blame: []string{"None"}},
	{name: "table: a class NA", make: withKind(func(o *oddTable) { o.rename("high", "NA") }), say: []string{"3 classes", "left out", "without"}, blame: []string{"NA"}},
	{name: "table: a class ?", make: withKind(func(o *oddTable) { o.rename("high", "?") }), say: []string{"3 classes", "left out", "without"}, blame: []string{"?"}},
	{name: "table: some targets empty", make: withPrice(func(o *oddTable) { o.some(10, targetAt, func(string) string { return "" }) }), say: []string{"left out", "missing", "without"}, blame: aLine},
	{name: "table: some classes empty", make: withKind(func(o *oddTable) { o.some(10, targetAt, func(string) string { return "" }) }), say: []string{"left out", "missing", "without"}, blame: aLine},
	{name: "table: all targets empty", make: withPrice(func(o *oddTable) { o.each(targetAt, func(string) string { return "" }) }), blame: []string{"price"}},
	{name: "table: a class with a space behind it", make: withKind(func(o *oddTable) { o.some(5, targetAt, func(s string) string { return s + " " }) }), say: []string{"space", "classes (", "6 classes"}, blame: append(aLine, "space")},
	{name: "table: a class in other case", make: withKind(func(o *oddTable) { o.some(5, targetAt, strings.ToUpper) }), say: []string{"6 classes"}, blame: []string{"case"}},
	{name: "table: one class alone", make: withKind(func(o *oddTable) { o.each(targetAt, func(string) string { return "low" }) }), blame: []string{"low", "kind", "one class"}},
	{name: "table: one target alone", make: withPrice(func(o *oddTable) { o.each(targetAt, func(string) string { return "4.25" }) }), blame: []string{"price"}},
	{name: "table: empty", make: withPrice(func(o *oddTable) { o.bytes = func([]byte) []byte { return nil } }), blame: []string{"t.csv"}},
	{name: "table: a header alone", make: withPrice(func(o *oddTable) { o.rows = nil }), blame: []string{"t.csv"}},
	{name: "table: one row", make: withPrice(func(o *oddTable) { o.rows = o.rows[:1] }), blame: []string{"t.csv", "row", "sample"}},
	{name: "table: nine rows", make: withPrice(func(o *oddTable) { o.rows = o.rows[:9] }), blame: []string{"t.csv", "row", "sample", "batch"}, say: []string{"8 +", "of 9 rows", "9 rows"}},
	{name: "table: the last column is another", make: withPrice(func(o *oddTable) {
		for i, r := range o.rows {
			o.rows[i] = append(r, strconv.Itoa(o.trap.rng.IntN(1000)))
		}
		o.head = append(o.head, "noise")
	}), say: []string{"noise  target"}},
	{name: "table: no such target", make: withPrice(func(o *oddTable) { o.args = []string{"--set", "data.target=prize"} }), blame: []string{"prize"}},
	{name: "table: a schema of a column that is not there", make: withPrice(func(o *oddTable) { o.args = []string{"--set", "data.schema=towm=category"} }), blame: []string{"towm"}},
	{name: "table: a schema that words contradict", make: withPrice(func(o *oddTable) { o.args = []string{"--set", "data.schema=town=number"} }), blame: aLine},
	{name: "table: an evaluation without a column", make: withPrice(func(o *oddTable) {
		o.args = []string{"--eval-file", o.trap.write("e.csv", []byte("size,age,price\n1,2,3\n4,5,6\n"))}
	}), blame: []string{"e.csv", "town"}},
	{name: "table: an evaluation with other towns", make: withKind(func(o *oddTable) {
		o.args = []string{"--eval-file", o.trap.write("e.csv", []byte("size,age,town,kind\n1,2,Rom,low\n9,5,Pisa,high\n"))}
	}), say: []string{"Rom", "unseen", "not seen", "not in", "town"}, blame: []string{"Rom"}},
	{name: "table: an evaluation with another class", make: withKind(func(o *oddTable) {
		o.args = []string{"--eval-file", o.trap.write("e.csv", []byte("size,age,town,kind\n1,2,Ulm,low\n9,5,Ulm,huge\n"))}
	}), say: []string{"huge", "4 classes"}, blame: []string{"huge"}},
	{name: "table: CR alone ends lines", make: withPrice(func(o *oddTable) { o.end = "\r" }), blame: []string{"t.csv"}},
	{name: "table: two separators", make: withKind(func(o *oddTable) { put("3.5;40;Ulm;low")(o) }), blame: aLine},
	{name: "table: two files behind one another", make: withKind(func(o *oddTable) {
		o.bytes = func(b []byte) []byte { return append(append(b, "\ufeff"...), b...) }
	}), blame: aLine},
	{name: "table: a name with spaces", make: withPrice(func(o *oddTable) { o.head[0] = " size " }), say: []string{"size"}},
	{name: "table: names that differ in case", make: withPrice(func(o *oddTable) { o.head[1] = "Size" }), say: []string{"Size"}, blame: []string{"Size"}},
	{name: "table: cut in the middle of a row", make: withKind(func(o *oddTable) { o.bytes = func(b []byte) []byte { return b[:len(b)/2-5] } }), sound: false, blame: aLine, say: []string{"rows"}},
}

// insert puts a column in front.
func (o *oddTable) insert(name string, value func(row int) string) {
	o.head = append([]string{name}, o.head...)
	for i, r := range o.rows {
		o.rows[i] = append([]string{value(i)}, r...)
	}
}

// rename gives a class another name, also in the answers.
func (o *oddTable) rename(from, to string) {
	o.renamed = map[string]string{from: to}
	o.each(targetAt, func(s string) string {
		if s == from {
			return to
		}
		return s
	})
}
