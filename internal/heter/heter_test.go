package heter

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/simd"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/models"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
)

const (
	testRows = 40
	testRate = 0.02
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func specOf(t testing.TB, name string) model.Spec {
	t.Helper()
	s, err := models.Lookup(name)
	must(t, err)
	return s
}

// samplesOf are n samples of random numbers and keys.
func samplesOf(s model.Spec, r *rand.Rand, n int) model.Batch {
	b := s.Sample(n)
	if b.Values != nil {
		for i := range b.Values.Data {
			b.Values.Data[i] = r.Float32()
		}
	}
	for i := range b.IDs {
		b.IDs[i] = int32(r.IntN(testRows))
	}
	for i := range b.Labels {
		b.Labels[i] = int32(r.IntN(2))
	}
	if len(s.Slots) > 0 {
		b.Bags.Offsets[0] = 0
		for i := range len(b.Bags.Offsets) - 1 {
			for range r.IntN(3) {
				b.Bags.Keys = append(b.Bags.Keys, r.Uint64N(1000))
			}
			b.Bags.Offsets[i+1] = int32(len(b.Bags.Keys))
		}
	}
	return b
}

// whole is a model in one process, as a trainer without heter-trainers has it: what split ones are compared with.
type whole struct {
	model model.Model
	ps    *nn.Params
	tape  *nn.Tape
	opt   optim.RowOptimizer
}

// ruleOf is SGD where numbers differ a little: Adagrad's first steps go as far along a gradient that is next to nothing as along others.
func ruleOf(micros int) optim.RowOptimizer {
	if micros > 1 {
		return &optim.SGD{LR: testRate}
	}
	return &optim.Adagrad{LR: testRate, Eps: 1e-10}
}

// newWhole makes one, with some parameters frozen.
func newWhole(t testing.TB, s model.Spec, rule optim.RowOptimizer, frozen ...string) *whole {
	t.Helper()
	w := &whole{ps: nn.NewParams(7), tape: nn.NewTape(nn.TapeConfig{}), opt: rule}
	t.Cleanup(w.tape.Close)
	w.model = s.Build(w.ps, model.Options{Rows: testRows})
	if len(frozen) > 0 {
		must(t, w.ps.Freeze(frozen...))
	}
	must(t, w.model.Arrange(w.ps, s.Sample(1)))
	must(t, w.opt.Bind(len(w.ps.Values())))
	var shapes [][2]int
	for _, tab := range w.ps.Tables() {
		shapes = append(shapes, [2]int{tab.Rows, tab.Dim})
	}
	must(t, w.opt.BindTables(shapes))
	return w
}

// update ends a step.
func (w *whole) update() {
	w.opt.BeginStep()
	w.opt.Update(0, w.ps.Values(), w.ps.Grads(), 1)
	for i, tab := range w.ps.Tables() {
		ids, grads := tab.Grad()
		w.opt.UpdateRows(i, tab.Data, ids, grads, 1)
	}
}

// step returns the loss.
func (w *whole) step(b model.Batch) float32 {
	w.tape.Reset()
	pass := w.model.Pass(w.tape, b)
	w.tape.Backward(pass.Loss.Mean, func(int) {})
	w.update()
	return pass.Loss.Mean.Data[0]
}

func newDevice(t testing.TB, s model.Spec, c *Cut, rule optim.Optimizer) *CPU {
	t.Helper()
	d, err := NewCPU(s, c, CPUConfig{Options: model.Options{Rows: testRows}, Seed: 7, Optimizer: func(*nn.Params) (optim.Optimizer, error) {
		return rule, nil
	}})
	must(t, err)
	t.Cleanup(d.Close)
	return d
}

// zoo are the models that mark a part.
var zoo = []string{"ctr-dnn", "wide-deep", "deepfm", "dcn-v2", "dlrm"}

// A model split at its mark, in one micro-batch, has the bits of the model in one piece: losses, outputs, and all parameters on
// both sides. In several micro-batches it has them nearly.
func TestSplitIsWhole(t *testing.T) {
	for _, name := range zoo {
		for _, micros := range []int{1, 3, 64} {
			if micros > 1 && name != "wide-deep" {
				continue
			}
			t.Run(fmt.Sprint(name, micros), func(t *testing.T) {
				s := specOf(t, name)
				c, err := Find(s, model.Options{Rows: testRows}, nil)
				must(t, err)
				one, near := newWhole(t, s, ruleOf(micros)), newWhole(t, s, ruleOf(micros), c.Params...)
				d := newDevice(t, s, c, ruleOf(micros))
				tr, err := NewTrainer(near.model, c, micros, Local{d}, nn.TapeConfig{Kernels: simd.Host()})
				must(t, err)
				defer tr.Close()
				r := rand.New(rand.NewPCG(1, 2))
				for step := range 3 {
					b := samplesOf(s, r, 20+step)
					want := one.step(b)
					pass, err := tr.Backward(b, 0, func(int) {})
					must(t, err)
					near.update()
					must(t, tr.End(testRate))
					checkNear(t, micros == 1, "loss", []float32{want}, pass.Loss.Mean.Data)
					if pass.Loss.Terms != b.N || pass.Outputs[0].Shape[0] != b.N {
						t.Errorf("%d terms, outputs %v of %d samples", pass.Loss.Terms, pass.Outputs[0].Shape, b.N)
					}
				}
				compareParams(t, micros == 1, one.ps, near.ps, d.params)
			})
		}
	}
}

// compareParams wants the parameters of a model in those of its two sides.
func compareParams(t *testing.T, same bool, want *nn.Params, near, far *nn.Params) {
	t.Helper()
	got := map[string][]float32{}
	for _, ps := range []*nn.Params{near, far} {
		for _, p := range ps.List() {
			if !p.Frozen() {
				got[p.Name] = p.Data
			}
		}
	}
	for i, tab := range near.Tables() {
		checkNear(t, same, tab.Name, want.Tables()[i].Data, tab.Data)
	}
	for _, p := range want.List() {
		checkNear(t, same, p.Name, p.Data, got[p.Name])
	}
}

// checkNear wants the same bits, or nearly the same numbers.
func checkNear(t *testing.T, same bool, what string, want, got []float32) {
	t.Helper()
	if same {
		if !slices.Equal(got, want) {
			t.Errorf("%s: other bits", what)
		}
		return
	}
	if len(got) != len(want) {
		t.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	for i := range want {
		if math.Abs(float64(got[i]-want[i])) > 1e-5*(1+math.Abs(float64(want[i]))) {
			t.Errorf("%s: value %d is %v, want %v", what, i, got[i], want[i])
			return
		}
	}
}

// An evaluation of a split model is that of the whole.
func TestSplitEvaluates(t *testing.T) {
	s := specOf(t, "wide-deep")
	c, err := Find(s, model.Options{Rows: testRows}, nil)
	must(t, err)
	one, near := newWhole(t, s, ruleOf(4)), newWhole(t, s, ruleOf(4), c.Params...)
	tr, err := NewTrainer(near.model, c, 4, Local{newDevice(t, s, c, ruleOf(4))}, nn.TapeConfig{})
	must(t, err)
	defer tr.Close()
	b := samplesOf(s, rand.New(rand.NewPCG(3, 4)), 31)
	one.tape.ResetEval()
	want := one.model.Pass(one.tape, b)
	got, err := tr.Evaluate(b)
	must(t, err)
	checkNear(t, true, "outputs", want.Outputs[0].Data, got.Outputs[0].Data)
	if got.Loss.Correct != want.Loss.Correct || math.Abs(float64(got.Loss.Mean.Data[0]-want.Loss.Mean.Data[0])) > 1e-6 {
		t.Errorf("loss %v of %d right ones, want %v of %d", got.Loss.Mean.Data, got.Loss.Correct, want.Loss.Mean.Data, want.Loss.Correct)
	}
}

// What crosses is told in words.
func TestCutTells(t *testing.T) {
	c, err := Find(specOf(t, "wide-deep"), model.Options{}, nil)
	must(t, err)
	got := c.String()
	for _, want := range []string{
		"model wide-deep: heter-trainers compute with 430801 values of 8 parameters: ", "fc1.weight",
		"to them    embeddingbag embedding [273], its gradient comes back",
		"to them    add [1], its gradient comes back", "to them    labels [1]", "from them  the output [1] and the loss",
		"1100 bytes of each sample there and 1100 back, as fp32",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	if !slices.Equal(c.TrainerParams, []string{"numbers.bias", "numbers.weight"}) && !slices.Equal(c.TrainerParams, []string{"numbers.weight", "numbers.bias"}) {
		t.Errorf("%v stay", c.TrainerParams)
	}
	again, err := Find(specOf(t, "wide-deep"), model.Options{Rows: 50}, nil)
	must(t, err)
	other, err := Find(specOf(t, "deepfm"), model.Options{}, nil)
	must(t, err)
	if c.Hash != again.Hash {
		t.Error("the rows of a table change the hash of the part")
	}
	if c.Hash == other.Hash {
		t.Error("wide-deep and deepfm are given other tensors, and have one hash")
	}
}

// toy is a model of one's own with a table of rows of 4 values and what build makes of them.
func toy(build func(ps *nn.Params) func(t *nn.Tape, rows *nn.Tensor, b model.Batch) *nn.Tensor) model.Spec {
	return model.Spec{Name: "toy", Input: []int{3}, IDs: 1, Classes: 2, Build: func(ps *nn.Params, o model.Options) model.Model {
		tab := ps.NewTable("rows", nn.UniformRows(0.1), 10, 4)
		rest := build(ps)
		return model.Model{Loss: model.CrossEntropy, Forward: func(t *nn.Tape, b model.Batch) model.Outputs {
			return model.Outputs{rest(t, t.EmbeddingTable(b.IDs, b.N, tab, nil), b)}
		}}
	}}
}

// Cuts that make no sense are refused with the reason.
func TestNoSense(t *testing.T) {
	type forward = func(t *nn.Tape, rows *nn.Tensor, b model.Batch) *nn.Tensor
	dense := func(ps *nn.Params) nn.Stage {
		l := ps.Dense("out", 4, 2)
		return func(t *nn.Tape, x []*nn.Tensor) *nn.Tensor { return t.Dense(x[0], l, nn.Identity) }
	}
	for want, build := range map[string]func(ps *nn.Params) forward{
		"nothing in its code is marked": func(ps *nn.Params) forward {
			p := dense(ps)
			return func(t *nn.Tape, rows *nn.Tensor, _ model.Batch) *nn.Tensor { return p(t, []*nn.Tensor{rows}) }
		},
		"2 parts are marked": func(ps *nn.Params) forward {
			p := dense(ps)
			return func(t *nn.Tape, rows *nn.Tensor, _ model.Batch) *nn.Tensor {
				t.OnDevice(DeviceName, p, rows)
				return t.OnDevice(DeviceName, p, rows)
			}
		},
		"not the model's one output": func(ps *nn.Params) forward {
			p := dense(ps)
			return func(t *nn.Tape, rows *nn.Tensor, _ model.Batch) *nn.Tensor {
				return t.Scale(t.OnDevice(DeviceName, p, rows), 2)
			}
		},
		"reads table own: its rows would cross by themselves": func(ps *nn.Params) forward {
			tab := ps.NewTable("own", nn.UniformRows(0.1), 5, 2)
			return func(t *nn.Tape, rows *nn.Tensor, b model.Batch) *nn.Tensor {
				return t.OnDevice(DeviceName, func(t *nn.Tape, _ []*nn.Tensor) *nn.Tensor { return t.EmbeddingTable(b.IDs, b.N, tab, nil) }, rows)
			}
		},
		"drops values": func(ps *nn.Params) forward {
			p := dense(ps)
			return func(t *nn.Tape, rows *nn.Tensor, _ model.Batch) *nn.Tensor {
				return t.OnDevice(DeviceName, func(t *nn.Tape, x []*nn.Tensor) *nn.Tensor { return t.Dropout(p(t, x), 0.5) }, rows)
			}
		},
		"that the part is not given": func(ps *nn.Params) forward {
			p := dense(ps)
			return func(t *nn.Tape, rows *nn.Tensor, _ model.Batch) *nn.Tensor {
				y := t.Scale(rows, 2)
				return t.OnDevice(DeviceName, func(t *nn.Tape, x []*nn.Tensor) *nn.Tensor { return p(t, []*nn.Tensor{t.Add(x[0], y)}) }, rows)
			}
		},
		"no parameters to train": func(*nn.Params) forward {
			return func(t *nn.Tape, rows *nn.Tensor, _ model.Batch) *nn.Tensor {
				return t.OnDevice(DeviceName, func(t *nn.Tape, x []*nn.Tensor) *nn.Tensor { return t.Slice(x[0], 1, 0, 2) }, rows)
			}
		},
		"no gradient would come back": func(ps *nn.Params) forward {
			l := ps.Dense("out", 3, 2)
			part := func(t *nn.Tape, x []*nn.Tensor) *nn.Tensor { return t.Dense(x[0], l, nn.Identity) }
			return func(t *nn.Tape, rows *nn.Tensor, b model.Batch) *nn.Tensor {
				return t.OnDevice(DeviceName, part, b.Values)
			}
		},
		"is used both in the part and before it": func(ps *nn.Params) forward {
			l, p := ps.Dense("square", 4, 4), dense(ps)
			return func(t *nn.Tape, rows *nn.Tensor, _ model.Batch) *nn.Tensor {
				return t.OnDevice(DeviceName, func(t *nn.Tape, x []*nn.Tensor) *nn.Tensor {
					return p(t, []*nn.Tensor{t.Dense(x[0], l, nn.ReLU)})
				}, t.Dense(rows, l, nn.ReLU))
			}
		},
	} {
		_, err := Find(toy(build), model.Options{}, nil)
		if err == nil || !strings.Contains(err.Error(), "model toy cannot be split: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A device rejects a gradient that is not finite by name, and moves neither parameters nor the
// optimizer's state.
func TestUpdateRejectsWhatIsNotFinite(t *testing.T) {
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		s := specOf(t, "wide-deep")
		c, err := Find(s, model.Options{Rows: testRows}, nil)
		must(t, err)
		d := newDevice(t, s, c, &optim.SGD{LR: testRate, Momentum: 0.9})
		update := func(last float32) error {
			for i := range d.Gradients() {
				d.Gradients()[i] = 1
			}
			d.Gradients()[len(d.Gradients())-1] = last
			return d.Update(testRate, 1)
		}
		must(t, update(1))
		var before [][]float32
		for _, x := range d.State() {
			before = append(before, slices.Clone(x))
		}
		if err := update(float32(v)); err == nil || !strings.Contains(err.Error(), "the gradient of the heter-trainers' part is not finite") {
			t.Errorf("%v: %v", v, err)
		}
		if !slices.EqualFunc(d.State(), before, slices.Equal[[]float32]) {
			t.Errorf("%v: the device has moved", v)
		}
	}
}
