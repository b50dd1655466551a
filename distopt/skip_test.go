package distopt

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/internal/watch/record"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/transport"
)

// flaw is the reason why a step of a skipRun cannot be applied.
type flaw string

const (
	flawLayer flaw = "the gradient of layer layer1 is NaN"
	flawRow   flaw = "the gradient of table table0 is not finite"
	flawLoss  flaw = "the loss is NaN"            // before backward
	flawMicro flaw = "the loss of a batch is NaN" // backward runs
	flawSum   flaw = "the gradient of layer layer2 is +Inf"
	flawCode  flaw = "fp16 has no room for"
)

// skipRun is a run of toy and embeddings.
type skipRun struct {
	cfg      Config
	rule     func() optim.RowOptimizer
	size     int
	shared   bool
	resumeAt int // the step before which the run is saved and restored; 0: never
	flaws    map[int]flaw
	// without leaves steps with a flaw out, instead of the flaw.
	without bool
}

// kept is what a rank has at the end.
type kept struct {
	data    [][]float32
	names   []string
	skipped []string
	setup   Setup
}

func (k *kept) add(name string, x []float32) {
	k.names, k.data = append(k.names, name), append(k.data, slices.Clone(x))
}

// skipRank is one rank of it.
type skipRank struct {
	skipRun
	g             *collective.Group
	o             *Optimizer
	opt           optim.RowOptimizer
	params, grads []float32
	tables        []Table
}

const skipSteps = 7

func (r skipRun) train() ([]kept, error) {
	out, errs := make([]kept, r.size), make([]error, r.size)
	meshes := mem.New(r.size)
	if r.shared {
		meshes = mem.NewShared(r.size, 4<<20)
	}
	var all sync.WaitGroup
	for rank, m := range meshes {
		all.Go(func() {
			errs[rank] = onMesh(m, func(g *collective.Group) (err error) {
				out[rank], err = r.rank(g, transport.SharedMemoryOf(m))
				return err
			})
		})
	}
	all.Wait()
	return out, errors.Join(errs...)
}

func (r skipRun) rank(g *collective.Group, w *transport.SharedMemory) (out kept, err error) {
	n := total(toy())
	k := skipRank{skipRun: r, g: g, opt: r.rule(), params: make([]float32, n), grads: make([]float32, n), tables: embeddings()}
	if w != nil {
		k.params, k.grads = inArena(w, k.params), inArena(w, k.grads)
	}
	gradient(k.params, 3000, 0, 0)
	if k.o, err = New(g, k.opt, toy(), k.params, k.grads, k.tables, r.cfg); err != nil {
		return out, err
	}
	for step := range skipSteps {
		if r.resumeAt > 0 && step == r.resumeAt {
			if err := k.resume(); err != nil {
				return out, err
			}
		}
		if r.without && r.flaws[step] != "" {
			continue
		}
		if err := k.step(step); err != nil {
			return out, fmt.Errorf("step %d: %w", step, err)
		}
		if why := k.o.Times().Skipped; why != nil {
			out.skipped = append(out.skipped, fmt.Sprintf("%d: %v", step, why))
		}
	}
	return out, k.end(&out)
}

// resume goes on with another optimizer, as a run that was saved and started again.
func (k *skipRank) resume() (err error) {
	setup, steps := k.o.Setup(), k.o.Steps()
	var states [][]float32
	for _, s := range k.o.State() {
		states = append(states, slices.Clone(s.Data))
	}
	if err = errors.Join(k.o.GatherState(0), k.o.Close()); err != nil {
		return err
	}
	if k.o, err = New(k.g, k.opt, toy(), k.params, k.grads, k.tables, k.cfg); err != nil {
		return err
	}
	if err = errors.Join(k.o.Restore(setup), k.o.SetSteps(steps)); err != nil {
		return err
	}
	for i, s := range k.o.State() {
		copy(s.Data, states[i])
	}
	return nil
}

func (k *skipRank) step(step int) error {
	rank, last, what := k.g.Rank(), k.g.Rank() == k.size-1, k.flaws[step]
	if last && (what == flawLoss || what == flawMicro) {
		k.o.Reject(errors.New(string(what)))
	}
	if !last || what != flawLoss {
		k.backward(step, rank, last, what)
	}
	return k.o.Step()
}

