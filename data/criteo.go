package data

import (
	"fmt"
	"io"
	"math"
	"math/bits"
)

// The columns of Criteo's display advertising sets, tab-separated: the label
// (1: clicked), 13 counts and 26 hashed categories. Every field but the label
// may be empty: missing.
const (
	clickNumbers = 13
	clickSlots   = 26
	clickFields  = 1 + clickNumbers + clickSlots
)

// clickTableRows is how many embedding rows the slots share, if not told.
const clickTableRows = 1_000_001

// clickRows are samples of Criteo as a model gets them.
type clickRows struct {
	numbers []float32 // clickNumbers per row
	ids     []int32   // clickSlots per row
	labels  []int32
}

func (r *clickRows) reset() {
	r.numbers, r.ids, r.labels = r.numbers[:0], r.ids[:0], r.labels[:0]
}

// slotID is the embedding row of a category: 0 stands for what is missing, the
// others are shared by all slots. The hash is SplitMix64's finalizer over the
// value and the slot; of rows many times fewer than values, each is as likely.
func slotID(slot int, value uint64, rows int) int32 {
	r := rng(value + uint64(slot+1)*0xd1342543de82ef95)
	hi, _ := bits.Mul64(r.next(), uint64(rows-1))
	return 1 + int32(hi)
}

// clickParser parses lines; several may share it.
type clickParser struct {
	rows int
	logs []float32 // of 1+x for small x
	hex  [256]uint8
}

func newClickParser(rows int) *clickParser {
	p := &clickParser{rows: rows, logs: make([]float32, 4096)}
	for x := range p.logs {
		p.logs[x] = float32(math.Log1p(float64(x)))
	}
	for i := range p.hex {
		p.hex[i] = 0xff
	}
	for i := range 10 {
		p.hex['0'+i] = uint8(i)
	}
	for i := range 6 {
		p.hex['a'+i], p.hex['A'+i] = uint8(10+i), uint8(10+i)
	}
	return p
}

// number is what the model sees of a count: log(1+x), and 0 for x below 0.
func (p *clickParser) number(x int64) float32 {
	switch {
	case x <= 0:
		return 0
	case x < int64(len(p.logs)):
		return p.logs[x]
	}
	return float32(math.Log1p(float64(x)))
}

// parse is the parser of parseLines. Of a bad line nothing is kept.
func (p *clickParser) parse(text []byte, out *block) {
	const shortest = clickFields + 1 // bytes of a line: the label, tabs, the line's end
	most := len(text)/shortest + 1
	out.numbers = grown(out.numbers, most*clickNumbers)
	out.ids = grown(out.ids, most*clickSlots)
	out.labels = grown(out.labels, most)
	out.lines, out.faults = 0, out.faults[:0]
	n := 0
	for at := 0; at < len(text); out.lines++ {
		end, fault := p.line(text, at, (*[clickNumbers]float32)(out.numbers[n*clickNumbers:]), (*[clickSlots]int32)(out.ids[n*clickSlots:]))
		if fault == "" {
			out.labels[n] = int32(text[at] - '0')
			n++
		} else {
			out.faults = append(out.faults, lineFault{out.lines, end, fault})
			for end < len(text) && text[end] != '\n' {
				end++
			}
		}
		at = end + 1
	}
	out.numbers, out.ids, out.labels = out.numbers[:n*clickNumbers], out.ids[:n*clickSlots], out.labels[:n]
}

