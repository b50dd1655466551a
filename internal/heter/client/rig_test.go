package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/heter"
	"github.com/ringo-ml/ringo/internal/heter/service"
	"github.com/ringo-ml/ringo/internal/heter/sharedmem"
	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/simd"
	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/models"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/transport"
)

const (
	rows = 40
	rate = 0.05
	seed = 7
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// spec is a small model with the part of ctr-dnn.
func spec(t testing.TB) model.Spec { return specOf(t, 4, 16) }

// specOf is spec with so many values of a row and of a sample within the part.
func specOf(t testing.TB, row, hidden int) model.Spec {
	s, err := models.Lookup("ctr-dnn")
	must(t, err)
	s.Build = func(ps *nn.Params, _ model.Options) model.Model {
		tab := ps.NewTable("embedding", nn.UniformRows(0.05), rows, row)
		one, two := ps.Dense("fc", s.IDs*row+s.Input[0], hidden), ps.Dense("out", hidden, 2)
		dense := func(t *nn.Tape, x []*nn.Tensor) *nn.Tensor {
			return t.Dense(t.Dense(x[0], one, nn.ReLU), two, nn.Identity)
		}
		return model.Model{Loss: model.CrossEntropy, Forward: func(t *nn.Tape, b model.Batch) model.Outputs {
			return model.Outputs{t.OnDevice(heter.DeviceName, dense, t.EmbeddingTable(b.IDs, b.N, tab, b.Values))}
		}}
	}
	return s
}

func batch(s model.Spec, r *rand.Rand, n int) model.Batch {
	b := s.Sample(n)
	for i := range b.Values.Data {
		b.Values.Data[i] = r.Float32()
	}
	for i := range b.IDs {
		b.IDs[i] = int32(r.IntN(rows))
	}
	for i := range b.Labels {
		b.Labels[i] = int32(r.IntN(2))
	}
	return b
}

func sgd() optim.Optimizer { return &optim.SGD{LR: rate} }

func device(t testing.TB, s model.Spec, c *heter.Cut, rule func() optim.Optimizer) *heter.CPU {
	d, err := heter.NewCPU(s, c, heter.CPUConfig{Seed: seed, Optimizer: func(*nn.Params) (optim.Optimizer, error) { return rule(), nil }})
	must(t, err)
	return d
}

// side is a trainer's: its model up to the cut.
func side(t testing.TB, s model.Spec, c *heter.Cut, micros int, to heter.RemoteStage) *heter.Trainer {
	return (&rig{t: t, spec: s, cut: c}).side(micros, to)
}

func (r *rig) side(micros int, to heter.RemoteStage) *heter.Trainer {
	t, s, c := r.t, r.spec, r.cut
	ps := nn.NewParams(seed)
	m := s.Build(ps, model.Options{})
	must(t, c.Freeze(ps, c.Params))
	must(t, m.Arrange(ps, s.Sample(1)))
	tr, err := heter.NewTrainer(m, c, micros, to, nn.TapeConfig{Kernels: r.kernels})
	must(t, err)
	t.Cleanup(tr.Close)
	return tr
}

// rig is some heter-trainers that listen on loopback.
type rig struct {
	t       testing.TB
	spec    model.Spec
	cut     *heter.Cut
	devices []*heter.CPU
	config  Config
	ends    []chan error
	stops   []context.CancelFunc
	hub     hub
	dialed  atomic.Bool // by a client, and not by a test that says what it likes
	rule    func() optim.Optimizer
	steps   int                  // of a trainer
	serve   []func(net.Listener) // starts one in its place
	early   map[int]*Client      // of trainers that are there before run
	hostile atomic.Bool          // a trainer that says what it likes has come
	served  []service.Stats      // by heter-trainer, once it has ended
	kernels *simd.Kernels        // of trainers and heter-trainers; nil: fp32
	near    float64              // how near losses and parameters must be to those of one process

	mu      sync.Mutex
	clients []*Client // that dial has made
}

// patience is the longest wait of a trainer of a rig, which ends a test of a lost micro-batch.
const patience = 20 * time.Second

// hub is where heter-trainers of a test meet.
type hub struct {
	mu     sync.Mutex
	meshes map[string][]transport.Mesh                   // by meeting
	sums   map[int]int                                   // how many gradients each has summed
	spoil  func(heter, sums int, sum func() error) error // in place of a sum; nil: nothing
}

func (h *hub) meet(ctx context.Context, m service.GroupSpec, heter int) (service.StepGroup, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	name := fmt.Sprint(m)
	if h.meshes[name] == nil {
		h.meshes[name] = mem.New(len(m.Members))
	}
	mesh := h.meshes[name][slices.Index(m.Members, heter)]
	g, err := collective.New(mesh, collective.Config{})
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { mesh.Abort(context.Cause(ctx)) })
	return watched{service.Over(g, func() error { stop(); return g.Close() }), h, heter, len(m.Members)}, nil
}

// watched is a group whose sums a test may spoil.
type watched struct {
	service.StepGroup
	hub     *hub
	heter   int
	members int
}

func (w watched) Gather(x, own []float32, lengths []int) error {
	sum := func() error { return w.StepGroup.Gather(x, own, lengths) }
	if w.hub.spoil == nil || len(x) <= 20*w.members { // no gradients
		return sum()
	}
	w.hub.mu.Lock()
	w.hub.sums[w.heter]++
	n := w.hub.sums[w.heter]
	w.hub.mu.Unlock()
	return w.hub.spoil(w.heter, n, sum)
}

