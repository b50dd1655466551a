package data

import (
	"context"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/internal/data/layout"
	"github.com/ringo-ml/ringo/internal/data/prng"
	"github.com/ringo-ml/ringo/internal/zipf"
)

// ClickGenerator makes rows of clicks by a layout, whose keys have a known heat and whose clicks
// follow from a known model: a logistic one, of a hidden weight for each key and number. It
// computes with whole numbers alone, so that rows are the same bytes on every machine:
// floating-point sums may be fused and powers differ in their last bits, and one row in a billion
// that falls out otherwise is another file.
//
// A row is drawn as follows. Each slot draws how many values it has, and each value from its table's heat. A value has a weight, by a hash of
// the table and the value; a number has what a model sees of it, about its mean, times a weight of the column. The log-odds of a click are
// the bias and all of these, each times its column's scale, which makes their sum deviate by madeSpread whatever the layout. A sequence
// adds by how much it has in common with the value before it. Whether the row is a click is then drawn by these odds, and as they are known,
// so is how well any model can do: the best one orders rows by them.
//
// Weights add up over a bag, so that a linear model of keys with sum pooling, such as the wide part of wide-deep, can come to know them all,
// but for those of values that come too seldom, and for what a sequence has in common with a value.
type ClickGenerator struct {
	layout *layout.Layout
	// made are the layout's columns, ignored ones among them, in their order in a line.
	made []generatedColumn
	// bias is added to log-odds so that a row in four is clicked.
	bias int64
	odds *odds
}

// generatedColumn is a column of rows that are made.
type generatedColumn struct {
	*layout.Column
	// table is a hash of its name, which tells its values from others'.
	table uint64
	// zipfSampler is how often each value comes; columns of one table share it, as they do keys.
	zipfSampler *zipf.Law
	// lo and hi are the least and the most values of a bag, each number as likely; 1 of a category.
	lo, hi int
	// scale is by how much a weight of a key or number counts, of oddsOne.
	scale int64
	// candidate is whether the slot before a sequence is of its table: then what they have in common counts, too.
	candidate bool
}

// madeSpread is the deviation of log-odds, of base 2, that a ClickGenerator aims at, and madeRate
// how many clicks there are in 1,024 rows.
const (
	madeSpread = 2
	madeRate   = 256
)

// madeMissing is that one in so many numbers and categories is missing.
const madeMissing = 10

// NewClickGenerator says what rows of a layout are like: by Column.Make where it says something,
// else values distinct values in each slot, hot by Zipf's law of an exponent.
func NewClickGenerator(l *layout.Layout, values uint64, exponent float64) (*ClickGenerator, error) {
	m := &ClickGenerator{layout: l, odds: newOdds()}
	p, err := newSlotParser(l, []byte(header(l)), false) // which refuses what cannot be read again
	if err != nil {
		return nil, err
	}
	parts := int64(len(p.slots) + p.numbers)
	heats := map[string]*zipf.Law{}
	for i := range l.Columns {
		if between := l.Separator + l.Columns[i].Separator; strings.ContainsAny(between, "-.0123456789abcdefghijklmnopqrstuvwxyz") {
			return nil, fmt.Errorf("%s: column %q: one of %q stands between values, and is in values that are made: choose others", l.Name(), l.Columns[i].Name, between)
		}
		c := generatedColumn{Column: &l.Columns[i], table: textKey(0, []byte(l.Columns[i].Table))}
		if c.Slotted() {
			if err := c.slot(values, exponent, heats); err != nil {
				return nil, fmt.Errorf("%s: column %q: %w", l.Name(), c.Name, err)
			}
			before := i - 1
			c.candidate = c.Kind == layout.Sequence && before >= 0 && l.Columns[before].Kind == layout.Category && l.Columns[before].Table == c.Table
		}
		// Weights have a deviation of oddsOne, and as many parts as there are add up to madeSpread.
		c.scale = root(madeSpread * madeSpread * oddsOne * oddsOne / parts / max(1, int64(c.lo+c.hi)/2))
		m.made = append(m.made, c)
	}
	m.calibrate()
	return m, nil
}

// slot finds the heat of a slot's keys, which columns of one table share.
func (c *generatedColumn) slot(values uint64, exponent float64, heats map[string]*zipf.Law) (err error) {
	c.lo, c.hi = 1, 1
	if several := c.Kind != layout.Category; several {
		c.lo, c.hi = 0, 10
		if c.Make.Most > 0 {
			c.lo, c.hi = c.Make.Least, c.Make.Most
		}
	}
	if c.Make.Values > 0 {
		values = c.Make.Values
	}
	if c.Make.Zipf > 0 {
		exponent = c.Make.Zipf
	}
	if c.Values == layout.Hex && values > 1<<32 {
		return fmt.Errorf("%d values: hexadecimal ones have 32 bits: want at most %d", values, uint64(1)<<32)
	}
	if c.zipfSampler = heats[c.Table]; c.zipfSampler == nil {
		c.zipfSampler, err = zipf.New(exponent, values)
		heats[c.Table] = c.zipfSampler
	}
	return err
}

