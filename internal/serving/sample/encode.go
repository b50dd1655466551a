package sample

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/data/table"
	"github.com/ringo-ml/ringo/internal/data/clicks"
	"github.com/ringo-ml/ringo/internal/data/images"
	"github.com/ringo-ml/ringo/internal/data/layout"
)

// table prepares the columns of a table. Rows may have the label and the columns that training
// ignored, so that rows of the training file are valid requests.
func (c *Codec) table(e *table.Encoder) {
	goal, _ := e.Goal()
	for _, col := range e.Columns {
		switch {
		case col.Kind == table.Ignore || col.Name == goal.Name:
			c.ignored[col.Name] = true
		case col.Kind == table.Number:
			c.fields = append(c.fields, Field{Name: col.Name, Kind: Number})
		case col.Kind == table.Date:
			c.fields = append(c.fields, Field{Name: col.Name, Kind: Date})
		default:
			c.fields = append(c.fields, Field{Name: col.Name, Kind: Category, Words: col.Words})
		}
	}
	c.encode = func(in *columns) (*Rows, error) {
		rows, at := new(Rows), 0
		all := func(int64) bool { return true }
		failed := func(err error) error { return err }
		err := e.Each(&reader{c, in}, nil, 1, all, failed, func(one *table.Unlabelled) error {
			rows.N, rows.Values, rows.IDs = rows.N+one.N, append(rows.Values, one.Values...), append(rows.IDs, one.IDs...)
			for i, f := range c.fields {
				if one.Unseen[f.Name] > 0 {
					rows.unknown(at, f.Name, in.words[i][at])
				}
			}
			at++
			return nil
		})
		if fault := (*table.Fault)(nil); errors.As(err, &fault) {
			return nil, &RowError{int(fault.Line), fault.Column, fault.Problem}
		}
		return rows, err
	}
}

func (r *Rows) unknown(row int, column, word string) {
	if r.UnknownWords++; r.UnknownWords <= mostUnknown {
		r.Unknown = append(r.Unknown, fmt.Sprintf("row %d: column %q: %.40q", row, column, word))
	}
}

// reader is a request as a table.
type reader struct {
	c  *Codec
	in *columns
}

func (r *reader) Name() string { return "the request" }

func (r *reader) Columns() (names []string) {
	for _, f := range r.c.fields {
		names = append(names, f.Name)
	}
	return names
}

func (r *reader) Scan(want []int, _ func(error) error, visit func(*table.Chunk) error) error {
	chunk := table.Chunk{N: r.in.n}
	for _, i := range want {
		chunk.Columns = append(chunk.Columns, table.Vector{Numbers: r.in.numbers[i], Words: r.in.words[i]})
	}
	return visit(&chunk)
}

// pixels prepares images of bytes, which are normalised as the training's images.
func (c *Codec) pixels(d data.Description) {
	mean, deviation, _ := d.Normalisation()
	tables := images.Statistics{Mean: mean, Deviation: deviation}.Tables()
	c.fields = []Field{{Name: "pixels", Kind: Pixels, Shape: d.Shape.Values}}
	c.encode = func(in *columns) (*Rows, error) {
		src := make([]uint8, len(in.numbers[0]))
		for i, x := range in.numbers[0] {
			src[i] = uint8(x)
		}
		rows := &Rows{Batch: data.Batch{N: in.n, Values: make([]float32, len(src))}}
		images.Normalise(rows.Values, src, tables)
		return rows, nil
	}
}

// values encodes numbers without a change.
func (c *Codec) values(in *columns) (*Rows, error) {
	rows := &Rows{Batch: data.Batch{N: in.n, Values: make([]float32, len(in.numbers[0]))}}
	for i, x := range in.numbers[0] {
		rows.Values[i] = float32(x)
	}
	return rows, nil
}

// clicks prepares the columns of a click log. A row becomes a line of the log, for the parser.
func (c *Codec) clicks(d data.Description) error {
	l, header := d.Layout, []byte(nil)
	if l == nil {
		var err error
		if l, err = layout.Open("criteo"); err != nil {
			return err
		}
	}
	w := &lines{l: l, field: make([]int, len(l.Columns))}
	for i, col := range l.Columns {
		w.field[i] = len(c.fields)
		switch col.Kind {
		case layout.Number:
			c.fields = append(c.fields, Field{Name: col.Name, Kind: Number, exact: true})
		case layout.Category:
			c.fields = append(c.fields, Field{Name: col.Name, Kind: Category})
		case layout.Bag, layout.Sequence:
			c.fields = append(c.fields, Field{Name: col.Name, Kind: Bag, Separator: col.Separator})
		default:
			w.field[i] = -1
			c.ignored[col.Name] = col.Name != ""
		}
	}
	if l.Header {
		header = w.header()
	}
	var parser clicks.Parser
	if d.Layout == nil {
		rows := d.Rows
		if len(d.Shape.Slots) == 0 && rows == 0 {
			rows = clicks.TableRows
		} else if len(d.Shape.Slots) > 0 {
			rows = 0
		}
		parser = clicks.NewCriteoParser(rows, len(d.Shape.Slots) > 0)
	} else {
		var err error
		if parser, err = clicks.NewParser(l, header, true); err != nil {
			return err
		}
	}
	c.encode = func(in *columns) (*Rows, error) {
		text, err := w.text(c, in)
		if err != nil {
			return nil, err
		}
		var block clicks.Block
		parser.Parse(text, &block)
		if len(block.Faults) > 0 {
			return nil, w.fault(block.Faults[0])
		}
		return clickRows(c.shape, &block.Rows), nil
	}
	return nil
}

