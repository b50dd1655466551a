package clicks

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

// Generator draws rows of clicks by a layout. Keys follow Zipf's law, and clicks follow a hidden
// logistic model with a weight for each key and number. The arithmetic is in integers, so that rows
// have the same bytes on every machine: floating-point sums can be fused, and powers differ in the
// last bits.
//
// Each slot draws the number of its values, and each value from its table's distribution. The
// weight of a value is a hash of the table and the value. A number contributes its model input,
// relative to the mean, times a weight of the column. The log-odds of a click are the bias plus all
// contributions, each scaled by its column, so that the sum deviates by madeSpread for any layout.
// A sequence contributes by its similarity to the preceding value. The click is drawn by these
// odds. The odds are known, so the best possible score is known too: the best model orders rows by
// them.
//
// Weights add over a bag. A linear model of keys with sum pooling, such as the wide part of
// wide-deep, can therefore learn all weights except those of rare values, and except the similarity
// of sequences.
type Generator struct {
	layout *layout.Layout
	// made are the layout's columns in the order of a line, including ignored columns.
	made []generatedColumn
	// bias is added to the log-odds, for one click in four rows.
	bias int64
	odds *odds
}

// generatedColumn is a column of generated rows.
type generatedColumn struct {
	*layout.Column
	// table is a hash of the table's name, which separates the values of tables.
	table uint64
	// zipfSampler draws values. Columns of one table share a sampler, as they share keys.
	zipfSampler *zipf.Law
	// lo and hi limit the number of values of a bag, uniformly distributed; 1 for a category.
	lo, hi int
	// scale is the factor of a weight, in units of oddsOne.
	scale int64
	// candidate reports whether the slot before a sequence has the same table: then the similarity
	// of the two contributes to the odds.
	candidate bool
}

// madeSpread is the target deviation of log-odds, of base 2, and madeRate the target number of
// clicks in 1,024 rows.
const (
	madeSpread = 2
	madeRate   = 256
)

// madeMissing: one in madeMissing numbers and categories is missing.
const madeMissing = 10

// NewGenerator returns a generator of a layout: with Column.Make if set, otherwise with values
// distinct values in each slot by Zipf's law with an exponent.
func NewGenerator(l *layout.Layout, values uint64, exponent float64) (*Generator, error) {
	m := &Generator{layout: l, odds: NewOdds()}
	p, err := NewLayoutParser(l, []byte(header(l)), false) // rejects unreadable layouts
	if err != nil {
		return nil, err
	}
	parts := int64(p.slots + p.numbers)
	heats := map[string]*zipf.Law{}
	for i := range l.Columns {
		if between := l.Separator + l.Columns[i].Separator; strings.ContainsAny(between, "-.0123456789abcdefghijklmnopqrstuvwxyz") {
			return nil, fmt.Errorf("%s: column %q: one of %q stands between values, and is in values that are made: choose others", l.Name(), l.Columns[i].Name, between)
		}
		c := generatedColumn{Column: &l.Columns[i], table: TextKey(0, []byte(l.Columns[i].Table))}
		if c.Slotted() {
			if err := c.slot(values, exponent, heats); err != nil {
				return nil, fmt.Errorf("%s: column %q: %w", l.Name(), c.Name, err)
			}
			before := i - 1
			c.candidate = c.Kind == layout.Sequence && before >= 0 && l.Columns[before].Kind == layout.Category && l.Columns[before].Table == c.Table
		}
		// Weights have a deviation of oddsOne; all parts add up to madeSpread.
		c.scale = root(madeSpread * madeSpread * OddsOne * OddsOne / parts / max(1, int64(c.lo+c.hi)/2))
		m.made = append(m.made, c)
	}
	m.calibrate()
	return m, nil
}

// slot sets the distribution of a slot's keys, shared by columns of one table.
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

// header returns a first line with the layout's names.
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

// calibrate finds the bias for madeRate by bisection over separate rows. These rows are equal for
// all seeds, so that all parts of a set, and sets of other seeds, have one bias.
func (m *Generator) calibrate() {
	const rows = 4096
	logits := make([]int64, rows)
	var line generatedRow
	for i := range logits {
		r := prng.New(randomStream, 3<<40, uint64(i))
		m.draw(&line, &r)
		logits[i] = line.logit
	}
	lo, hi := int64(-64*OddsOne), int64(64*OddsOne)
	for lo < hi {
		mid := lo + (hi-lo)>>1
		sum := uint64(0)
		for _, l := range logits {
			sum += m.odds.Probability(l+mid) >> 16
		}
		if sum < rows*madeRate/1024<<16 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	m.bias = lo
}

// generatedRow is a row in progress.
type generatedRow struct {
	text []byte
	// logit is the log-odds of a click, of base 2 in units of oddsOne, without the bias.
	logit int64
	// last is the value of the preceding slot, 0 without one; sequences are compared with it.
	last uint64
}

// weight returns the contribution of a value, with a deviation of oddsOne. The distribution is
// uniform, so that no platform's logarithm matters.
func weight(table, value uint64) int64 {
	const width = 2 * 1774 // width of a uniform distribution of deviation 1,024: times the root of 12
	return (int64(prng.Mix(table^prng.Mix(value))>>32)*width>>32 - width/2) * (OddsOne / 1024)
}

// draw draws a row without a label, and returns the position of the label.
func (m *Generator) draw(row *generatedRow, r *prng.Rand) (labelAt int) {
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
			c.Number(row, r)
		case layout.Ignore:
			row.text = append(row.text, '-')
		default:
			c.Bag(row, r)
		}
	}
	return labelAt
}