// header is a first line of a layout's names.
func header(l *layout.Layout) string {
	var names []string
	for i, c := range l.Columns {
		name := c.Name
		if name == "" {
			name = fmt.Sprintf("ignored%d", i+1)
		}
		names = append(names, name)
	}
	return strings.Join(names, l.Separator)
}

// calibrate finds the bias by which as many rows are clicked as madeRate says, by bisection over rows of its own: they are the same
// whatever the seed, so that all parts of a set, and sets of other seeds, have one bias.
func (m *ClickGenerator) calibrate() {
	const rows = 4096
	logits := make([]int64, rows)
	var line generatedRow
	for i := range logits {
		r := prng.New(clicksStream, 3<<40, uint64(i))
		m.draw(&line, &r)
		logits[i] = line.logit
	}
	lo, hi := int64(-64*oddsOne), int64(64*oddsOne)
	for lo < hi {
		mid := lo + (hi-lo)>>1
		sum := uint64(0)
		for _, l := range logits {
			sum += m.odds.probability(l+mid) >> 16
		}
		if sum < rows*madeRate/1024<<16 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	m.bias = lo
}

// generatedRow is a row that is being made.
type generatedRow struct {
	text []byte
	// logit is the log-odds of a click, of base 2 and of oddsOne, without the bias.
	logit int64
	// last is the value of the slot before, 0 where it has none: what a sequence is compared with.
	last uint64
}

// weight is what a value says of a click, of deviation oddsOne: it is even, so that no platform's logarithm matters.
func weight(table, value uint64) int64 {
	const width = 2 * 1774 // of an even distribution of deviation 1,024: times the root of 12
	return (int64(prng.Mix(table^prng.Mix(value))>>32)*width>>32 - width/2) * (oddsOne / 1024)
}

// draw makes a row of no label: its place is where label goes.
func (m *ClickGenerator) draw(row *generatedRow, r *prng.Rand) (labelAt int) {
	row.text, row.logit, labelAt = row.text[:0], 0, -1
	for i := range m.made {
		if i > 0 {
			row.text = append(row.text, m.layout.Separator[0])
		}
		c := &m.made[i]
		switch c.Kind {
		case layout.Label:
			labelAt = len(row.text)
		case layout.Number:
			c.number(row, r)
		case layout.Ignore:
			row.text = append(row.text, '-')
		default:
			c.bag(row, r)
		}
	}
	return labelAt
}

// number appends a count: of a logarithm that is drawn evenly where that is what the model sees, else below 100. What it says of a click
// is by how many deviations it is from its mean; a missing one says nothing.
func (c *generatedColumn) number(row *generatedRow, r *prng.Rand) {
	if r.Below(madeMissing) == 0 {
		return
	}
	sign := weight(c.table, textKey(1, []byte(c.Name)))
	var x uint64
	var seen int64 // of deviation oddsOne
	if c.Transform == "log" {
		k := r.Below(13)
		x = 1<<k - 1 + r.Next()>>(64-k)
		seen = int64(k-6) * oddsOne * 1024 / 3832 // its deviation is 3.742
	} else {
		x = uint64(r.Below(100))
		seen = (2*int64(x) - 99) * oddsOne * 1024 / 59114 // 28.87
	}
	row.text = strconv.AppendUint(row.text, x, 10)
	row.logit += seen * sign / oddsOne * c.scale / oddsOne
}

// bag appends the values of a slot.
func (c *generatedColumn) bag(row *generatedRow, r *prng.Rand) {
	n := r.Between(c.lo, c.hi)
	if c.Kind == layout.Category && r.Below(madeMissing) == 0 {
		n = 0
	}
	sum, alike := int64(0), int64(0)
	last := row.last
	row.last = 0
	for k := range n {
		if k > 0 {
			row.text = append(row.text, c.Separator[0])
		}
		value := c.zipfSampler.Draw(r.Next(), r.Next(), r.Next())
		sum += weight(c.table, value)
		if value&7 == last&7 {
			alike++
		}
		row.text = c.value(row.text, value)
		row.last = value
	}
	row.logit += sum * c.scale / oddsOne
	if c.candidate && n > 0 { // one in eight is alike by chance
		row.logit += (alike*8 - int64(n)) * oddsOne / int64(n) / 2
	}
}

// value appends the name of a value: those of keys and of hexadecimal numbers are in no order.
func (c *generatedColumn) value(text []byte, value uint64) []byte {
	switch c.Values {
	case layout.Key:
		return strconv.AppendUint(text, prng.Mix(c.table^value), 10)
	case layout.Hex:
		const digits = "0123456789abcdef"
		name := uint32(value) * 0x9e3779b1 // odd: no two values have one name
		for shift := 28; shift >= 0; shift -= 4 {
			text = append(text, digits[name>>shift&15])
		}
		return text
	}
	return strconv.AppendUint(append(text, 'v'), value, 36)
}

// row appends a whole line, and counts it. The odds are those of the bin that the row is counted in: what is told of the best
// model is then exact, and not of odds that were rounded afterwards.
func (m *ClickGenerator) row(text []byte, row *generatedRow, r *prng.Rand, t *oracleCounts) []byte {
	at := m.draw(row, r)
	bin := m.odds.bin(row.logit + m.bias)
	click := r.Next()>>32 < m.odds.of[bin]
	t.add(bin, click)
	text = append(text, row.text[:at]...)
	text = m.label(text, click)
	return append(append(text, row.text[at:]...), '\n')
}

// label appends that a row is a click, or is none: 1 or 0, or of a layout whose clicks are numbers from a limit on, that limit or one
// less.
func (m *ClickGenerator) label(text []byte, click bool) []byte {
	from := 1.0
	for _, c := range m.made {
		if c.From != nil {
			from = *c.From
		}
	}
	switch {
	case click:
		return strconv.AppendFloat(text, from, 'f', -1, 64)
	case from == 1:
		return append(text, '0')
	}
	return strconv.AppendFloat(text, from-1, 'f', -1, 64)
}

// Write makes rows and writes them as lines, in memory that does not depend on their number. The rows of a Part are the same whoever writes
// them; First says with which row, a multiple of 2,048, this one begins. It ends early with the context's cause.
func (m *ClickGenerator) Write(ctx context.Context, w io.Writer, cfg GenerateConfig) (ClickTruth, error) {
	if m.layout.Header {
		if _, err := io.WriteString(w, header(m.layout)+"\n"); err != nil {
			return ClickTruth{}, err
		}
	}
	truths := make(chan *oracleCounts, cfg.Threads)
	err := writePieces(ctx, w, cfg, func() (draw func(p *piece), done func()) {
		t, row := newTruth(), new(generatedRow)
		return func(p *piece) {
			r := prng.New(cfg.Seed^clicksStream, 4<<40+cfg.Part, uint64(cfg.First/generateRows+p.number))
			for range p.rows {
				p.text = m.row(p.text, row, &r, t)
			}
		}, func() { truths <- t }
	})
	if err != nil {
		return ClickTruth{}, err
	}
	all := newTruth()
	for range cfg.Threads {
		all.merge(<-truths)
	}
	return all.summary(), nil
}

// ClickTruth is what the best of all models finds of made rows: the one by which clicks were drawn.
type ClickTruth struct {
	Rows, Clicks int64
	// AUC is that of the rows, ordered by their true odds, of which those that differ by less than 1/256 of base 2 are alike.
	AUC float64
	// LogLoss is the mean over rows, of base e.
	LogLoss float64
}

// oracleCounts counts rows by their true odds. Each goroutine has one of its own, and they are
// added up at the end: counts have no order, so that threads change nothing.
type oracleCounts struct{ clicked, not []int64 }

func newTruth() *oracleCounts {
	return &oracleCounts{make([]int64, oddsBins), make([]int64, oddsBins)}
}

func (t *oracleCounts) add(bin int, click bool) {
	if click {
		t.clicked[bin]++
	} else {
		t.not[bin]++
	}
}

func (t *oracleCounts) merge(o *oracleCounts) {
	for i := range t.clicked {
		t.clicked[i] += o.clicked[i]
		t.not[i] += o.not[i]
	}
}

func (t *oracleCounts) summary() (out ClickTruth) {
	below, pairs, loss := 0.0, 0.0, 0.0
	for bin := range t.clicked {
		c, n := float64(t.clicked[bin]), float64(t.not[bin])
		pairs += c * (below + n/2)
		below += n
		p := 1 / (1 + math.Exp2(-float64(bin-oddsBins/2)/oddsFine))
		loss -= c*math.Log(p) + n*math.Log1p(-p)
		out.Rows += t.clicked[bin] + t.not[bin]
		out.Clicks += t.clicked[bin]
	}
	if out.Clicks > 0 && below > 0 {
		out.AUC = pairs / float64(out.Clicks) / below
	}
	if out.Rows > 0 {
		out.LogLoss = loss / float64(out.Rows)
	}
	return out
}
