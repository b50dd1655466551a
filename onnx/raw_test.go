package onnx

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/data/table"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/models"
	"github.com/ringo-ml/ringo/nn"
)

func labelEncoderTwin(n readNode, in []*array) []*array {
	out := newArray(in[0].shape...)
	for i, w := range in[0].words {
		out.data[i] = float64(n.int("default_int64"))
		if k := slices.Index(n.words["keys_strings"], w); k >= 0 {
			out.data[i] = float64(n.ints["values_int64s"][k])
		}
	}
	return one(out)
}

func whereTwin(_ readNode, in []*array) []*array {
	out := newArray(broadcastShape(in[0].shape, broadcastShape(in[1].shape, in[2].shape))...)
	k := 0
	return one(out.fill(func(at []int) float64 {
		from := in[2]
		if in[0].within(at) != 0 {
			from = in[1]
		}
		if from.words == nil {
			return from.within(at)
		}
		out.words = append(out.words, from.words[k%len(from.words)]) // of one axis
		k++
		return 0
	}))
}

func castTwin(n readNode, in []*array) []*array {
	return one(in[0].each(func(x float64) float64 {
		if n.int("to") == float32Type {
			return float64(float32(x))
		}
		return x
	}))
}

func argMaxTwin(n readNode, in []*array) []*array {
	if n.int("axis") != 1 || n.int("keepdims") != 1 {
		panic("want the place in each row")
	}
	out, width := newArray(in[0].shape[0], 1), in[0].shape[1]
	for i := range out.data {
		row := in[0].data[i*width:][:width]
		out.data[i] = float64(max(0, slices.Index(row, slices.Max(row)))) // 0 for rows of NaN
	}
	return one(out)
}

func gatherElementsTwin(_ readNode, in []*array) []*array {
	out, width := newArray(in[1].shape...), in[0].shape[1]
	for i := range out.data {
		out.data[i] = in[0].data[i*width+int(in[1].data[i])]
	}
	return one(out)
}

// gatherWords selects words of a list.
func gatherWords(words []string, at *array) *array {
	out := newArray(at.shape...)
	for _, v := range at.data {
		out.words = append(out.words, words[int(v)])
	}
	return out
}

// rawTable is a table with a model, and what its graph of raw inputs is fed.
type rawTable struct {
	*trial
	encoder *table.Encoder
}

const rawHeader = "size,note,colour,when,the town,y\n"

// rawRows are rows with missing values and, with odd, words that training has not.
func rawRows(n int, seed uint64, odd bool) string {
	r := rand.New(rand.NewPCG(seed, 1))
	pick := func(words ...string) string { return words[r.IntN(len(words))] }
	var b strings.Builder
	b.WriteString(rawHeader)
	for range n {
		colours, sizes := []string{"red", "green", "", "NA"}, []string{"1.5", "2", "", "-7e3", "?"}
		if odd {
			colours, sizes = append(colours, "Red", " red", "blau"), append(sizes, "1e30", "0.1")
		}
		fmt.Fprintf(&b, "%s,x,%s,%d,%s,%d\n", pick(sizes...), pick(colours...), 1_700_000_000+r.IntN(1000), pick("Köln", "Bern", "1"), r.IntN(3))
	}
	return b.String()
}

func openRows(t *testing.T, text string) table.Reader {
	t.Helper()
	r, err := table.OpenCSV("t.csv", func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil })
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func failBad(err error) error { return err }