// newRig starts heter-trainers for so many trainers; change may change what each is told.
func newRig(t testing.TB, trainers, heters int, change func(*service.Config)) *rig {
	t.Helper()
	return newRigOf(t, trainers, heters, sgd, change)
}

// ways are how micro-batches travel between trainers and heter-trainers of one host.
var ways = []struct {
	name string
	set  func(*service.Config)
}{
	{"link", func(c *service.Config) { c.LinkOnly = true }},
	{"memory", func(c *service.Config) { c.LinkOnly = false }},
	{"both", func(c *service.Config) { c.LinkOnly = c.Index%2 == 0 }}, // what one had in memory goes to others by the link, and the reverse
	{"callbacks", behind},
}

// inAllWays runs a test for each way, of which the last one has something of the others, and is enough for a short one.
func inAllWays(t *testing.T, do func(t *testing.T, way func(*service.Config))) {
	some := ways
	if testing.Short() {
		some = ways[2:]
	}
	for _, way := range some {
		t.Run(way.name, func(t *testing.T) { do(t, way.set) })
	}
}

// unmapped checks that no memory is left that a trainer and a heter-trainer have shared.
func unmapped(t testing.TB) {
	left := 0
	for range 500 {
		maps, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			return // not on this system
		}
		fds, _ := filepath.Glob("/proc/self/fd/*")
		left = strings.Count(string(maps), "memfd:ringo-heter")
		for _, fd := range fds {
			if to, err := os.Readlink(fd); err == nil && strings.Contains(to, "memfd:ringo-heter") {
				left++
			}
		}
		if left == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d mappings or descriptors of shared memory are left", left)
}

// newRigOf is newRig with a rule by which parameters move.
func newRigOf(t testing.TB, trainers, heters int, rule func() optim.Optimizer, change func(*service.Config)) *rig {
	t.Helper()
	leakcheck.Check(t)
	t.Cleanup(func() { unmapped(t) })
	s := spec(t)
	c, err := heter.Find(s, model.Options{}, nil)
	must(t, err)
	r := &rig{t: t, spec: s, cut: c, config: Config{Ticket: transport.NewTicket(), Version: "1", Trainers: trainers, Cut: c, Timeout: patience}, rule: rule, steps: 5, near: 1e-5}
	r.hub.meshes, r.hub.sums = map[string][]transport.Mesh{}, map[int]int{}
	r.served, r.ends, r.stops, r.devices = make([]service.Stats, heters), make([]chan error, heters), make([]context.CancelFunc, heters), make([]*heter.CPU, heters)
	for i := range heters {
		var d *heter.CPU
		cfg := service.Config{
			Ticket: r.config.Ticket, Version: "1", Index: i, Count: heters, Trainers: trainers,
			Open:   func([]byte) (*heter.Cut, heter.Device, error) { return c, d, nil },
			Report: func(line string) { t.Log(line) },
		}
		if heters > 1 {
			cfg.Meet = func(ctx context.Context, m service.GroupSpec) (service.StepGroup, error) {
				return r.hub.meet(ctx, m, i)
			}
		}
		if change != nil {
			change(&cfg)
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		r.serve = append(r.serve, func(l net.Listener) {
			d = device(t, s, c, rule)
			server, err := service.New(cfg)
			must(t, err)
			ctx, cancel := context.WithCancel(context.Background())
			end := make(chan error, 1)
			go func() {
				f, err := server.Serve(ctx, l)
				t.Logf("heter-trainer %d: %+v", i, f)
				_, plain := cfg.Ticket.(transport.Ticket)
				if shares := sharedmem.Supported && plain && !cfg.LinkOnly; !r.hostile.Load() && r.dialed.Load() && f.MicroBatches > 0 && f.Shared > 0 != shares {
					t.Errorf("heter-trainer %d: %d bytes of %d micro-batches went through shared memory, which it shares: %v", i, f.Shared, f.MicroBatches, shares)
				}
				r.served[i] = f
				end <- err
			}()
			r.devices[i], r.ends[i], r.stops[i] = d, end, cancel
			t.Cleanup(cancel)
		})
		r.serve[i](l)
		r.config.Addrs = append(r.config.Addrs, l.Addr().String())
	}
	return r
}

// dial connects a trainer.
func (r *rig) dial(trainer int) *Client {
	r.t.Helper()
	cfg := r.config
	cfg.Trainer = trainer
	r.dialed.Store(true)
	c, err := Dial(context.Background(), cfg)
	must(r.t, err)
	r.t.Cleanup(func() { c.Abort(errors.New("the test is over")) })
	r.mu.Lock()
	r.clients = append(r.clients, c)
	r.mu.Unlock()
	return c
}

// all runs do for each trainer at once. The first error ends the other trainers, which would wait
// for the one that has failed.
func (r *rig) all(do func(trainer int) error) {
	r.t.Helper()
	var wg sync.WaitGroup
	errs := make([]error, r.config.Trainers)
	for i := range errs {
		wg.Go(func() {
			if err := do(i); err != nil {
				errs[i] = fmt.Errorf("trainer %d: %w", i, err)
				r.abort(errs[i])
			}
		})
	}
	wg.Wait()
	must(r.t, errors.Join(errs...))
}

// abort ends all trainers.
func (r *rig) abort(cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.clients {
		c.Abort(cause)
	}
}
