package distopt

import (
	"fmt"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/optim"
)

// padded is a model whose parameters do not fill their places: of one element, of
// many, one above the size from which selections are estimated.
func padded() []bucket.Param {
	var layers []bucket.Param
	at := 0
	for i, n := range []int{1, 10, 300, 4500, 17, 64, 1} {
		room := (n + 15) / 16 * 16
		layers = append(layers, bucket.Param{Name: fmt.Sprintf("p%d", i), Offset: at, Len: room, Pad: room - n})
		at += room
	}
	return layers
}

// clearPads makes padding zero, as a model's is.
func clearPads(layers []bucket.Param, x []float32) {
	for _, l := range layers {
		clear(x[l.Offset+l.Len-l.Pad : l.Offset+l.Len])
	}
}

// rig is one rank's optimizer over a reducer that keeps what it was given.
type rig struct {
	o             *Optimizer
	r             *naive
	layers        []bucket.Param
	params, grads []float32
	rank, step    int
}

func newRig(g *collective.Group, layers []bucket.Param, cfg Config) (*rig, error) {
	n := total(layers)
	w := &rig{r: newNaive(g), layers: layers, params: make([]float32, n), grads: make([]float32, n), rank: g.Rank()}
	cfg.Reducer = w.r
	sgd := optim.SGD{LR: 0.1, Momentum: 0.9}
	var err error
	w.o, err = New(g, &sgd, layers, w.params, w.grads, nil, cfg)
	return w, err
}

// fill makes the gradient of the rig's step.
func (w *rig) fill() {
	gradient(w.grads, w.step, 0, w.rank)
	clearPads(w.layers, w.grads)
	w.step++
}

func (w *rig) ready() {
	for l := range w.layers {
		w.o.GradReady(l)
	}
}

func (w *rig) train(steps int) error {
	for range steps {
		w.fill()
		w.ready()
		if err := w.o.Step(); err != nil {
			return err
		}
	}
	return nil
}

// residual is what the codec keeps, zeros where there is none.
func (w *rig) residual() []float32 {
	out := make([]float32, len(w.grads))
	if c := w.o.codec.local; c != nil {
		copy(out, c.Residual(0, len(out)))
	}
	return out
}

// gave is what this rank contributed to the last step.
func (w *rig) gave() []float32 {
	out := make([]float32, len(w.grads))
	for _, b := range w.o.Plan() {
		copy(out[b.Lo:], w.r.gave[b.Lo])
	}
	return out
}

// lost is what the last step's sums lost that is left with this rank.
func (w *rig) lost() []float32 {
	out := make([]float32, len(w.grads))
	for lo, l := range w.r.lost {
		copy(out[lo+l.At:], l.Values)
	}
	clearPads(w.layers, out)
	return out
}

func selecting() (out []Info) {
	for _, i := range Infos() {
		if i.Selects() {
			out = append(out, i)
		}
	}
	return out
}
