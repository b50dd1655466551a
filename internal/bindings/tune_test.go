package bindings_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/internal/bindings"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/tune"
)

// backwards is backward's order of the tests' parameters, a layer each.
var backwards = bindings.Tuning{Order: []int{2, 1, 0}, Ends: []int{1, 2, 3}}

type told struct {
	Strategy, Plan, Why, Choices string
	Buckets                      []int
	Chosen, Measuring            bool
	Steps                        int64
	Predicted                    []struct {
		Strategy string
		Step     float64 `json:"step_s"`
	}
	Measured *struct{ Steps int }
	Profile  json.RawMessage
}

func reported(s *bindings.Strategy) (r told, err error) {
	data, err := s.Report()
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	return r, err
}

// tunedStep runs a step on gradients in the order of backwards, in place.
func tunedStep(s *bindings.Strategy, grads []float32) (changed bool, err error) {
	ends, err := s.Buckets()
	if err != nil {
		return false, err
	}
	lo, layer := 0, 0
	for b, end := range ends {
		hi := lo
		for ; layer < end; layer++ {
			if err := s.Ready(layer); err != nil {
				return false, err
			}
			hi += lengths[backwards.Order[layer]]
		}
		finish, err := s.Start(b, grads[lo:hi])
		if err == nil {
			err = finish()
		}
		if err != nil {
			return false, fmt.Errorf("bucket %d: %w", b, err)
		}
		lo = hi
	}
	return s.Step()
}

func drawn(r *rand.Rand) []float32 {
	grads := make([]float32, 1350)
	for i := range grads {
		grads[i] = float32(r.NormFloat64())
	}
	return grads
}

func sameBits(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) })
}

