package data

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"sync"

	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/data/prng"
	"github.com/ringo-ml/ringo/internal/zipf"
)

// sampleRows is the most rows of a sample that are looked at: with them the
// statistics take at most a few hundred MB while they are learnt.
const sampleRows = 1_000_000

// criteoModel is what the columns of a sample in Criteo's format look like:
// for each column how often it is missing, for a count its quantiles, for a
// category the values that came more than once with their frequencies and how
// often one came that came only once. Rows drawn from it have the sample's
// columns, but independent of each other, and the sample's share of clicks,
// which depend on the counts and the frequent categories by hidden weights.
type criteoModel struct {
	numbers [clickNumbers]numberColumn
	slots   [clickSlots]slotColumn
	parser  *clickParser
	rate    float64 // of clicks
	bias    float64
	scale   float64
}

// numberColumn is the distribution of a count.
type numberColumn struct {
	missing   uint64  // of 2^63
	quantiles []int64 // sorted, at equal distances
	mean      float64 // of what the model would see
	weight    float64 // for a click, per deviation
}

// slotColumn is the distribution of a category. Outcome i is values[i]; the last one is a
// new value.
type slotColumn struct {
	missing  uint64
	values   []string
	weights  []float64 // for a click
	outcomes zipf.Alias
}

// LearnCriteo reads the statistics of a file, compressed or not, of which it
// looks at the first million rows. A bad line is an error with its number and
// byte offset.
func LearnCriteo(path string) (*criteoModel, error) {
	f, err := datafile.OpenText(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return learnCriteo(path, f, sampleRows)
}

// sampleColumns are the values of a sample by column.
type sampleColumns struct {
	rows, clicks int
	numbers      [clickNumbers][]int64
	categories   [clickSlots]map[string]int
	first        [clickSlots][]string // in order of occurrence, for the map has none
}

func learnCriteo(name string, r io.Reader, most int) (*criteoModel, error) {
	m := &criteoModel{parser: newClickParser(clickTableRows)}
	columns, err := m.readSample(name, r, most)
	if err != nil {
		return nil, err
	}
	if columns.rows < 2 || columns.clicks == 0 || columns.clicks == columns.rows {
		return nil, datafile.Errorf(name, 0, "%d clicks in %d rows say nothing of what makes a click: give a larger sample", columns.clicks, columns.rows)
	}
	for i := range m.numbers {
		m.numbers[i] = learnNumber(m.parser, columns.numbers[i], columns.rows, i)
	}
	for i := range m.slots {
		m.slots[i] = learnSlot(columns.first[i], columns.categories[i], columns.rows, i)
	}
	m.rate = float64(columns.clicks) / float64(columns.rows)
	m.calibrate()
	return m, nil
}

// readSample collects the columns; the parser judges the lines.
func (m *criteoModel) readSample(name string, r io.Reader, most int) (*sampleColumns, error) {
	c := new(sampleColumns)
	for i := range c.categories {
		c.categories[i] = map[string]int{}
	}
	var numbers [clickNumbers]float32
	var values [clickSlots]uint64
	in := bufio.NewReaderSize(r, chunkBytes)
	offset := int64(0)
	for c.rows < most {
		line, err := in.ReadSlice('\n')
		if err == bufio.ErrBufferFull {
			return nil, datafile.Errorf(name, offset, "a line longer than any row")
		} else if err != nil && err != io.EOF {
			return nil, datafile.ReadFault(name, offset+int64(len(line)), err)
		}
		if len(line) == 0 {
			break
		}
		if _, at, fault := m.parser.line(line, 0, &numbers, &values); fault != "" {
			return nil, datafile.Errorf(name, offset+int64(at), "line %d: %s", c.rows+1, fault)
		}
		offset += int64(len(line))
		c.add(bytes.TrimRight(line, "\r\n"))
	}
	return c, nil
}

// add counts a row that is known to be good.
func (c *sampleColumns) add(line []byte) {
	c.rows++
	c.clicks += int(line[0] - '0')
	line = line[2:]
	for i := range clickNumbers {
		field, rest, _ := bytes.Cut(line, []byte{'\t'})
		if line = rest; len(field) > 0 {
			x, _ := integer(field)
			c.numbers[i] = append(c.numbers[i], x)
		}
	}
	for i := range clickSlots {
		field, rest, _ := bytes.Cut(line, []byte{'\t'})
		if line = rest; len(field) > 0 {
			if n, ok := c.categories[i][string(field)]; ok {
				c.categories[i][string(field)] = n + 1
				continue
			}
			value := string(field)
			c.categories[i][value] = 1
			c.first[i] = append(c.first[i], value)
		}
	}
}

// ofRows is a share as a bound for numbers of 63 bits.
func ofRows(n, rows int) uint64 { return uint64(float64(n) / float64(rows) * (1 << 63)) }

func learnNumber(p *clickParser, values []int64, rows, column int) numberColumn {
	const most = 1 << 12 // quantiles
	c := numberColumn{missing: ofRows(rows-len(values), rows)}
	slices.Sort(values)
	n := min(len(values), most)
	var sum, square float64
	for i := range n {
		x := values[i*len(values)/n]
		if i == n-1 {
			x = values[len(values)-1]
		}
		c.quantiles = append(c.quantiles, x)
		v := float64(p.number(x))
		sum += v
		square += v * v
	}
	if n > 0 {
		c.mean = sum / float64(n)
		if variance := square/float64(n) - c.mean*c.mean; variance > 1e-9 {
			c.weight = hiddenWeight(clickSlots, uint64(column)) / math.Sqrt(variance)
		}
	}
	return c
}

func learnSlot(values []string, count map[string]int, rows, slot int) slotColumn {
	present, single := 0, 0
	var c slotColumn
	var odds []float64
	for _, v := range values {
		present += count[v]
		if count[v] == 1 {
			single++
			continue
		}
		x, _ := strconv.ParseUint(v, 16, 64)
		c.values = append(c.values, v)
		c.weights = append(c.weights, hiddenWeight(slot, x))
		odds = append(odds, float64(count[v]))
	}
	c.missing = ofRows(rows-present, rows)
	odds = append(odds, float64(single))
	for i, o := range odds { // a column that is always missing has NaN, and draws nothing
		odds[i] = o * float64(len(odds)) / float64(present)
	}
	c.outcomes = zipf.NewAlias(odds, 1, func(x float64) uint64 { return uint64(x * (1 << 63)) })
	return c
}

// draw appends the column's field and returns what it speaks for a click.
func (c *numberColumn) draw(row []byte, p *clickParser, r *prng.Rand) ([]byte, float64) {
	if r.Next()>>1 < c.missing {
		return row, 0
	}
	i := r.Below(len(c.quantiles))
	x := c.quantiles[i]
	if i+1 < len(c.quantiles) && c.quantiles[i+1] > x+1 {
		x += int64(r.Unit() * float64(c.quantiles[i+1]-x))
	}
	return strconv.AppendInt(row, x, 10), c.weight * (float64(p.number(x)) - c.mean)
}

func (c *slotColumn) draw(row []byte, r *prng.Rand) ([]byte, float64) {
	if r.Next()>>1 < c.missing {
		return row, 0
	}
	i := c.outcomes.Draw(r.Next(), r.Next())
	if i < len(c.values) {
		return append(row, c.values[i]...), c.weights[i]
	}
	const digits = "0123456789abcdef" // a new value
	for x, n := r.Next(), 0; n < 8; n++ {
		row = append(row, digits[x&15])
		x >>= 4
	}
	return row, 0
}

// row appends a line. Its label, the first byte, is drawn last.
func (m *criteoModel) row(line []byte, r *prng.Rand) []byte {
	line, logit, start := m.features(line, r)
	if r.Unit() < sigmoid(m.bias+m.scale*logit) {
		line[start] = '1'
	}
	return append(line, '\n')
}

// features appends a line of label 0, without its end.
func (m *criteoModel) features(line []byte, r *prng.Rand) (_ []byte, logit float64, start int) {
	start = len(line)
	line = append(line, '0')
	var part float64
	for i := range m.numbers {
		line, part = m.numbers[i].draw(append(line, '\t'), m.parser, r)
		logit += part
	}
	for i := range m.slots {
		line, part = m.slots[i].draw(append(line, '\t'), r)
		logit += part
	}
	return line, logit, start
}

// calibrate sets scale and bias so that log-odds deviate by 1.2 and the share
// of clicks is the sample's.
func (m *criteoModel) calibrate() {
	const draws = 20_000
	logits := make([]float64, draws)
	var line []byte
	var sum, square float64
	for i := range logits {
		r := prng.New(clicksStream, 1<<40, uint64(i))
		line, logits[i], _ = m.features(line[:0], &r)
		sum += logits[i]
		square += logits[i] * logits[i]
	}
	mean := sum / draws
	if variance := square/draws - mean*mean; variance > 1e-9 {
		m.scale = 1.2 / math.Sqrt(variance)
	}
	lo, hi := -100-m.scale*mean, 100-m.scale*mean
	for range 60 {
		m.bias = (lo + hi) / 2
		expected := 0.0
		for _, l := range logits {
			expected += sigmoid(m.bias + m.scale*l)
		}
		if expected > m.rate*draws {
			hi = m.bias
		} else {
			lo = m.bias
		}
	}
}

// GenerateConfig says what a criteoModel writes.
type GenerateConfig struct {
	Rows    int64
	Seed    uint64
	Part    uint64 // rows of another part, such as the evaluation set, are others
	First   int64  // of a ClickGenerator: the number of the first row, a multiple of 2,048
	Threads int    // goroutines that draw rows; the bytes do not depend on it
	// Progress, if set, is told of the rows written, from the goroutine that
	// called Write.
	Progress func(rows int64)
}

// Validate reports all faults together.
func (c GenerateConfig) Validate() error {
	var errs []error
	if c.Rows < 1 {
		errs = append(errs, fmt.Errorf("generate: %d rows: need at least 1", c.Rows))
	}
	if c.Threads < 1 {
		errs = append(errs, fmt.Errorf("generate: %d threads: need at least 1", c.Threads))
	}
	if c.First < 0 || c.First%generateRows != 0 {
		errs = append(errs, fmt.Errorf("generate: the first row is %d: need a multiple of %d", c.First, generateRows))
	}
	return errors.Join(errs...)
}

// generateRows is how many rows one goroutine draws at a time.
const generateRows = 2048

// piece is a block of rows on its way to the writer.
type piece struct {
	number int64
	rows   int64
	text   []byte
	done   chan struct{}
}

// Write draws rows and writes them as lines, block after block, in memory that
// does not depend on their number. About 3 us per row and thread. It ends early
// with the context's cause.
func (m *criteoModel) Write(ctx context.Context, w io.Writer, cfg GenerateConfig) error {
	return writePieces(ctx, w, cfg, func() (func(*piece), func()) {
		return func(p *piece) {
			r := prng.New(cfg.Seed^clicksStream, 2<<40+cfg.Part, uint64(p.number))
			for range p.rows {
				p.text = m.row(p.text, &r)
			}
		}, func() {}
	})
}

// writePieces has each of several goroutines draw blocks of rows, by a function that worker makes for it, and writes them in their order. done
// is called when a goroutine has drawn its last.
func writePieces(ctx context.Context, w io.Writer, cfg GenerateConfig, worker func() (draw func(*piece), done func())) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	queue := make(chan *piece, cfg.Threads+1)
	ring := make([]piece, cfg.Threads+1)
	for i := range ring {
		ring[i].done = make(chan struct{}, 1)
	}
	var workers sync.WaitGroup
	for range cfg.Threads {
		workers.Go(func() {
			draw, done := worker()
			defer done()
			for p := range queue {
				p.text = p.text[:0]
				draw(p)
				p.done <- struct{}{}
			}
		})
	}
	defer workers.Wait()
	defer close(queue)
	return collectPieces(ctx, w, cfg, ring, queue)
}

// collectPieces gives blocks out and writes what has become of them.
func collectPieces(ctx context.Context, w io.Writer, cfg GenerateConfig, ring []piece, queue chan<- *piece) error {
	blocks := (cfg.Rows + generateRows - 1) / generateRows
	given, written := int64(0), int64(0)
	for block := int64(0); block < blocks; block++ {
		for ; given < blocks && given < block+int64(len(ring)); given++ {
			p := &ring[given%int64(len(ring))]
			p.number, p.rows = given, min(generateRows, cfg.Rows-given*generateRows)
			queue <- p
		}
		p := &ring[block%int64(len(ring))]
		<-p.done
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if _, err := w.Write(p.text); err != nil {
			return err
		}
		if written += p.rows; cfg.Progress != nil {
			cfg.Progress(written)
		}
	}
	return nil
}