// backward gives the gradients of a step, with its flaw.
func (k *skipRank) backward(step, rank int, last bool, what flaw) {
	layers, one := toy(), make([]float32, len(k.grads))
	clear(k.grads)
	for micro := range max(1, k.cfg.Accumulation) {
		gradient(one, step, micro, rank)
		for i, g := range one {
			k.grads[i] += g
		}
	}
	switch at := layers[2].Offset + 3; {
	case what == flawLayer && rank == 0:
		k.grads[layers[1].Offset+7] = float32(math.NaN())
	case what == flawSum:
		k.grads[at] = math.MaxFloat32
	case what == flawCode:
		k.grads[at] = 1e7
	}
	for l := range layers {
		k.o.GradReady(l)
	}
	for i, tab := range k.tables {
		ids, rows := rowGradient(tab, i, step, rank)
		if what == flawRow && last && i == 0 {
			ids, rows = []int32{2}, []float32{1, float32(math.Inf(1)), 1}
		}
		k.o.RowsReady(i, ids, rows)
	}
}

func (k *skipRank) end(out *kept) error {
	if err := k.o.GatherState(0); err != nil {
		return err
	}
	out.add("parameters", k.params)
	for i, tab := range k.tables {
		out.add(tab.Name, tab.Data)
		for _, s := range k.opt.TableState(i) {
			out.add(tab.Name+"/"+s.Name, s.Data)
		}
	}
	if k.g.Rank() == 0 || !k.o.Sharded() {
		for _, s := range k.opt.State() {
			out.add("optimizer/"+s.Name, s.Data)
		}
	}
	for _, s := range k.o.State() {
		out.add("codec/"+s.Name, s.Data)
	}
	out.setup = k.o.Setup()
	for _, e := range k.g.Recorder().Snapshot().Operations {
		if e.Kind == record.Fault { // of a run that has skipped steps alone
			return errors.New("a fault is recorded, as of an exchange that has failed")
		}
	}
	return k.o.Close()
}

// same reports what differs of two ranks' ends.
func (k kept) same(o kept) error {
	if !slices.Equal(k.names, o.names) {
		return fmt.Errorf("%v, want %v", k.names, o.names)
	}
	for i, x := range k.data {
		if !bytes.Equal(bytesview.Bytes(x), bytesview.Bytes(o.data[i])) {
			return fmt.Errorf("%s differs", k.names[i])
		}
	}
	return nil
}

// flawsOf are flaws that a strategy meets: two in a row, the first step and the last among them.
func flawsOf(cfg Config, size int) map[int]flaw {
	f := map[int]flaw{0: flawLayer, 2: flawLoss, 3: flawRow, 6: flawMicro}
	switch {
	case cfg.Strategy == FP16 && cfg.ClipValue == 0 && size > 1:
		f[5] = flawCode
	case cfg.Strategy == FP32 && size > 1:
		f[5] = flawSum
	}
	return f
}

// skipConfigs are all strategies with what they keep from step to step.
func skipConfigs() (out []Config) {
	for _, i := range Infos() {
		c := Config{Strategy: i.Name}
		if i.Selects() {
			c.Spars = 0.2
		}
		switch i.Name {
		case FP32:
			out = append(out, Config{Strategy: FP32, Update: UpdateWhole, Plan: PlanPerLayer})
		case PartialUpdate:
			c.Partitions = 3
		case DLGS:
			c.Every, c.Momentum = 2, 0.9
		case FP16, Int8:
			out = append(out, Config{Strategy: i.Name, ClipValue: 1.5})
		case SparseThreshold:
			c.Spars, c.ClipValue = 0.8, 2
		}
		out = append(out, c)
	}
	return out
}

// checkSkip compares a run that skips the steps with a flaw with one that does not have them.
func checkSkip(t *testing.T, r skipRun) {
	t.Helper()
	r.flaws = flawsOf(r.cfg, r.size)
	without := r
	without.without = true
	r.cfg.NonFinite = nonFiniteSkip
	got, err := r.train()
	want, err2 := without.train()
	if err := errors.Join(err, err2); err != nil {
		t.Fatalf("%+v: %v", r.cfg, err)
	}
	for rank := range got {
		if err := got[rank].same(want[rank]); err != nil {
			t.Errorf("%+v on rank %d of %d, shared %v: %v", r.cfg, rank, r.size, r.shared, err)
		}
		if !slices.Equal(got[rank].skipped, got[0].skipped) || len(got[rank].skipped) != len(r.flaws) || int(got[rank].setup.Skipped) != len(r.flaws) {
			t.Errorf("%+v on rank %d of %d: skipped %q, rank 0 %q, want %v", r.cfg, rank, r.size, got[rank].skipped, got[0].skipped, r.flaws)
		}
		for _, text := range got[rank].skipped {
			var step int
			_, _ = fmt.Sscanf(text, "%d:", &step) // 0 else
			if !strings.Contains(text, string(r.flaws[step])) {
				t.Errorf("%+v: %q does not have %q", r.cfg, text, r.flaws[step])
			}
		}
	}
}

