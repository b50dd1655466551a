package models

import (
	"hash/crc32"
	"math"
	"testing"

	"github.com/ringo-ml/ringo/internal/golden"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
)

// draws are the numbers that bench/golden/make_golden.py draws by a name: SplitMix64.
type draws uint64

func drawsOf(name string) *draws {
	d := draws(crc32.ChecksumIEEE([]byte(name)))
	return &d
}

func (d *draws) word() uint64 {
	*d += 0x9e3779b97f4a7c15
	z := uint64(*d)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// fill draws first weights, whose rows have so many values.
func (d *draws) fill(x []float32, width int) {
	scale := float32(math.Pow(2, -math.RoundToEven(math.Log2(float64(width))/2)))
	for i := range x {
		x[i] = (float32(d.word()>>40)/(1<<23) - 1) * scale
	}
}

const goldenSamples, goldenSlots, goldenNumbers = 16, 3, 3

// goldenBatch is the one that make_golden.py has in a step.
func goldenBatch(d *draws) model.Batch {
	b := model.Batch{N: goldenSamples, Values: nn.NewTensor(goldenSamples, goldenNumbers), Bags: nn.Bags{Offsets: []int32{0}, N: goldenSamples}}
	for i := range b.Values.Data {
		b.Values.Data[i] = float32(d.word()>>40) / (1 << 24)
	}
	for range goldenSamples {
		b.Labels = append(b.Labels, int32(d.word()%2))
	}
	var lengths []uint64
	for range goldenSlots * goldenSamples {
		lengths = append(lengths, d.word()%4)
	}
	for i, n := range lengths {
		for range n {
			b.Bags.Keys = append(b.Bags.Keys, d.word()%40+uint64(1000*(i/goldenSamples)))
		}
		b.Bags.Offsets = append(b.Bags.Offsets, int32(len(b.Bags.Keys)))
	}
	return b
}

// In 20 steps of SGD from the same weights the losses are PyTorch's, with empty bags and sequences.
func TestClickModelsAreAsPyTorchs(t *testing.T) {
	found := 0
	golden.Each(t, "testdata/golden", func(t *testing.T, f *golden.File) {
		found++
		spec, err := Lookup(f.Op)
		if err != nil {
			t.Fatal(err)
		}
		ps := nn.NewParams(1)
		slots := []model.Slot{{Name: "user"}, {Name: "item"}, {Name: "history", Sequence: f.Op == "din"}}
		m := spec.Build(ps, model.Options{Input: []int{goldenNumbers}, Slots: slots, Rows: 50})
		if err := m.Arrange(ps, goldenBatch(drawsOf("any"))); err != nil {
			t.Fatal(err)
		}
		for _, p := range ps.List() {
			drawsOf(f.Op+"/"+p.Name).fill(p.Data, p.Shape[len(p.Shape)-1])
		}
		sgd := &optim.SGD{LR: 0.05}
		dims := [][2]int{}
		for _, tab := range ps.Tables() {
			drawsOf(f.Op+"/"+tab.Name).fill(tab.Data, tab.Dim)
			dims = append(dims, [2]int{tab.Rows, tab.Dim})
		}
		if err := sgd.Bind(len(ps.Values())); err != nil {
			t.Fatal(err)
		}
		if err := sgd.BindTables(dims); err != nil {
			t.Fatal(err)
		}
		tape := nn.NewTape(nn.TapeConfig{})
		for step, want := range f.Floats("losses") {
			tape.Reset()
			loss := m.Pass(tape, goldenBatch(drawsOf(f.Op+"/step"+string(rune('0'+step/10))+string(rune('0'+step%10))))).Loss.Mean
			if got := loss.Data[0]; !(math.Abs(float64(got-want)) <= 1e-4) {
				t.Fatalf("step %d: the loss is %v, PyTorch's %v", step, got, want)
			}
			tape.Backward(loss, func(int) {})
			sgd.BeginStep()
			sgd.Update(0, ps.Values(), ps.Grads(), 1)
			for i, tab := range ps.Tables() {
				ids, grads := tab.Grad()
				sgd.UpdateRows(i, tab.Data, ids, grads, 1)
			}
		}
	})
	if found != 5 {
		t.Errorf("%d files, want 5", found)
	}
}