// inferred is the encoder of rows for training.
func inferred(t *testing.T, text string, goal table.Kind) *table.Encoder {
	t.Helper()
	schema := table.Schema{"y": goal}
	if strings.HasPrefix(text, rawHeader) || strings.Contains(text, ",note,") {
		schema["note"] = table.Ignore
	}
	e, err := table.InferEncoder(openRows(t, text), table.Options{Schema: schema}, func(int64) bool { return false }, failBad)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func newRawTable(t *testing.T, goal table.Kind) *rawTable {
	t.Helper()
	return newRawTableOf(t, goal, inferred(t, rawRows(80, 1, false), goal))
}

func newRawTableOf(t *testing.T, goal table.Kind, e *table.Encoder) *rawTable {
	t.Helper()
	spec, o := mustLookup(t, "mlp"), model.Options{Classes: 3}
	spec.Input, spec.IDs = []int{e.Numbers()}, e.Categories()
	if goal == table.Target {
		spec.Task, spec.Targets = model.Regress, 1
	}
	o.Input, o.IDs, o.Rows, o.Targets = spec.Input, spec.IDs, e.Rows(), spec.Targets
	c, _ := e.Goal()
	return &rawTable{trial: newTrial(t, spec, o, Config{Raw: &data.Description{Encoder: e, Words: c.Words}}), encoder: e}
}

// feed returns the columns of rows as the graph takes them: NaN for missing numbers.
func (c *rawTable) feed(text string) map[string]*array {
	records, in := [][]string{}, map[string]*array{}
	for line := range strings.Lines(text) {
		records = append(records, strings.Split(strings.TrimSuffix(line, "\n"), ","))
	}
	for _, p := range c.read.inputs {
		at, a := slices.Index(records[0], p.name), &array{shape: []int{len(records) - 1}}
		for _, record := range records[1:] {
			x := math.NaN()
			if p.kind == stringType {
				a.words = append(a.words, record[at])
			} else {
				_, _ = fmt.Sscan(record[at], &x) // a missing one stays NaN
				a.data = append(a.data, x)
			}
		}
		in[p.name] = a
	}
	return in
}

// encodedOutputs are the model's outputs of rows that table.Encoder encodes.
func (c *rawTable) encodedOutputs(t *testing.T, text string) []float32 {
	t.Helper()
	var s table.Samples
	if err := c.encoder.Encode(openRows(t, text), false, 1<<20, func(int64) *table.Samples { return &s }, failBad); err != nil {
		t.Fatal(err)
	}
	values := &nn.Tensor{Shape: []int{s.N, c.encoder.Numbers()}, Data: s.Values}
	return c.outputs(model.Batch{N: s.N, Values: values, IDs: s.IDs})[0]
}

// A graph of raw columns computes what the encoder and the model compute, for rows of one and of
// many, missing values and unknown words.
func TestRawColumnsAgree(t *testing.T) {
	for _, goal := range []table.Kind{table.Label, table.Target} {
		c := newRawTable(t, goal)
		var names []string
		for _, p := range c.read.inputs {
			names = append(names, fmt.Sprint(p.name, " ", p.kind, " ", p.dims))
		}
		if want := []string{"size 11 [batch]", "colour 8 [batch]", "when 11 [batch]", "the town 8 [batch]"}; !slices.Equal(names, want) {
			t.Fatalf("inputs %v, want %v", names, want)
		}
		for _, n := range []int{1, 60} {
			text := rawRows(n, uint64(n), true)
			got, err := c.read.twin(c.feed(text))
			if err != nil {
				t.Fatal(err)
			}
			want, width := c.encodedOutputs(t, text), 3
			if goal == table.Target {
				width = 1
			}
			for i := range n {
				out := want[i*width:][:width]
				if goal == table.Target {
					g, _ := c.encoder.Goal()
					if w, x := g.Value(out[0]), got["prediction"].data[i]; math.Abs(x-w) > 1e-5*max(1, math.Abs(w)) {
						t.Errorf("row %d of %d: prediction %v, want %v", i, n, x, w)
					}
					continue
				}
				checkClass(t, got, i, out, []string{"0", "1", "2"})
			}
		}
	}
}

// checkClass compares row i of a graph's outputs with the model's logits.
func checkClass(t *testing.T, got map[string]*array, i int, logits []float32, classes []string) {
	t.Helper()
	if !slices.Equal(got["classes"].words, classes) {
		t.Fatalf("classes %q, want %q", got["classes"].words, classes)
	}
	sum, best := 0.0, 0
	for k, x := range logits {
		sum += math.Exp(float64(x))
		if x > logits[best] {
			best = k
		}
	}
	for k, x := range logits {
		if p := got["probabilities"].at(i, k); math.Abs(p-math.Exp(float64(x))/sum) > 1e-5 {
			t.Errorf("row %d: class %d has %v, want %v", i, k, p, math.Exp(float64(x))/sum)
		}
	}
	p := got["probability"].data[i]
	if word := got["prediction"].words[i]; word != classes[best] || p != got["probabilities"].at(i, best) {
		t.Errorf("row %d: %q with %v, want %q with %v", i, word, p, classes[best], got["probabilities"].at(i, best))
	}
}

// dateRows are rows with dates of all years from 1000 to 9999, or missing ones.
func dateRows(n int, seed uint64) string {
	r := rand.New(rand.NewPCG(seed, 1))
	var b strings.Builder
	b.WriteString("day,seen,y\n")
	for i := range n {
		day := time.Date(1000+r.IntN(9000), 1, 1+r.IntN(366), 0, 0, 0, 0, time.UTC).Format(time.DateOnly)
		switch i % 5 {
		case 0:
			day = ""
		case 1:
			day = []string{"2000-02-29", "1900-02-28", "1900-03-01", "1969-12-31", "2400-12-31", "9999-12-31"}[r.IntN(6)]
		}
		fmt.Fprintf(&b, "%s,%s,%d\n", day, time.Unix(r.Int64N(4e9)-2e9, 0).UTC().Format(time.DateTime), r.IntN(3))
	}
	return b.String()
}

// A graph of raw dates computes from their seconds what the encoder and the model compute from
// their text. A date outside the years 0 to 9999 makes the row's outputs NaN.
func TestRawDatesAgree(t *testing.T) {
	c := newRawTableOf(t, table.Label, inferred(t, dateRows(300, 1), table.Label))
	const n = 200
	text := dateRows(n, 2)
	in, day, seen := map[string]*array{}, &array{shape: []int{n}}, &array{shape: []int{n}}
	for line := range strings.Lines(text[strings.Index(text, "\n")+1:]) {
		fields := strings.Split(line, ",")
		x := math.NaN()
		if d, err := time.Parse(time.DateOnly, fields[0]); err == nil {
			x = float64(d.Unix())
		}
		s, err := time.Parse(time.DateTime, fields[1])
		if err != nil {
			t.Fatal(err)
		}
		day.data, seen.data = append(day.data, x), append(seen.data, float64(s.Unix()))
	}
	in["day"], in["seen"] = day, seen
	got, err := c.read.twin(in)
	if err != nil {
		t.Fatal(err)
	}
	want := c.encodedOutputs(t, text)
	for i := range n {
		checkClass(t, got, i, want[i*3:][:3], []string{"0", "1", "2"})
	}
	day.data[0], day.data[1], day.data[2], seen.data[3] = math.Inf(1), 253402300800, -62167219201, math.Inf(-1)
	wrong, err := c.read.twin(in)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range wrong["probability"].data[:6] {
		if (i < 4) != (p != p) || i >= 4 && p != got["probability"].data[i] {
			t.Errorf("row %d: probability %v after a date out of range", i, p)
		}
	}
}

// A number that no training row can have, infinite or too far from the mean for a float32, makes
// the row's outputs NaN and leaves other rows as they are.
func TestRawRejectsInfiniteNumbers(t *testing.T) {
	c := newRawTable(t, table.Label)
	text := rawRows(4, 9, false)
	good, err := c.read.twin(c.feed(text))
	if err != nil {
		t.Fatal(err)
	}
	in := c.feed(text)
	in["size"].data[1], in["when"].data[2] = math.Inf(1), -1e300
	got, err := c.read.twin(in)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range got["probability"].data {
		if i == 1 || i == 2 {
			if p == p || got["prediction"].words[i] != "" {
				t.Errorf("row %d: %q with %v, want NaN", i, got["prediction"].words[i], p)
			}
		} else if p != good["probability"].data[i] {
			t.Errorf("row %d: %v, want %v", i, p, good["probability"].data[i])
		}
	}
}

// A graph of raw pixels computes what the model computes of normalised ones.
func TestRawPixelsAgree(t *testing.T) {
	for _, name := range []string{"mnist-cnn", "cifar-resnet20", "mlp"} {
		spec, o, _ := smaller(mustLookup(t, name))
		d := data.Description{Name: "mnist", Words: []string{"zero", "one"}}
		if spec.Input[2] == 3 {
			d.Name = "cifar10"
		}
		c := newTrial(t, spec, o, Config{Raw: &d})
		mean, deviation, _ := d.Normalisation()
		const n = 2
		b, pixels := spec.Sample(n), newArray(append([]int{n}, spec.Input...)...)
		r := rand.New(rand.NewPCG(3, 4))
		for i := range pixels.data {
			pixels.data[i] = float64(r.IntN(256))
			ch := i % len(mean)
			b.Values.Data[i] = (float32(pixels.data[i])/255 - mean[ch]) / deviation[ch]
		}
		got, err := c.read.twin(map[string]*array{"pixels": pixels})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if p := c.read.inputs[0]; len(c.read.inputs) != 1 || p.kind != uint8Type || p.dims[3] != decimal(int64(len(mean))) {
			t.Errorf("%s: inputs %v", name, c.read.inputs)
		}
		outputs := c.outputs(b)[0]
		for i := range n {
			checkClass(t, got, i, outputs[i*len(outputs)/n:][:len(outputs)/n], classNames(d.Words, len(outputs)/n))
		}
	}
}

// Data without raw inputs, other shapes and names of outputs are errors with the remedy.
func TestRawRefuses(t *testing.T) {
	ok := inferred(t, rawRows(30, 1, false), table.Label)
	taken := inferred(t, strings.ReplaceAll(rawRows(30, 1, false), "size", "probability"), table.Label)
	odd := inferred(t, rawRows(30, 1, false), table.Label)
	odd.Columns = slices.Clone(odd.Columns)
	odd.Columns[0].Kind = "moment"
	for name, c := range map[string]struct {
		d      data.Description
		ids    int
		reason string
	}{
		"text":          {data.Description{Name: "text"}, 2, "export the model with encoded inputs"},
		"other columns": {data.Description{Encoder: ok}, 1, "the model takes 2 numbers and 1 categories, and the table has 2 and 2"},
		"taken name":    {data.Description{Encoder: taken}, 2, `column "probability": an output of the graph has this name`},
		"unknown kind":  {data.Description{Encoder: odd}, 2, `column "size": kind moment has no raw input: export the model with encoded inputs`},
	} {
		spec := mustLookup(t, "mlp")
		spec.Input, spec.IDs = []int{2}, c.ids
		ps := nn.NewParams(1)
		m := spec.Build(ps, model.Options{Input: spec.Input, IDs: spec.IDs, Rows: 20, Classes: 3})
		if _, err := New(spec, m, ps, Config{Raw: &c.d}); err == nil || !strings.Contains(err.Error(), c.reason) {
			t.Errorf("%s: %v, want %q", name, err, c.reason)
		}
	}
	for name, has := range map[string]bool{"mnist": true, "images": true, "text": false, "criteo": false} {
		if HasRaw(data.Description{Name: name}) != has {
			t.Errorf("%s: want raw inputs %v", name, has)
		}
	}
}

// Columns may have the names of values within the graph: these get others.
func TestRawColumnNames(t *testing.T) {
	for _, name := range []string{"ids", "values", "const", "words", "hidden.weight", "Concat_0", "embedding"} {
		e := inferred(t, strings.ReplaceAll(rawRows(30, 1, false), "size", name), table.Label)
		spec := mustLookup(t, "mlp")
		spec.Input, spec.IDs = []int{2}, 2
		ps := nn.NewParams(1)
		m := spec.Build(ps, model.Options{Input: spec.Input, IDs: spec.IDs, Rows: e.Rows(), Classes: 3})
		g, err := New(spec, m, ps, Config{Raw: &data.Description{Encoder: e}, Names: func(s string) string { return models.PyTorchName("mlp", s) }})
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := g.Write(&out); err != nil {
			t.Fatal(err)
		}
		if r := readBack(t, out.Bytes(), ""); r.inputs[0].name != name {
			t.Errorf("input %q, want %q", r.inputs[0].name, name)
		}
	}
}