// A run that skips steps which are not finite on one rank ends with the bits of a run without these steps: parameters, rows, states of
// the optimizer, residuals, velocities and thresholds, with every strategy.
func TestSkippedStepsChangeNoBit(t *testing.T) {
	rules := map[string]func() optim.RowOptimizer{
		"momentum": func() optim.RowOptimizer { return &rowSGD{SGD: testSGD} },
		"adam":     func() optim.RowOptimizer { return &rowAdam{AdamW: *optim.NewAdam(0.01)} },
	}
	for _, cfg := range skipConfigs() {
		for name, rule := range rules {
			t.Run(fmt.Sprintf("%s/%s/%v", cfg.Strategy, name, cfg.ClipValue), func(t *testing.T) {
				for _, c := range []struct{ size, accumulation int }{{1, 3}, {2, 1}, {3, 1}, {3, 3}} {
					if c.size < 3 && (name == "adam" || testing.Short()) || testing.Short() && (name == "adam") != (c.accumulation == 1) {
						continue // time
					}
					r := skipRun{cfg: cfg, rule: rule, size: c.size, shared: c.accumulation == 1 || c.size == 2}
					r.cfg.ClipNorm, r.cfg.Accumulation = float64(c.accumulation-1), c.accumulation
					checkSkip(t, r)
				}
			})
		}
	}
}

// A run that is saved after skipped steps and goes on ends with the same bits: the partitions of partialUpdate follow the steps that
// were applied.
func TestSkippedStepsAreResumed(t *testing.T) {
	for _, cfg := range skipConfigs() {
		for _, at := range []int{1, 4} {
			checkSkip(t, skipRun{cfg: cfg, rule: func() optim.RowOptimizer { return &rowSGD{SGD: testSGD} }, size: 2, resumeAt: at})
		}
	}
}

// Without skip a rank that rejects a step ends it on all ranks with its reason.
func TestRejectedStepEndsAll(t *testing.T) {
	r := skipRun{rule: func() optim.RowOptimizer { return &rowSGD{SGD: testSGD} }, size: 3, flaws: map[int]flaw{1: flawLoss}}
	_, err := r.train()
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) || len(joined.Unwrap()) != 3 {
		t.Fatalf("%v, want an error of each rank", err)
	}
	for rank, err := range joined.Unwrap() {
		if !strings.Contains(err.Error(), string(flawLoss)) {
			t.Errorf("rank %d: %v, want %q", rank, err, flawLoss)
		}
	}
}

// Ranks of which some skip steps are an error, and so is a reducer whose other end updates.
func TestSkipRefusals(t *testing.T) {
	errs := ranks(t, 2, func(g *collective.Group) error {
		n := total(toy())
		_, err := New(g, &optim.SGD{LR: 1}, toy(), make([]float32, n), make([]float32, n), nil, Config{NonFinite: []string{nonFiniteEnd, nonFiniteSkip}[g.Rank()]})
		return err
	})
	for rank, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "all ranks must have the same") {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	if err := (Config{NonFinite: nonFiniteSkip}).checkSkip(false); err == nil || !strings.Contains(err.Error(), "cannot be withdrawn") {
		t.Errorf("without an optimizer: %v", err)
	}
}

// rowAdam is Adam with rowSGD's rows.
type rowAdam struct {
	optim.AdamW
	rows rowSGD
}

func (r *rowAdam) BindTables(dims [][2]int) error { return r.rows.BindTables(dims) }
func (r *rowAdam) UpdateRows(table int, data []float32, ids []int32, grads []float32, scale float32) {
	r.rows.LR = 0.1
	r.rows.UpdateRows(table, data, ids, grads, scale)
}
func (r *rowAdam) TableState(table int) []optim.State { return r.rows.TableState(table) }
