package train

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/data/table"
	"github.com/ringo-ml/ringo/internal/data/layout"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/train/internal/tensornames"
	"github.com/ringo-ml/ringo/weights"
)

// side is a model for data that are described.
type side struct {
	d    data.Description
	spec model.Spec
	ps   *nn.Params
	m    model.Model
}

func buildSide(t *testing.T, base model.Spec, d data.Description, seed uint64) side {
	t.Helper()
	s := side{d: d, spec: shaped(base, d.Shape), ps: nn.NewParams(seed)}
	s.m = s.spec.Build(s.ps, optionsOf(s.spec, d.Classes, d.Vocabulary, d.Rows))
	if err := s.m.Arrange(s.ps, s.spec.Sample(1)); err != nil {
		t.Fatal(err)
	}
	return s
}

// start gives s the values of was by name and returns what it says.
func (s side) start(t *testing.T, was side, except ...string) ([]string, error) {
	t.Helper()
	text, err := json.Marshal(was.d)
	if err != nil {
		t.Fatal(err)
	}
	src := &initSource{Source: &weights.Source{Path: "old", Saved: &checkpoint.Header{Model: was.spec.Name, More: map[string]string{moreSet: string(text)}}}}
	old := map[string][]float32{}
	for _, x := range (&Replica{Params: was.ps}).tensors() {
		src.Tensors = append(src.Tensors, weights.Info{Name: x.name, Type: "F32", Shape: x.shape})
		old[x.name] = x.data
	}
	src.Read = func(name string) ([]float32, error) {
		if old[name] == nil {
			return nil, fmt.Errorf("no tensor %s", name)
		}
		return old[name], nil
	}
	r := &Replica{Spec: s.spec, Params: s.ps, model: s.m}
	lines, err := r.byName(src, Config{about: &s.d}, func(name string) bool { return slices.Contains(except, name) })
	if err != nil {
		return nil, err
	}
	for _, x := range r.tensors() {
		i := slices.IndexFunc(src.Tensors, func(i weights.Info) bool { return i.Name == x.name })
		if i < 0 || slices.Contains(except, x.name) {
			continue
		}
		if !slices.Equal(src.Tensors[i].Shape, x.shape) {
			t.Fatalf("%s: %v, want %v", x.name, src.Tensors[i].Shape, x.shape)
		}
		values, err := src.Read(x.name)
		if err != nil {
			t.Fatal(err)
		}
		copy(x.data, values)
	}
	return lines, nil
}

// sampleOf makes samples whose values depend on names alone, not on places.
func (s side) sampleOf(n int) model.Batch {
	b, names := s.spec.Sample(n), tensornames.Extract(s.d)
	draw := func(what string, most int) int {
		h := uint64(14695981039346656037)
		for _, c := range []byte(what) {
			h = (h ^ uint64(c)) * 1099511628211
		}
		return int(rand.New(rand.NewPCG(h, 1)).IntN(most))
	}
	if b.Values != nil {
		each := len(b.Values.Data) / n
		for i := range b.Values.Data {
			name := fmt.Sprint(i % each)
			if len(names.Values) > 0 {
				name = names.Values[i%each].Name
			}
			b.Values.Data[i] = float32(draw(fmt.Sprint("value", i/each, name), 1000))/500 - 1
		}
	}
	for i := range b.IDs {
		each := len(b.IDs) / n
		switch {
		case len(names.Words) > 0:
			word := fmt.Sprintf("w%d", draw(fmt.Sprint("word", i), len(names.Words)))
			b.IDs[i] = int32(slices.IndexFunc(names.Words, func(l tensornames.Label) bool { return l.Name == word }))
		case len(names.IDs) > 0:
			c := names.IDs[i%each]
			sorted := tensornames.Texts(c.Rows)
			slices.Sort(sorted)
			word := sorted[draw(fmt.Sprint("id", i/each, c.Name), len(sorted))]
			b.IDs[i] = int32(c.First + slices.Index(tensornames.Texts(c.Rows), word))
		}
	}
	if len(names.Slots) > 0 {
		b.Bags = nn.Bags{N: n, Offsets: []int32{0}}
		for _, slot := range names.Slots {
			for i := range n {
				for k := range 1 + draw(fmt.Sprint("bag", slot, i), 4) {
					b.Bags.Keys = append(b.Bags.Keys, uint64(draw(fmt.Sprint("key", slot, i, k), 1<<30)))
				}
				b.Bags.Offsets = append(b.Bags.Offsets, int32(len(b.Bags.Keys)))
			}
		}
	}
	return b
}