// Number appends a count: with a uniform logarithm if the model input is a logarithm, otherwise
// below 100. It contributes its distance from the mean, in deviations; a missing count contributes
// 0.
func (c *generatedColumn) Number(row *generatedRow, r *prng.Rand) {
	if r.Below(madeMissing) == 0 {
		return
	}
	sign := weight(c.table, TextKey(1, []byte(c.Name)))
	var x uint64
	var seen int64 // model input, with a deviation of oddsOne
	if c.Transform == "log" {
		k := r.Below(13)
		x = 1<<k - 1 + r.Next()>>(64-k)
		seen = int64(k-6) * OddsOne * 1024 / 3832 // deviation 3.742
	} else {
		x = uint64(r.Below(100))
		seen = (2*int64(x) - 99) * OddsOne * 1024 / 59114 // deviation 28.87
	}
	row.text = strconv.AppendUint(row.text, x, 10)
	row.logit += seen * sign / OddsOne * c.scale / OddsOne
}

// Bag appends the values of a slot.
func (c *generatedColumn) Bag(row *generatedRow, r *prng.Rand) {
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
	row.logit += sum * c.scale / OddsOne
	if c.candidate && n > 0 { // one in eight is equal by chance
		row.logit += (alike*8 - int64(n)) * OddsOne / int64(n) / 2
	}
}

// value appends the name of a value. Keys and hexadecimal numbers have no order.
func (c *generatedColumn) value(text []byte, value uint64) []byte {
	switch c.Values {
	case layout.Key:
		return strconv.AppendUint(text, prng.Mix(c.table^value), 10)
	case layout.Hex:
		const digits = "0123456789abcdef"
		name := uint32(value) * 0x9e3779b1 // odd factor: names are unique
		for shift := 28; shift >= 0; shift -= 4 {
			text = append(text, digits[name>>shift&15])
		}
		return text
	}
	return strconv.AppendUint(append(text, 'v'), value, 36)
}

// row appends a whole line, and counts it. The odds are those of the bin of the row, so that the
// best model's score is exact and not rounded afterwards.
func (m *Generator) row(text []byte, row *generatedRow, r *prng.Rand, t *oracleCounts) []byte {
	at := m.draw(row, r)
	bin := m.odds.bin(row.logit + m.bias)
	click := r.Next()>>32 < m.odds.of[bin]
	t.Add(bin, click)
	text = append(text, row.text[:at]...)
	text = m.label(text, click)
	return append(append(text, row.text[at:]...), '\n')
}

// label appends the label: 1 or 0, or for a layout with a threshold the threshold or one less.
func (m *Generator) label(text []byte, click bool) []byte {
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

// Write draws rows and writes them as lines, in memory independent of their number. Rows of a Part
// are equal for any number of processes: First is the number of the first row, a multiple of 2,048.
// Write ends early with the context's cause.
func (m *Generator) Write(ctx context.Context, w io.Writer, cfg GenerateConfig) (Truth, error) {
	if m.layout.Header {
		if _, err := io.WriteString(w, header(m.layout)+"\n"); err != nil {
			return Truth{}, err
		}
	}
	truths := make(chan *oracleCounts, cfg.Threads)
	err := writePieces(ctx, w, cfg, func() (draw func(*piece)) {
		t, row := NewTruth(), new(generatedRow)
		truths <- t
		return func(p *piece) {
			r := prng.New(cfg.Seed^randomStream, 4<<40+cfg.Part, uint64(cfg.First/GenerateRows+p.number))
			for range p.rows {
				p.text = m.row(p.text, row, &r, t)
			}
		}
	})
	if err != nil {
		return Truth{}, err
	}
	all := NewTruth()
	for range cfg.Threads {
		all.merge(<-truths)
	}
	return all.Summary(), nil
}

// Truth is the score of the best possible model on generated rows: the model that drew the clicks.
type Truth struct {
	Rows, Clicks int64
	// AUC is computed in the order of the true odds. Odds within 1/256 of base 2 are equal.
	AUC float64
	// LogLoss is the mean over rows, of base e.
	LogLoss float64
}

// oracleCounts counts rows by their true odds. Each goroutine has its own counts, which are added
// at the end: counts have no order, so the number of threads does not matter.
type oracleCounts struct{ clicked, not []int64 }

// NewTruth returns empty counts.
func NewTruth() *oracleCounts {
	return &oracleCounts{make([]int64, OddsBins), make([]int64, OddsBins)}
}

func (t *oracleCounts) Add(bin int, click bool) {
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

func (t *oracleCounts) Summary() (out Truth) {
	below, pairs, loss := 0.0, 0.0, 0.0
	for bin := range t.clicked {
		c, n := float64(t.clicked[bin]), float64(t.not[bin])
		pairs += c * (below + n/2)
		below += n
		p := 1 / (1 + math.Exp2(-float64(bin-OddsBins/2)/OddsFine))
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