// fault returns the error of a line, with the name of the column.
func (w *lines) fault(f clicks.Fault) error {
	e, n := &RowError{Row: f.Line, Problem: f.Text}, 0
	if _, err := fmt.Sscanf(f.Text, "field %d is", &n); err == nil && n >= 1 && n <= len(w.l.Columns) {
		e.Column = w.l.Columns[n-1].Name
	}
	return e
}

// clickRows returns parsed rows as a batch, as package data gathers rows of files.
func clickRows(s data.Shape, r *clicks.Rows) *Rows {
	n, slots := len(r.Labels), len(s.Slots)
	rows := &Rows{Batch: data.Batch{N: n, Values: r.Numbers[:n*s.Size()], IDs: r.IDs[:n*s.IDs], Keys: r.Keys[:n*s.Keys]}}
	if slots == 0 {
		return rows
	}
	b := &rows.Bags
	b.Offsets = append(b.Offsets, 0)
	for slot := range slots {
		for i := range n {
			switch {
			case s.Keys == 0:
				b.Keys = append(b.Keys, r.Bag(i, slots, slot)...)
			case r.Keys[i*slots+slot] != 0:
				b.Keys = append(b.Keys, r.Keys[i*slots+slot])
			}
			b.Offsets = append(b.Offsets, int32(len(b.Keys)))
		}
	}
	return rows
}

// lines writes rows as lines of a click log.
type lines struct {
	l     *layout.Layout
	field []int // field of each column; -1: label or ignored
}

func (w *lines) quoted() bool { return w.l.Separator == "," || w.l.Separator == ";" }

// header returns the names of the columns. With a header a line may lack the label.
func (w *lines) header() []byte {
	var names []string
	for i, col := range w.l.Columns {
		if w.field[i] >= 0 {
			names = append(names, w.quote(col.Name))
		}
	}
	return []byte(strings.Join(names, w.l.Separator))
}

func (w *lines) quote(text string) string {
	if w.quoted() && strings.ContainsAny(text, `",;`) {
		return `"` + strings.ReplaceAll(text, `"`, `""`) + `"`
	}
	return text
}

// text returns a request as lines.
func (w *lines) text(c *Codec, in *columns) ([]byte, error) {
	var text []byte
	for row := range in.n {
		begun := false
		for i, col := range w.l.Columns {
			f := w.field[i]
			if f < 0 && w.l.Header {
				continue
			}
			if begun {
				text = append(text, w.l.Separator...)
			}
			begun = true
			if f < 0 {
				if col.Kind == layout.Label {
					text = append(text, '0')
				}
				continue
			}
			value, problem := w.value(&col, c.fields[f].Kind, in, f, row)
			if problem != "" {
				return nil, &RowError{row, col.Name, problem}
			}
			text = append(text, w.quote(value)...)
		}
		text = append(text, '\n')
	}
	return text, nil
}

// value returns the text of a field of a row, or the problem of a value that a line cannot have.
func (w *lines) value(col *layout.Column, kind Kind, in *columns, f, row int) (text, problem string) {
	values, within := []string{""}, ""
	switch kind {
	case Number:
		return in.words[f][row], ""
	case Category:
		values[0] = in.words[f][row]
	case Bag:
		values, within = in.lists[f][row], col.Separator
	}
	for _, v := range values {
		bad := "\r\n\x00" + within
		if !w.quoted() {
			bad += w.l.Separator
		}
		if at := strings.IndexAny(v, bad); at >= 0 {
			return "", fmt.Sprintf("%.40q: %q is no part of a value in layout %s", v, v[at:at+1], w.l.Name())
		}
	}
	return strings.Join(values, col.Separator), ""
}

// Part is a range of a request's rows.
type Part struct {
	Rows   *Rows
	Lo, Hi int
}

// Gather sets b to parts of requests, in order. The samples' labels are 0.
func Gather(b *data.Batch, s data.Shape, parts []Part) {
	n := 0
	for _, p := range parts {
		n += p.Hi - p.Lo
	}
	b.Resize(s, n)
	clear(b.Labels)
	clear(b.Targets)
	at := 0
	for _, p := range parts {
		copy(b.Values[at*s.Size():], p.Rows.Values[p.Lo*s.Size():p.Hi*s.Size()])
		copy(b.IDs[at*s.IDs:], p.Rows.IDs[p.Lo*s.IDs:p.Hi*s.IDs])
		copy(b.Keys[at*s.Keys:], p.Rows.Keys[p.Lo*s.Keys:p.Hi*s.Keys])
		at += p.Hi - p.Lo
	}
	at = 0
	for slot := range len(s.Slots) {
		for _, p := range parts {
			for i := p.Lo; i < p.Hi; i++ {
				b.Bags.Keys = append(b.Bags.Keys, p.Rows.Bags.Bag(slot, p.Rows.N, i)...)
				at++
				b.Bags.Offsets[at] = int32(len(b.Bags.Keys))
			}
		}
	}
}

// Equal reports whether two shapes of samples are equal.
func Equal(a, b data.Shape) bool {
	return slices.Equal(a.Values, b.Values) && a.IDs == b.IDs && a.Keys == b.Keys && slices.Equal(a.Slots, b.Slots)
}