// outputs are a model's for sampleOf, by sample and name.
func (s side) outputs(t *testing.T, n int) map[string]float64 {
	t.Helper()
	tape := nn.NewTape(nn.TapeConfig{Threads: 1})
	defer tape.Close()
	tape.ResetEval()
	if s.m.State != nil {
		s.m.Reset()
	}
	got := map[string]float64{}
	names := tensornames.Extract(s.d)
	out := s.m.Forward(tape, s.sampleOf(n))
	for _, y := range out.List() {
		width := y.Shape[len(y.Shape)-1]
		for i, v := range y.Data {
			name := fmt.Sprint(i % width)
			if len(names.Outputs) == width {
				name = names.Outputs[i%width].Name
			}
			got[fmt.Sprint(i/width, " ", name)] = float64(v)
		}
	}
	return got
}

func sameOutputs(t *testing.T, name string, got, want map[string]float64) {
	t.Helper()
	largest := 0.0
	for _, v := range want {
		largest = max(largest, math.Abs(v))
	}
	for k, v := range want {
		if x, ok := got[k]; !ok || !(math.Abs(x-v) <= 1e-5*max(largest, 1e-3)) {
			t.Errorf("%s: output %s is %v, want %v", name, k, x, v)
			return
		}
	}
	if len(got) != len(want) || largest == 0 {
		t.Errorf("%s: %d outputs up to %v, want %d", name, len(got), largest, len(want))
	}
}

// tableOfColumns describes a table: columns of a name alone are numbers, "city=a,b" are categories,
// "label=a,b" and "target" are to be found.
func tableOfColumns(t *testing.T, columns ...string) data.Description {
	t.Helper()
	var all []table.Column
	for _, c := range columns {
		name, words, is := strings.Cut(c, "=")
		col := table.Column{Name: name, Kind: table.Number, Mean: float64(len(name)), Deviation: 2}
		if is {
			col = table.Column{Name: name, Kind: table.Category, Words: strings.Split(words, ",")}
		}
		switch {
		case name == "target":
			col.Kind = table.Target
		case strings.HasPrefix(name, "label"):
			col.Kind = table.Label
		}
		all = append(all, col)
	}
	text, err := json.Marshal(map[string]any{"columns": all})
	if err != nil {
		t.Fatal(err)
	}
	e := new(table.Encoder)
	if err := json.Unmarshal(text, e); err != nil {
		t.Fatal(err)
	}
	d := data.Description{Name: "table", Encoder: e, Rows: e.Rows(), Shape: data.Shape{IDs: e.Categories()}}
	if e.Numbers() > 0 {
		d.Shape.Values = []int{e.Numbers()}
	}
	if goal, _ := e.Goal(); goal.Kind == table.Label {
		d.Shape.Labels, d.Classes, d.Words = 1, len(goal.Words), goal.Words
	} else {
		d.Shape.Targets = 1
	}
	return d
}

