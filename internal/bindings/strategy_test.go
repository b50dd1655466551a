package bindings_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/internal/bindings"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/optim"
)

var names, lengths = []string{"a", "b", "c"}, []int{300, 50, 1000}

// average exchanges each bucket of gradients that depend on rank, parameter and step, and returns
// each parameter's input and result.
func average(s *bindings.Strategy, rank, step int, buckets [][]int) (own, got [][]float32, err error) {
	own, got = make([][]float32, len(names)), make([][]float32, len(names))
	for b, params := range buckets {
		var grads []float32
		for _, p := range params {
			own[p] = make([]float32, lengths[p])
			for i := range own[p] {
				own[p][i] = float32((i*7+p*5+rank*3+step)%23-11) / 8
			}
			grads = append(grads, own[p]...)
		}
		finish, err := s.Start(b, grads)
		if err == nil {
			err = finish()
		}
		if err != nil {
			return nil, nil, err
		}
		for _, p := range params {
			got[p], grads = slices.Clone(grads[:lengths[p]]), grads[lengths[p]:]
		}
	}
	return own, got, nil
}

// Sent and kept values sum up to the gradients, through a change of buckets, in every strategy.
func TestStrategiesLoseNothing(t *testing.T) {
	for name, tolerance := range map[string]float64{"dlgs": 1e-5, "dgc": 1e-5, "lags": 1e-5, "sparseTopK": 1e-5, "int8": 1e-4, "fp32": 1e-5, "bf16": 0.1, "fp16": 1e-2} {
		err := ringo.Local(t.Context(), 2, ringo.Config{}, func(job *ringo.Job) error {
			g := job.Group()
			s, err := bindings.NewStrategy(g, name, 0, names, lengths)
			if err != nil {
				return err
			}
			all := make([][]float64, len(names))
			for step, buckets := range [][][]int{{{0, 1, 2}}, {{0, 1, 2}}, {{2}, {1, 0}}, {{2}, {1, 0}}} {
				if step == 2 {
					if err := s.Arrange([]int{2, 1, 0}, []int{1, 3}); err != nil {
						return err
					}
				}
				own, got, err := average(s, job.Rank(), step, buckets)
				if err != nil {
					return err
				}
				for p := range names {
					if all[p] == nil {
						all[p] = make([]float64, lengths[p])
					}
					for i := range own[p] {
						all[p][i] += float64(own[p][i]) - float64(got[p][i])
					}
				}
			}
			for p := range names {
				kept, err := s.Residual(p)
				if err != nil {
					return err
				}
				left := make([]float64, lengths[p])
				for i := range left {
					left[i] = all[p][i]
					if kept != nil {
						left[i] -= float64(kept[i])
					}
				}
				if err := collective.AllReduce(g, left, collective.Sum); err != nil {
					return err
				}
				for i, v := range left {
					if math.Abs(v) > tolerance {
						return fmt.Errorf("%s: %g of value %d of %s is lost", name, v, i, names[p])
					}
				}
			}
			return s.Close()
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// Residuals equal those of `ringo train` bit for bit, step after step, from exact to estimated
// selections.
func TestStrategiesKeepWhatTrainingKeeps(t *testing.T) {
	for _, name := range []string{"dlgs", "dgc", "lags", "sparseTopK", "int8"} {
		err := ringo.Local(t.Context(), 2, ringo.Config{}, func(job *ringo.Job) error {
			return keepAlike(job, name)
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// keepAlike trains with package distopt, and exchanges the same gradients in the same buckets by a
// Strategy.
func keepAlike(job *ringo.Job, name string) error {
	layers, places := []bucket.Param{}, []string{"w1", "b1", "w2", "b2"}
	sizes, end := []int{4800, 16, 20000, 32}, 0
	for i, n := range sizes {
		layers = append(layers, bucket.Param{Name: places[i], Offset: end, Len: n})
		end += n
	}
	g, params, grads := job.Group(), make([]float32, end), make([]float32, end)
	cfg := distopt.Config{Strategy: distopt.Strategy(name), BucketBytes: 24000}
	if cfg.Strategy == distopt.LAGS {
		cfg.BucketBytes = 0 // a bucket for each layer, always
	}
	opt, err := distopt.New(g, &optim.SGD{LR: 0.1}, layers, params, grads, nil, cfg)
	if err != nil {
		return err
	}
	defer func() { _ = opt.Close() }()
	s, err := bindings.NewStrategy(g, name, 0, places, sizes)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	var ends []int
	for _, last := range opt.Plan() {
		ends = append(ends, last.Last+1)
	}
	if err := s.Arrange([]int{0, 1, 2, 3}, ends); err != nil {
		return err
	}
	draw := rand.New(rand.NewPCG(7, uint64(job.Rank())))
	for step := range 12 { // some with exact selections by DLGS
		for i := range grads {
			grads[i] = float32(draw.NormFloat64())
		}
		own := slices.Clone(grads)
		for l := range layers {
			opt.GradReady(l)
		}
		if err := opt.Step(); err != nil {
			return err
		}
		for b, k := range opt.Plan() {
			finish, err := s.Start(b, own[k.Lo:k.Hi])
			if err == nil {
				err = finish()
			}
			if err != nil {
				return err
			}
		}
		if err := sameKept(opt, s, places); err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
	}
	return nil
}

func sameKept(opt *distopt.Optimizer, s *bindings.Strategy, names []string) error {
	found := 0
	for _, state := range opt.State() {
		p := slices.Index(names, state.Name[strings.LastIndex(state.Name, "/")+1:])
		if p < 0 || !strings.Contains(state.Name, "residual") {
			continue
		}
		found++
		kept, err := s.Residual(p)
		if err != nil {
			return err
		}
		if !slices.EqualFunc(kept, state.Data, func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }) {
			return fmt.Errorf("%s differs", state.Name)
		}
	}
	if found != len(names) {
		return fmt.Errorf("training keeps something of %d parameters: %v", found, opt.State())
	}
	return nil
}

func TestStrategiesRefuse(t *testing.T) {
	alone(t, func(g *collective.Group) {
		s, err := bindings.NewStrategy(g, "dlgs", 0.1, names, lengths)
		if err != nil {
			t.Fatal(err)
		}
		open := func(name string, density float64, names []string, lengths []int) error {
			_, err := bindings.NewStrategy(g, name, density, names, lengths)
			return err
		}
		start := func(bucket, n int) error {
			_, err := s.Start(bucket, make([]float32, n))
			return err
		}
		_, residual := s.Residual(3)
		for text, err := range map[string]error{
			"nonsense":           open("nonsense", 0, names, lengths),
			"no effect":          open("fp32", 0.1, names, lengths),
			"whole models":       open("topk", 0, names, lengths),
			"1 lengths":          open("dlgs", 0, names, lengths[:1]),
			"has 0 values":       open("dlgs", 0, names[:1], []int{0}),
			"bucket 1 is none":   start(1, 10),
			"10 gradients":       start(0, 10),
			"parameter 3 is":     residual,
			"there twice":        s.Arrange([]int{0, 0, 1}, []int{3}),
			"2 of 3":             s.Arrange([]int{0, 1}, []int{2}),
			"end at 2":           s.Arrange([]int{0, 1, 2}, []int{2}),
			"the one before at ": s.Arrange([]int{0, 1, 2}, []int{2, 2, 3}),
		} {
			if misuse := (*bindings.Misuse)(nil); !errors.As(err, &misuse) || !strings.Contains(err.Error(), text) {
				t.Errorf("%q: %v", text, err)
			}
		}
	})
}

// During a bucket's exchange the bucket's restart, a new arrangement and residuals are refused;
// another bucket may run, and afterwards all works as before.
func TestStrategiesRefuseWhatIsUnderWay(t *testing.T) {
	alone(t, func(g *collective.Group) {
		s, err := bindings.NewStrategy(g, "dlgs", 0.1, names, lengths)
		if err == nil {
			err = s.Arrange([]int{0, 1, 2}, []int{2, 3})
		}
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for range 2 {
			finish, err := s.Start(0, make([]float32, 350))
			if err != nil {
				t.Fatal(err)
			}
			_, again := s.Start(0, make([]float32, 350))
			_, kept := s.Residual(2)
			for what, err := range map[string]error{"Start": again, "Residual": kept, "Arrange": s.Arrange([]int{0, 1, 2}, []int{3})} {
				if misuse := (*bindings.Misuse)(nil); !errors.As(err, &misuse) || !strings.Contains(err.Error(), "bucket 0 is being exchanged already") {
					t.Errorf("%s: %v", what, err)
				}
			}
			other, err := s.Start(1, make([]float32, 1000))
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(finish(), other()); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Residual(2); err != nil {
			t.Error(err)
		}
	})
}