// The chosen strategy computes the same bits as the named strategy with equal buckets.
func TestTunedStrategiesAreTheNamedOnes(t *testing.T) {
	for _, name := range []string{"dlgs", "fp16", "fp32"} {
		err := ringo.Local(t.Context(), 2, ringo.Config{}, func(job *ringo.Job) error {
			auto, err := bindings.NewStrategy(job.Group(), "auto", 0, names, lengths)
			if err != nil {
				return err
			}
			tuning := backwards
			tuning.Choices = "0:" + name + "/exact=2,1"
			if err := auto.Tune(tuning); err != nil {
				return err
			}
			named, err := bindings.NewStrategy(job.Group(), name, 0, names, lengths)
			if err == nil {
				err = named.Arrange(backwards.Order, []int{2, 3})
			}
			if err != nil {
				return err
			}
			r := rand.New(rand.NewPCG(3, uint64(job.Rank())))
			for step := range 12 {
				grads := drawn(r)
				want := slices.Clone(grads)
				if changed, err := tunedStep(auto, grads); err != nil || changed {
					return fmt.Errorf("step %d: changed %v, %w", step, changed, err)
				}
				for b, part := range [][]float32{want[:1050], want[1050:]} {
					finish, err := named.Start(b, part)
					if err == nil {
						err = finish()
					}
					if err != nil {
						return err
					}
				}
				kept, err := auto.Residual(1)
				theirs, err2 := named.Residual(1)
				if err := errors.Join(err, err2); err != nil {
					return err
				}
				if !sameBits(grads, want) || !sameBits(kept, theirs) || (kept != nil) != (name == "dlgs") {
					return fmt.Errorf("step %d differs", step)
				}
			}
			if got, err := reported(auto); err != nil || got.Strategy != name || got.Choices != tuning.Choices || got.Steps != 12 || !got.Chosen {
				return fmt.Errorf("%+v, %w", got, err)
			}
			return errors.Join(auto.Close(), named.Close())
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Changes of strategy and buckets lose nothing: the next strategy sends the last one's residual.
func TestTunedStrategiesLoseNothing(t *testing.T) {
	err := ringo.Local(t.Context(), 2, ringo.Config{}, func(job *ringo.Job) error {
		s, err := bindings.NewStrategy(job.Group(), "auto", 0.05, names, lengths)
		if err != nil {
			return err
		}
		tuning := backwards
		tuning.Choices = "0:dlgs/one=3; 2:exact=1,2; 4:fp32/exact=2,1; 6:dlgs/one=3; 7:bf16"
		if err := s.Tune(tuning); err != nil {
			return err
		}
		r, left := rand.New(rand.NewPCG(5, uint64(job.Rank()))), make([]float64, 1350)
		changes := 0
		for range 9 {
			grads := drawn(r)
			for i, g := range grads {
				left[i] += float64(g)
			}
			changed, err := tunedStep(s, grads)
			if err != nil {
				return err
			}
			if changed {
				changes++
			}
			for i, g := range grads {
				left[i] -= float64(g)
			}
		}
		if kept, err := s.Residual(0); err != nil || kept != nil || changes != 4 {
			return fmt.Errorf("%d changes, %v is kept, %w", changes, kept, err)
		}
		if err := collective.AllReduce(job.Group(), left, collective.Sum); err != nil {
			return err
		}
		for i, v := range left {
			if math.Abs(v) > 0.1 { // bf16
				return fmt.Errorf("%g of value %d is lost", v, i)
			}
		}
		return s.Close()
	})
	if err != nil {
		t.Error(err)
	}
}

// profiled is a profile of the tests' layers on two ranks of one host, with links of perByte
// seconds per byte.
func profiled(perByte float64) bucket.Profile {
	f := bucket.Profile{Model: "test", Ranks: 2, Forward: 1e-3, Update: 1e-4}
	for _, p := range backwards.Order {
		f.Layers = append(f.Layers, bucket.LayerProfile{Name: names[p], Values: lengths[p], Backward: 2e-4})
	}
	for _, name := range []string{"fp16", "bf16", "dlgs"} {
		c := bucket.CodecProfile{Name: name, Exact: bucket.Curve{PerValue: 1e-9}, Reuse: bucket.Curve{PerValue: 1e-9}}
		if name == "dlgs" {
			c.Density = distopt.DefaultSpars
		}
		f.Codecs = append(f.Codecs, c)
	}
	f.Links = []bucket.LinkProfile{
		{Algorithm: "ring", Payload: bucket.DensePayload, Ranks: 2, Hosts: 1, Fixed: 1e-5, PerByte: perByte},
		{Algorithm: "allgather", Payload: bucket.SparsePayload, Unit: 8, Ranks: 2, Hosts: 1, Fixed: 1e-5, PerByte: perByte},
	}
	return f
}

// All ranks choose as package tune does from the same profile, for links of any speed.
func TestTunedStrategiesChooseAsTrainingDoes(t *testing.T) {
	exact, err := bucket.LookupPlanner("exact")
	if err != nil {
		t.Fatal(err)
	}
	for strategy, perByte := range map[string]float64{"fp32": 1e-10, "dlgs": 1e-6} {
		f := profiled(perByte)
		data, err := tune.Encode(tune.Profile{Planner: &f})
		if err != nil {
			t.Fatal(err)
		}
		var all []tune.Prediction
		for _, name := range []distopt.Strategy{distopt.FP32, distopt.FP16, distopt.BF16, distopt.DLGS} {
			c := tune.Candidate{Name: string(name), Every: 1, Planner: exact}
			if c.Chain, err = (distopt.Config{Strategy: name}).NewChain(); name == distopt.DLGS {
				c.Density, c.Every = distopt.DefaultSpars, compress.DefaultEvery
			}
			if err != nil {
				t.Fatal(err)
			}
			p, err := tune.Predict(f, c, 2, 1, 0)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, p)
		}
		want := all[tune.Choose(all)]
		err = ringo.Local(t.Context(), 2, ringo.Config{}, func(job *ringo.Job) error {
			s, err := bindings.NewStrategy(job.Group(), "auto", 0, names, lengths)
			if err != nil {
				return err
			}
			tuning := backwards
			tuning.Profile = data
			if err := s.Tune(tuning); err != nil {
				return err
			}
			got, err := reported(s)
			if err != nil {
				return err
			}
			for i, p := range got.Predicted {
				if p.Strategy != all[i].Strategy || p.Step != all[i].Step {
					return fmt.Errorf("predicted %+v, want %+v", p, all[i])
				}
			}
			ends := want.Plan.Ends()
			for i := range ends {
				ends[i]++
			}
			if got.Strategy != want.Strategy || !slices.Equal(got.Buckets, ends) || len(got.Predicted) != len(all) {
				return fmt.Errorf("%+v, want %s in %v", got, want.Strategy, ends)
			}
			return s.Close()
		})
		if err != nil || want.Strategy != strategy {
			t.Errorf("%s: want %s: %v", strategy, want.Strategy, err)
		}
	}
}

// The first steps are measured, the plan is package tune's from the measurements, and later steps
// are compared.
func TestTunedStrategiesMeasure(t *testing.T) {
	err := ringo.Local(t.Context(), 2, ringo.Config{}, func(job *ringo.Job) error {
		s, err := bindings.NewStrategy(job.Group(), "fp32", 0, names, lengths)
		if err == nil {
			err = s.Tune(backwards)
		}
		if err != nil {
			return err
		}
		r, chosen := rand.New(rand.NewPCG(9, uint64(job.Rank()))), told{}
		for step := range 30 {
			if _, err := tunedStep(s, drawn(r)); err != nil {
				return fmt.Errorf("step %d: %w", step, err)
			}
			if step == 11 {
				if chosen, err = reported(s); err != nil || !chosen.Chosen {
					return fmt.Errorf("%+v, %w", chosen, err)
				}
			}
		}
		p, err := tune.Decode(chosen.Profile)
		if err != nil {
			return err
		}
		exact, err := bucket.LookupPlanner("exact")
		if err != nil {
			return err
		}
		want, err := tune.Predict(*p.Planner, tune.Candidate{Name: "fp32", Every: 1, Planner: exact}, 2, job.Group().Hosts(), 0)
		if err != nil {
			return err
		}
		if len(chosen.Buckets) != len(want.Plan) || chosen.Predicted[0].Step != want.Step {
			return fmt.Errorf("%+v, want %+v", chosen, want)
		}
		if got, err := reported(s); err != nil || got.Measured == nil || got.Measuring || got.Steps != 30 || got.Choices != chosen.Choices {
			return fmt.Errorf("%+v, %w", got, err)
		}
		return s.Close()
	})
	if err != nil {
		t.Error(err)
	}
}

// Wrong arguments are refused, and ranks with different plans are reported.
func TestTuneRefuses(t *testing.T) {
	alone(t, func(g *collective.Group) {
		s, err := bindings.NewStrategy(g, "auto", 0, names, lengths)
		if err != nil {
			t.Fatal(err)
		}
		tune := func(change func(*bindings.Tuning)) error {
			x := backwards
			change(&x)
			return s.Tune(x)
		}
		_, early := s.Step()
		faults := map[string]error{
			"tune comes first":      early,
			`"nonsense" is not`:     tune(func(x *bindings.Tuning) { x.Plan = "nonsense" }),
			"want a number of step": tune(func(x *bindings.Tuning) { x.Choices = "x" }),
			"of 4 layers":           tune(func(x *bindings.Tuning) { x.Choices = "0:dlgs/one=4" }),
			"of whole models":       tune(func(x *bindings.Tuning) { x.Choices = "0:topk" }),
			"not a profile":         tune(func(x *bindings.Tuning) { x.Profile = []byte("x") }),
			"there twice":           tune(func(x *bindings.Tuning) { x.Order = []int{0, 0, 1} }),
			"-1 steps":              tune(func(x *bindings.Tuning) { x.Steps = -1 }),
		}
		if err := s.Tune(backwards); err != nil {
			t.Fatal(err)
		}
		faults["layer 3 is none of 3"] = s.Ready(3)
		for text, err := range faults {
			if misuse := (*bindings.Misuse)(nil); !errors.As(err, &misuse) || !strings.Contains(err.Error(), text) {
				t.Errorf("%q: %v", text, err)
			}
		}
	})
	const differs = "rank 1 of the group tunes something else than rank 0"
	err := ringo.Local(t.Context(), 2, ringo.Config{}, func(job *ringo.Job) error {
		s, err := bindings.NewStrategy(job.Group(), "auto", 0, names, lengths)
		if err != nil {
			return err
		}
		for _, c := range []struct{ choices, want string }{{"0:fp32/one=3", differs}, {"x", "want a number of step"}} { // rank 1's error is reported to rank 0, too
			tuning, want := backwards, differs
			if tuning.Choices = "0:dlgs/one=3"; job.Rank() == 1 {
				tuning.Choices, want = c.choices, c.want
			}
			if err := s.Tune(tuning); err == nil || !strings.Contains(err.Error(), want) {
				return fmt.Errorf("rank %d, choices %q on rank 1: %w", job.Rank(), c.choices, err)
			}
		}
		return s.Close()
	})
	if err != nil {
		t.Error(err)
	}
}