// line parses the line that begins at a place and returns where it ends, or
// where in it the fault is and what.
func (p *clickParser) line(text []byte, at int, numbers *[clickNumbers]float32, ids *[clickSlots]int32) (end int, fault string) {
	if at+1 >= len(text) || text[at] != '0' && text[at] != '1' || text[at+1] != '\t' {
		return at, badLabel(text[at:])
	}
	at += 2
	for column := range numbers {
		if at < len(text) && text[at] == '\t' { // missing
			numbers[column] = 0
			at++
			continue
		}
		x, n := integer(text[at:])
		if at += n; at >= len(text) || text[at] != '\t' {
			return at, badField(text, at, 1+column, "an integer")
		}
		at++
		numbers[column] = p.number(x)
	}
	for slot := range clickSlots - 1 {
		id, next, ok := p.category(text, at, slot)
		if !ok || next >= len(text) || text[next] != '\t' {
			return next, badField(text, next, 1+clickNumbers+slot, "a category in hexadecimal")
		}
		ids[slot] = id
		at = next + 1
	}
	id, at, ok := p.category(text, at, clickSlots-1)
	ids[clickSlots-1] = id
	if at+1 < len(text) && text[at] == '\r' && text[at+1] == '\n' {
		at++
	}
	if !ok || at < len(text) && text[at] != '\n' {
		return at, badField(text, at, clickFields-1, "a category in hexadecimal and the line's end")
	}
	return at, ""
}

// integer reads digits with a sign or without; n is their length, 0 if there
// are none. More than 18 digits are not taken for a number.
func integer(text []byte) (x int64, n int) {
	negative := len(text) > 0 && text[0] == '-'
	if negative {
		n = 1
	}
	for n < len(text) && n < 19 {
		d := text[n] - '0'
		if d > 9 {
			break
		}
		x = 10*x + int64(d)
		n++
	}
	if negative {
		if n == 1 {
			return 0, 0
		}
		return -x, n
	}
	return x, n
}

// category reads the hexadecimal digits from a place on and returns the
// embedding row they stand for and where they end; not ok: more than 16.
func (p *clickParser) category(text []byte, at, slot int) (id int32, end int, ok bool) {
	if at+8 < len(text) && text[at+8] < '0' { // eight characters and a tab, or so it seems
		d := (*[8]byte)(text[at:])
		a, b, c, e := p.hex[d[0]], p.hex[d[1]], p.hex[d[2]], p.hex[d[3]]
		f, g, h, i := p.hex[d[4]], p.hex[d[5]], p.hex[d[6]], p.hex[d[7]]
		if a|b|c|e|f|g|h|i < 16 {
			value := uint64(a)<<28 | uint64(b)<<24 | uint64(c)<<20 | uint64(e)<<16 |
				uint64(f)<<12 | uint64(g)<<8 | uint64(h)<<4 | uint64(i)
			return slotID(slot, value, p.rows), at + 8, true
		}
	}
	value := uint64(0)
	for end = at; end < len(text); end++ {
		d := p.hex[text[end]]
		if d >= 16 {
			break
		}
		if end-at == 16 {
			return 0, end, false
		}
		value = value<<4 | uint64(d)
	}
	if end == at {
		return 0, at, true
	}
	return slotID(slot, value, p.rows), end, true
}

func badLabel(text []byte) string {
	field := shown(text, 0)
	if field == "" {
		return "the label is missing, want 0 or 1 and 39 more fields after tabs"
	}
	return fmt.Sprintf("label %q, want 0 or 1 and 39 more fields after tabs", field)
}

// badField says what is wrong at a place of a field.
func badField(text []byte, at, column int, want string) string {
	if at >= len(text) || text[at] == '\n' || text[at] == '\r' {
		return fmt.Sprintf("the line ends in field %d of %d", column+1, clickFields)
	}
	for at > 0 && text[at-1] != '\t' && text[at-1] != '\n' {
		at--
	}
	return fmt.Sprintf("field %d is %q, want %s or nothing", column+1, shown(text, at), want)
}

// shown is the field at a place, the beginning of it if it is long.
func shown(text []byte, at int) string {
	end := at
	for end < len(text) && end < at+24 && text[end] != '\t' && text[end] != '\n' {
		end++
	}
	return string(text[at:end])
}

// pageRows is how many rows lie together: no row is ever copied to grow.
const pageRows = 1 << 13

// clicks is the source of Criteo's rows in memory: 160 bytes each.
type clicks struct {
	pages []clickRows
	n     int
}