// clicksOf describes clicks: columns of capitals are numbers, those that end with + sequences,
// others categories.
func clicksOf(t *testing.T, columns ...string) data.Description {
	t.Helper()
	text := "columns:\n  - {name: clicked, kind: label}\n"
	d := data.Description{Name: "clicks", Classes: 2, Shape: data.Shape{Labels: 1}}
	numbers := 0
	for _, c := range columns {
		name, sequence := strings.CutSuffix(c, "+")
		switch {
		case strings.ToUpper(name) == name:
			text += fmt.Sprintf("  - {name: %s, kind: number}\n", name)
			numbers++
			continue
		case sequence:
			text += fmt.Sprintf("  - {name: %s, kind: sequence}\n", name)
		default:
			text += fmt.Sprintf("  - {name: %s, kind: category}\n", name)
		}
		d.Shape.Slots = append(d.Shape.Slots, data.Slot{Name: name, Sequence: sequence})
	}
	d.Shape.Values = []int{numbers}
	l, err := layout.Read("test", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	d.Layout, d.Rows = l, 300
	return d
}

// classesOf describes images of some classes.
func classesOf(shape []int, classes ...string) data.Description {
	return data.Description{Name: "images", Classes: len(classes), Words: classes, Shape: data.Shape{Values: shape, Labels: 1}}
}

// wordsOf describes a text of words w0, w1 and so on in an order.
func wordsOf(order ...int) data.Description {
	d := data.Description{Name: "text", Vocabulary: len(order), Shape: data.Shape{IDs: 35, Labels: 35}}
	for _, i := range order {
		d.Words = append(d.Words, fmt.Sprintf("w%d", i))
	}
	return d
}

// A model of each kind that starts with another one's values computes the same of the same samples,
// though columns, categories, slots, words and classes have another order.
func TestStartByNameKeepsOutputs(t *testing.T) {
	clicks := clicksOf(t, "ads", "P", "item", "Q", "R", "user")
	moved := clicksOf(t, "R", "user", "ads", "P", "item", "Q")
	for name, c := range map[string]struct{ was, now data.Description }{
		"mlp":            {tableOfColumns(t, "aa", "city=x,y,z", "b", "day=m,t", "label=p,q,r"), tableOfColumns(t, "label=r,p,q", "day=t,m", "b", "aa", "city=z,x,y")},
		"mlp numbers":    {tableOfColumns(t, "aa", "b", "ccc", "target"), tableOfColumns(t, "ccc", "target", "aa", "b")},
		"mlp categories": {tableOfColumns(t, "city=x,y,z", "day=m,t", "target"), tableOfColumns(t, "day=t,m", "city=y,z,x", "target")},
		"mlp images":     {classesOf([]int{4, 4, 3}, "cat", "dog", "emu"), classesOf([]int{4, 4, 3}, "emu", "cat", "dog")},
		"mnist":          {classesOf([]int{28, 28, 1}, "a", "b", "c"), classesOf([]int{28, 28, 1}, "c", "a", "b")},
		"cifar-resnet20": {classesOf([]int{32, 32, 3}, "a", "b", "c"), classesOf([]int{32, 32, 3}, "c", "a", "b")},
		"lstm":           {wordsOf(0, 1, 2, 3, 4, 5), wordsOf(3, 1, 0, 5, 2, 4)},
		"gpt-mini":       {wordsOf(0, 1, 2, 3, 4, 5), wordsOf(3, 1, 0, 5, 2, 4)},
		"ctr-dnn":        {clicks, moved}, "wide-deep": {clicks, moved}, "deepfm": {clicks, moved}, "dcn-v2": {clicks, moved}, "dlrm": {clicks, moved},
		"din": {clicksOf(t, "user", "P", "item", "past+", "ads"), clicksOf(t, "ads", "item", "past+", "user", "P")},
	} {
		base := zoo(strings.Fields(name)[0])
		if base.Task == model.Language {
			c.was.Shape.IDs, c.now.Shape.IDs = base.IDs, base.IDs
		}
		was, now := buildSide(t, base, c.was, 1), buildSide(t, base, c.now, 2)
		lines, err := now.start(t, was)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(lines) != 1 || !strings.HasPrefix(lines[0], "mapped by name: ") {
			t.Errorf("%s: printed %q", name, lines)
		}
		want := was.outputs(t, 3)
		sameOutputs(t, name, now.outputs(t, 3), want)
		sameOutputs(t, name+", its own", was.outputs(t, 3), want)
	}
}

// rowsOf are a tensor's values by the name of each place of its first axis.
func (s side) rowsOf(name string, labels []tensornames.Label) map[string][]float32 {
	out := map[string][]float32{}
	for _, x := range (&Replica{Params: s.ps}).tensors() {
		if x.name == name {
			each := len(x.data) / x.shape[0]
			for i, l := range labels {
				out[l.String()] = slices.Clone(x.data[i*each:][:each])
			}
		}
	}
	return out
}

// New columns, categories and classes begin as in a new run of the seed, those in common as the
// checkpoint has them, and both lists are printed.
func TestStartByNamePrintsNewAndUnused(t *testing.T) {
	old := tableOfColumns(t, "aa", "gone", "city=x,y", "far=q", "label=p,q,r")
	now := tableOfColumns(t, "fresh", "aa", "city=w,y", "near=q,k", "label=q,s,p")
	was, is, untouched := buildSide(t, zoo("mlp"), old, 1), buildSide(t, zoo("mlp"), now, 2), buildSide(t, zoo("mlp"), now, 2)
	lines, err := is.start(t, was)
	want := []string{"mapped by name: columns, categories, classes", "new, at first values: column fresh, near; category city=w; class s",
		"not used of the checkpoint: column gone, far; category city=x; class r"}
	if err != nil || !slices.Equal(lines, want) {
		t.Fatalf("%v, printed\n%s\nwant\n%s", err, strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
	for _, c := range []struct {
		tensor   string
		old, now []tensornames.Label
	}{{"out.weight", tensornames.Extract(old).Outputs, tensornames.Extract(now).Outputs}, {"out.bias", tensornames.Extract(old).Outputs, tensornames.Extract(now).Outputs},
		{"categories.weight", slices.Concat(tensornames.Extract(old).IDs[0].Rows, tensornames.Extract(old).IDs[1].Rows), slices.Concat(tensornames.Extract(now).IDs[0].Rows, tensornames.Extract(now).IDs[1].Rows)}} {
		before, after, fresh := was.rowsOf(c.tensor, c.old), is.rowsOf(c.tensor, c.now), untouched.rowsOf(c.tensor, c.now)
		for name, row := range after {
			want, ok := before[name]
			if !ok {
				want = fresh[name]
			}
			if !slices.Equal(row, want) {
				t.Errorf("%s of %s is %v, want %v", c.tensor, name, row, want)
			}
		}
	}
}

// What cannot be mapped by name is an error that names it, and a last layer of its own needs no
// classes in common.
func TestStartByNameRejects(t *testing.T) {
	old := tableOfColumns(t, "aa", "b", "city=x,y", "label=p,q")
	colder := tableOfColumns(t, "aa", "b", "city=x,y", "label=p,q")
	colder.Encoder.Columns[1].Mean = 7
	for _, c := range []struct {
		was, now data.Description
		model    string
		words    []string
	}{
		{old, tableOfColumns(t, "aa", "b=1,2", "city=x,y", "label=p,q"), "mlp", []string{"column b", "as number", "as category", "data.schema=b=number"}},
		{old, tableOfColumns(t, "aa", "b", "city=x,y", "label2=p,q"), "mlp", []string{"label label,", "label label2", "init-except"}},
		{old, tableOfColumns(t, "aa", "b", "city=x,y", "target"), "mlp", []string{"label label,", "target target"}},
		{old, colder, "mlp", []string{"column b", "mean 1 ", "7"}},
		{old, tableOfColumns(t, "u", "v", "town=x,y", "label=p,q"), "mlp", []string{"no column in common", "aa, b, city", "u, v, town"}},
		{old, tableOfColumns(t, "aa", "b", "city=x,y", "label=k,l"), "mlp", []string{"no class in common", "p, q", "k, l"}},
		{classesOf([]int{28, 28, 1}, "a", "b"), classesOf([]int{28, 28, 1}, "c", "d"), "mnist", []string{"no class in common"}},
		{wordsOf(0, 1), data.Description{Name: "text", Vocabulary: 3, Words: []string{"<unk>", "a", "b"}, Shape: data.Shape{IDs: 35, Labels: 35}}, "lstm", []string{"no word in common"}},
		{clicksOf(t, "ads", "P", "user"), clicksOf(t, "ads+", "P", "user"), "wide-deep", []string{"column ads", "category", "sequence"}},
	} {
		was, now := buildSide(t, zoo(c.model), c.was, 1), buildSide(t, zoo(c.model), c.now, 2)
		_, err := now.start(t, was)
		for _, w := range c.words {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v, want an error with %q", c.words[0], err, w)
				break
			}
		}
	}
	is := buildSide(t, zoo("mlp"), tableOfColumns(t, "b", "aa", "city=x,y", "label2=k,l"), 2)
	lines, err := is.start(t, buildSide(t, zoo("mlp"), old, 1), "out.weight", "out.bias")
	if err != nil || !slices.Equal(lines, []string{"mapped by name: columns, categories"}) {
		t.Errorf("another head: %v, %q", err, lines)
	}
}

// A model whose operations hide what its parameters belong to is refused as soon as names differ,
// and only then.
func TestStartByNameNeedsNamesToFollow(t *testing.T) {
	hidden := model.Spec{Name: "hidden", AnyShape: true, Build: func(ps *nn.Params, o model.Options) model.Model {
		l := ps.Dense("only", o.Input[0], max(1, o.Classes))
		return model.Model{Forward: func(t *nn.Tape, b model.Batch) model.Outputs {
			return model.Outputs{t.Dense(t.Transpose(b.Values, 0, 1), l, nn.Identity)}
		}, Loss: model.CrossEntropy}
	}}
	square := func(columns ...string) data.Description {
		d := tableOfColumns(t, columns...)
		d.Shape.Values = []int{1}
		return d
	}
	was := buildSide(t, hidden, square("a", "label=p,q"), 1)
	if lines, err := buildSide(t, hidden, square("a", "label=p,q"), 2).start(t, was); err != nil || lines != nil {
		t.Errorf("the same names: %v, %q", err, lines)
	}
	_, err := buildSide(t, hidden, square("c", "a", "label=p,q"), 2).start(t, was)
	if err == nil || !strings.Contains(err.Error(), "transpose") || !strings.Contains(err.Error(), "c, a") {
		t.Errorf("names behind a transposition: %v", err)
	}
}
