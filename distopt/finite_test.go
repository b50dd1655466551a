package distopt

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/transport"
)

// notFiniteStep trains two steps, the second with a value of rank 0 that is not finite, in the place of the arena or, below 0, in the table.
func notFiniteStep(m transport.Mesh, cfg Config, at int, v float32) (params []float32, data []float32, err error) {
	return params, data, onMesh(m, func(g *collective.Group) error {
		defer g.Close()
		layers := toy()
		params = make([]float32, total(layers))
		grads := make([]float32, total(layers))
		if w := transport.SharedMemoryOf(m); w != nil {
			params, grads = inArena(w, params), inArena(w, grads)
		}
		data = make([]float32, 18)
		o, err := New(g, &optim.SGD{LR: 0.1}, layers, params, grads, []Table{{Name: "rows", Rows: 9, Dim: 2, Data: data}}, cfg)
		if err != nil {
			return err
		}
		for step := 0; err == nil && step < 2; step++ {
			rows := []float32{1, 2}
			for i := range grads {
				grads[i] = 1
			}
			clearPads(layers, grads)
			if bad := step == 1 && g.Rank() == 0; bad && at >= 0 {
				grads[at] = v
			} else if bad {
				rows[1] = v
			}
			for l := range layers {
				o.GradReady(l)
			}
			o.RowsReady(0, []int32{int32(g.Rank())}, rows)
			err = o.Step()
		}
		return errors.Join(err, o.Close())
	})
}

// A gradient that is not finite ends the step on all ranks with an error that names layer or table, and no parameter of the bucket or
// table that has it is updated, whoever updates.
func TestGradientThatIsNotFinite(t *testing.T) {
	layers := toy()
	for _, c := range []struct {
		cfg  Config
		at   int
		v    float64
		want string
	}{
		{Config{Plan: PlanPerLayer}, layers[1].Offset, math.NaN(), "the gradient of layer layer1 is NaN"},
		{Config{Plan: PlanPerLayer, Update: UpdateWhole}, layers[2].Offset + 1, math.Inf(-1), "the gradient of layer layer2 is -Inf"},
		{Config{Plan: PlanOne}, layers[0].Offset, math.Inf(1), "the gradient of layer layer0 is +Inf"},
		{Config{ClipNorm: 1}, layers[1].Offset, math.NaN(), "the norm of the gradient is NaN, first in layer layer1"},
		{Config{}, -1, math.NaN(), "the gradient of table rows is not finite"},
	} {
		for size := 1; size <= 3; size++ {
			for kind, meshes := range map[string][]transport.Mesh{"apart": mem.New(size), "shared": mem.NewShared(size, 4<<20)} {
				if kind == "apart" && c.cfg.Update == "" && size > 1 {
					c.cfg.Update = UpdateWhole
				}
				var all sync.WaitGroup
				for rank, m := range meshes {
					all.Go(func() {
						params, data, err := notFiniteStep(m, c.cfg, c.at, float32(c.v))
						if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "step 1") {
							t.Errorf("%v, rank %d of %d, %s: %v, want %q", c.cfg, rank, size, kind, err, c.want)
						}
						for i, v := range append(params, data...) {
							if v-v != 0 {
								t.Fatal(fmt.Errorf("%v, rank %d of %d, %s: parameter %d is %v", c.cfg, rank, size, kind, i, v))
							}
						}
					})
				}
				all.Wait()
			}
		}
	}
}

// A gradient that is not finite ends the step on all ranks with an error that names the layer, and reaches no parameter, with every
// strategy.
func TestEachStrategyNamesTheLayer(t *testing.T) {
	for _, cfg := range skipConfigs() {
		for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
			if cfg.ClipValue > 0 && !math.IsNaN(v) {
				continue // it is clipped
			}
			for size := 1; size <= 3; size++ {
				errs := ranks(t, size, func(g *collective.Group) error { return staysFinite(t, g, cfg, v) })
				named := 0
				for _, err := range errs {
					if err != nil && strings.Contains(err.Error(), "layer1") {
						named++
					}
				}
				if named == 0 || slices.Contains(errs, nil) {
					t.Errorf("%+v, %v on %d ranks: %v, want layer1 by name", cfg, v, size, errs)
				}
			}
		}
	}
}

// staysFinite trains two steps, the second with a value of rank 0, and returns its error.
func staysFinite(t *testing.T, g *collective.Group, cfg Config, v float64) error {
	layers := toy()
	params, grads := make([]float32, total(layers)), make([]float32, total(layers))
	o, err := New(g, &optim.SGD{LR: 0.1, Momentum: 0.9}, layers, params, grads, nil, cfg)
	for step := 0; err == nil && step < 2; step++ {
		gradient(grads, step, 0, g.Rank())
		if step == 1 && g.Rank() == 0 {
			grads[layers[1].Offset+2] = float32(v)
		}
		for l := range layers {
			o.GradReady(l)
		}
		err = o.Step()
	}
	if !finite(params) {
		t.Errorf("%+v, %v on rank %d of %d: parameters are not finite", cfg, v, g.Rank(), g.Size())
	}
	return err
}