func (c *clicks) Len() int     { return c.n }
func (c *clicks) Shape() Shape { return clickShape() }

var clickValues = []int{clickNumbers} // of clickShape. Never written.

func clickShape() Shape { return Shape{Values: clickValues, IDs: clickSlots, Labels: 1} }

func (c *clicks) evidence(w io.Writer) {
	for _, p := range c.pages {
		writeInts(w, p.labels)
	}
}

// Fill copies the rows.
func (c *clicks) Fill(b *Batch, idx []int32, _ Draw) error {
	b.Resize(clickShape(), len(idx))
	for i, n := range idx {
		if n < 0 || int(n) >= c.n {
			panic(fmt.Sprintf("data: sample %d of %d", n, c.n))
		}
		p, r := &c.pages[n/pageRows], int(n%pageRows)
		copy(b.Values[i*clickNumbers:][:clickNumbers], p.numbers[r*clickNumbers:])
		copy(b.IDs[i*clickSlots:][:clickSlots], p.ids[r*clickSlots:])
		b.Labels[i] = p.labels[r]
	}
	return nil
}

// add appends rows, as many as a limit allows (0: all).
func (c *clicks) add(rows *clickRows, limit int) {
	n := len(rows.labels)
	if limit > 0 {
		n = min(n, limit-c.n)
	}
	for from := 0; from < n; {
		if c.n%pageRows == 0 {
			c.pages = append(c.pages, clickRows{
				make([]float32, 0, pageRows*clickNumbers), make([]int32, 0, pageRows*clickSlots), make([]int32, 0, pageRows),
			})
		}
		p := &c.pages[len(c.pages)-1]
		to := min(n, from+pageRows-len(p.labels))
		p.numbers = append(p.numbers, rows.numbers[from*clickNumbers:to*clickNumbers]...)
		p.ids = append(p.ids, rows.ids[from*clickSlots:to*clickSlots]...)
		p.labels = append(p.labels, rows.labels[from:to]...)
		c.n += to - from
		from = to
	}
}

// readClicks parses a file to its end, or until limit rows are there.
func readClicks(name string, r io.Reader, p *clickParser, threads, limit int, bad *skips) (*clicks, error) {
	out := new(clicks)
	lines := 0
	err := parseLines(&chunks{name: name, r: r, size: chunkBytes}, threads, p.parse, func(c *chunk) (bool, error) {
		for _, f := range c.block.faults {
			fault := &FormatError{name, c.offset + int64(f.offset), fmt.Sprintf("line %d: %s", lines+f.line+1, f.text)}
			if err := bad.skip(fault); err != nil {
				return false, err
			}
		}
		lines += c.block.lines
		out.add(&c.block.clickRows, limit)
		return limit == 0 || out.n < limit, nil
	})
	if err == nil && out.n == 0 {
		err = &FormatError{name, 0, "no rows: want lines of a label, 13 numbers and 26 categories, separated by tabs"}
	}
	return out, err
}

func findCriteo(c Config) error {
	_, err := findPair("criteo", c)
	return err
}

// openCriteo reads the two files into memory.
func openCriteo(c Config, bad *skips) (*Set, error) {
	files, err := findPair("criteo", c)
	if err != nil {
		return nil, err
	}
	s := &Set{Classes: 2, Rows: or(c.Rows, clickTableRows)}
	p := newClickParser(s.Rows)
	read := func(path string, limit int) (Source, error) {
		f, err := openLines(path)
		if err != nil {
			return nil, fmt.Errorf("criteo: %w", err)
		}
		defer f.Close()
		rows, err := readClicks(path, f, p, c.threads(), limit, bad)
		if err != nil {
			return nil, fmt.Errorf("criteo: %w", err)
		}
		return rows, nil
	}
	if s.Train, err = read(files.train, c.TrainLimit); err == nil {
		s.Eval, err = read(files.eval, c.EvalLimit)
	}
	return s, err
}
