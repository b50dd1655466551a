package clicks

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

	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/data/prng"
	"github.com/ringo-ml/ringo/internal/zipf"
)

// SampleRows limits the rows of a sample. The statistics then need at most a few hundred MB.
const SampleRows = 1_000_000

// CriteoModel holds statistics of the columns of a sample in Criteo's format: for each column the
// share of missing fields, for a count the quantiles, for a category the values with more than one
// occurrence, their frequencies, and the share of single values. Each column of rows drawn from the
// model has the sample's distribution, independent of other columns. The rows have the sample's
// share of clicks; clicks depend on the counts and the frequent categories by hidden weights.
type CriteoModel struct {
	numbers [CriteoNumbers]numberColumn
	slots   [CriteoSlots]slotColumn
	Parser  *CriteoParser
	rate    float64 // share of clicks
	bias    float64
	scale   float64
}

// numberColumn is the distribution of a count.
type numberColumn struct {
	missing   uint64  // share, in units of 2^-63
	quantiles []int64 // sorted, equidistant
	mean      float64 // mean model input
	weight    float64 // contribution per deviation
}

// slotColumn is the distribution of a category. Outcome i is values[i]; the last outcome is a new
// value.
type slotColumn struct {
	missing  uint64
	values   []string
	weights  []float64 // contributions
	outcomes zipf.Alias
}

// LearnCriteo reads the statistics of a file, compressed or not, from its first million rows. The
// error of a bad line has its number and byte offset.
func LearnCriteo(path string) (*CriteoModel, error) {
	f, err := datafile.OpenText(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return LearnCriteoRows(path, f, SampleRows)
}

// sampleColumns are the values of a sample by column.
type sampleColumns struct {
	Rows, Clicks int
	Numbers      [CriteoNumbers][]int64
	Categories   [CriteoSlots]map[string]int
	first        [CriteoSlots][]string // in order of occurrence
}

// LearnCriteoRows learns a model from at most most lines of r; name is the file in errors.
func LearnCriteoRows(name string, r io.Reader, most int) (*CriteoModel, error) {
	m := &CriteoModel{Parser: NewCriteoParser(TableRows, false)}
	columns, err := m.ReadSample(name, r, most)
	if err != nil {
		return nil, err
	}
	if columns.Rows < 2 || columns.Clicks == 0 || columns.Clicks == columns.Rows {
		return nil, datafile.Errorf(name, 0, "%d clicks in %d rows say nothing of what makes a click: give a larger sample", columns.Clicks, columns.Rows)
	}
	for i := range m.numbers {
		m.numbers[i] = learnNumber(m.Parser, columns.Numbers[i], columns.Rows, i)
	}
	for i := range m.slots {
		m.slots[i] = learnSlot(columns.first[i], columns.Categories[i], columns.Rows, i)
	}
	m.rate = float64(columns.Clicks) / float64(columns.Rows)
	m.calibrate()
	return m, nil
}

// ReadSample reads the columns; the parser validates the lines.
func (m *CriteoModel) ReadSample(name string, r io.Reader, most int) (*sampleColumns, error) {
	c := new(sampleColumns)
	for i := range c.Categories {
		c.Categories[i] = map[string]int{}
	}
	var numbers [CriteoNumbers]float32
	var values [CriteoSlots]uint64
	in := bufio.NewReaderSize(r, ChunkBytes)
	offset := int64(0)
	for c.Rows < most {
		line, err := in.ReadSlice('\n')
		if err == bufio.ErrBufferFull {
			return nil, datafile.Errorf(name, offset, "a line longer than any row")
		} else if err != nil && err != io.EOF {
			return nil, datafile.ReadFault(name, offset+int64(len(line)), err)
		}
		if len(line) == 0 {
			break
		}
		if _, at, fault := m.Parser.line(line, 0, &numbers, &values); fault != "" {
			return nil, datafile.Errorf(name, offset+int64(at), "line %d: %s", c.Rows+1, fault)
		}
		offset += int64(len(line))
		c.Add(bytes.TrimRight(line, "\r\n"))
	}
	return c, nil
}

// Add counts a good row.
func (c *sampleColumns) Add(line []byte) {
	c.Rows++
	c.Clicks += int(line[0] - '0')
	line = line[2:]
	for i := range CriteoNumbers {
		field, rest, _ := bytes.Cut(line, []byte{'\t'})
		if line = rest; len(field) > 0 {
			x, _ := integer(field)
			c.Numbers[i] = append(c.Numbers[i], x)
		}
	}
	for i := range CriteoSlots {
		field, rest, _ := bytes.Cut(line, []byte{'\t'})
		if line = rest; len(field) > 0 {
			if n, ok := c.Categories[i][string(field)]; ok {
				c.Categories[i][string(field)] = n + 1
				continue
			}
			value := string(field)
			c.Categories[i][value] = 1
			c.first[i] = append(c.first[i], value)
		}
	}
}

// ofRows returns a share as a limit for numbers of 63 bits.
func ofRows(n, rows int) uint64 { return uint64(float64(n) / float64(rows) * (1 << 63)) }

func learnNumber(p *CriteoParser, values []int64, rows, column int) numberColumn {
	const most = 1 << 12 // maximum quantiles
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
		v := float64(p.Number(x))
		sum += v
		square += v * v
	}
	if n > 0 {
		c.mean = sum / float64(n)
		if variance := square/float64(n) - c.mean*c.mean; variance > 1e-9 {
			c.weight = hiddenWeight(CriteoSlots, uint64(column)) / math.Sqrt(variance)
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
	for i, o := range odds { // NaN for an empty column, which is never drawn
		odds[i] = o * float64(len(odds)) / float64(present)
	}
	c.outcomes = zipf.NewAlias(odds, 1, func(x float64) uint64 { return uint64(x * (1 << 63)) })
	return c
}

// draw appends the column's field and returns its contribution.
func (c *numberColumn) draw(row []byte, p *CriteoParser, r *prng.Rand) ([]byte, float64) {
	if r.Next()>>1 < c.missing {
		return row, 0
	}
	i := r.Below(len(c.quantiles))
	x := c.quantiles[i]
	if i+1 < len(c.quantiles) && c.quantiles[i+1] > x+1 {
		x += int64(r.Unit() * float64(c.quantiles[i+1]-x))
	}
	return strconv.AppendInt(row, x, 10), c.weight * (float64(p.Number(x)) - c.mean)
}

func (c *slotColumn) draw(row []byte, r *prng.Rand) ([]byte, float64) {
	if r.Next()>>1 < c.missing {
		return row, 0
	}
	i := c.outcomes.Draw(r.Next(), r.Next())
	if i < len(c.values) {
		return append(row, c.values[i]...), c.weights[i]
	}
	const digits = "0123456789abcdef" // new value
	for x, n := r.Next(), 0; n < 8; n++ {
		row = append(row, digits[x&15])
		x >>= 4
	}
	return row, 0
}

// row appends a line. The label, the first byte, is drawn last.
func (m *CriteoModel) row(line []byte, r *prng.Rand) []byte {
	line, logit, start := m.features(line, r)
	if r.Unit() < Sigmoid(m.bias+m.scale*logit) {
		line[start] = '1'
	}
	return append(line, '\n')
}

// features appends a line with label 0, without its end.
func (m *CriteoModel) features(line []byte, r *prng.Rand) (_ []byte, logit float64, start int) {
	start = len(line)
	line = append(line, '0')
	var part float64
	for i := range m.numbers {
		line, part = m.numbers[i].draw(append(line, '\t'), m.Parser, r)
		logit += part
	}
	for i := range m.slots {
		line, part = m.slots[i].draw(append(line, '\t'), r)
		logit += part
	}
	return line, logit, start
}

// calibrate sets scale and bias for log-odds with a deviation of 1.2 and the sample's share of
// clicks.
func (m *CriteoModel) calibrate() {
	const draws = 20_000
	logits := make([]float64, draws)
	var line []byte
	var sum, square float64
	for i := range logits {
		r := prng.New(randomStream, 1<<40, uint64(i))
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
			expected += Sigmoid(m.bias + m.scale*l)
		}
		if expected > m.rate*draws {
			hi = m.bias
		} else {
			lo = m.bias
		}
	}
}

// GenerateConfig selects the rows of a CriteoModel or a Generator.
type GenerateConfig struct {
	Rows    int64
	Seed    uint64
	Part    uint64 // part of a set, such as the evaluation set, with separate rows
	First   int64  // number of a Generator's first row, a multiple of 2,048
	Threads int    // goroutines that draw rows, without effect on the bytes
	// Progress, if set, receives the number of rows written, on the goroutine of Write.
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
	if c.First < 0 || c.First%GenerateRows != 0 {
		errs = append(errs, fmt.Errorf("generate: the first row is %d: need a multiple of %d", c.First, GenerateRows))
	}
	return errors.Join(errs...)
}

// GenerateRows is the number of rows that a goroutine draws at a time.
const GenerateRows = 2048

// piece is a block of rows for the writer.
type piece struct {
	number int64
	rows   int64
	text   []byte
}

// Write draws rows and writes them as lines, block by block, in memory independent of their number.
// Cost: 3 us per row and thread. Write ends early with the context's cause.
func (m *CriteoModel) Write(ctx context.Context, w io.Writer, cfg GenerateConfig) error {
	return writePieces(ctx, w, cfg, func() func(*piece) {
		return func(p *piece) {
			r := prng.New(cfg.Seed^randomStream, 2<<40+cfg.Part, uint64(p.number))
			for range p.rows {
				p.text = m.row(p.text, &r)
			}
		}
	})
}

// writePieces draws blocks of rows on several goroutines, with a function from worker for each, and
// writes the blocks in order.
func writePieces(ctx context.Context, w io.Writer, cfg GenerateConfig, worker func() (draw func(*piece))) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	given, written := int64(0), int64(0)
	supply := func(p *piece) error {
		left := cfg.Rows - given*GenerateRows
		if left <= 0 {
			return io.EOF
		}
		*p = piece{number: given, rows: min(GenerateRows, left), text: p.text[:0]}
		given++
		return nil
	}
	return inOrder(cfg.Threads, supply, worker, func(p *piece) (bool, error) {
		if err := context.Cause(ctx); err != nil {
			return false, err
		}
		if _, err := w.Write(p.text); err != nil {
			return false, err
		}
		if written += p.rows; cfg.Progress != nil {
			cfg.Progress(written)
		}
		return true, nil
	})
}
