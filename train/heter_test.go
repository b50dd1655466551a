package train

import (
	"context"
	"fmt"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/heter"
	"github.com/ringo-ml/ringo/internal/heter/service"
	keeper "github.com/ringo-ml/ringo/internal/server"
	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/transport"
)

// hub is where heter-trainers meet.
type hub struct {
	mu     sync.Mutex
	meshes map[string][]transport.Mesh
}

func (h *hub) meet(ctx context.Context, m service.GroupSpec, heter int) (service.StepGroup, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	name := fmt.Sprint(m)
	if h.meshes == nil {
		h.meshes = map[string][]transport.Mesh{}
	}
	if h.meshes[name] == nil {
		h.meshes[name] = mem.New(len(m.Members))
	}
	mesh := h.meshes[name][slices.Index(m.Members, heter)]
	g, err := collective.New(mesh, collective.Config{})
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { mesh.Abort(context.Cause(ctx)) })
	return service.Over(g, func() error { stop(); return g.Close() }), nil
}

// split runs cfg on ranks, servers and cfg.Heter.Count heter-trainers, all over links; change may change what each server is told.
func split(t *testing.T, ranks int, cfg Config, set *data.Dataset, change func(*keeper.Config)) (Summary, *recorder) {
	t.Helper()
	return splitOn(t, ranks, cfg, set, change, func(_ int, d heter.Device) heter.Device { return d })
}

// splitOn is split with other devices in place of the CPU's, by heter-trainer.
func splitOn(t *testing.T, ranks int, cfg Config, set *data.Dataset, change func(*keeper.Config), device func(int, heter.Device) heter.Device) (Summary, *recorder) {
	t.Helper()
	var group sync.WaitGroup
	var addrs []string
	n := cfg.Heter.Count
	var hub hub
	for i := range n {
		s, err := service.New(service.Config{
			Ticket: testTicket(), Version: ringo.Version, Index: i, Count: n, Trainers: ranks * cfg.Servers.threads(), Stateless: cfg.sendsParams(),
			Open: func(about []byte) (*heter.Cut, heter.Device, error) {
				cut, d, err := OpenPart(cfg, about)
				if err != nil {
					return nil, nil, err
				}
				return cut, device(i, d), nil
			},
			Meet: func(ctx context.Context, m service.GroupSpec) (service.StepGroup, error) { return hub.meet(ctx, m, i) },
		})
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addrs = append(addrs, l.Addr().String())
		group.Go(func() {
			if _, err := s.Serve(t.Context(), l); err != nil {
				t.Error(err)
			}
		})
	}
	sum, rec, _ := onServers(t, ranks, 2, cfg, set, change, addrs...)
	group.Wait()
	return sum, rec
}

// A model whose dense part is on heter-trainers learns as one in one piece: with the same bits where one rank sends whole batches to one, and
// nearly the same for any number of micro-batches, ranks and heter-trainers.
func TestHeter(t *testing.T) {
	set, keys := keyedSet(t)
	cfg := keyedConfig(keys)
	cfg.Servers.Consistency = "bsp"
	whole, params := map[int][]Epoch{}, 0
	for ranks := 1; ranks <= 3; ranks++ {
		_, rec := split(t, ranks, cfg, set, nil)
		params = rec.info.Params
		whole[ranks] = append(whole[ranks], rec.epochs...)
	}
	for _, mix := range []struct{ ranks, heters, micros int }{{1, 1, 1}, {1, 1, 64}, {2, 1, 2}, {1, 2, 8}, {3, 2, 5}} {
		t.Run(fmt.Sprint(mix), func(t *testing.T) {
			cfg := cfg
			cfg.Heter = Heter{Count: mix.heters, Micros: mix.micros}
			sum, rec := split(t, mix.ranks, cfg, set, nil)
			if s := sum.Stages; s == nil || s.Pool.BusyS <= 0 || s.Back.BusyS <= 0 || s.Send.BusyS <= 0 || s.Back.StarvedS <= 0 {
				t.Errorf("stages %v", s)
			}
			told := strings.Join(rec.info.Parameters, "\n")
			if strings.Contains(told, "frozen") || !strings.Contains(told, "by heter-trainers") || !strings.Contains(told, "the rows of tables on servers") || rec.info.Params != params {
				t.Errorf("the run reports %d parameters, in one piece %d, and %q", rec.info.Params, params, told)
			}
			same := mix.ranks*mix.heters*mix.micros == 1
			if len(rec.epochs) != cfg.Epochs {
				t.Fatalf("%d epochs", len(rec.epochs))
			}
			for i, e := range rec.epochs {
				w := whole[mix.ranks][i]
				far := max(math.Abs(e.TrainLoss-w.TrainLoss), math.Abs(e.EvalLoss-w.EvalLoss))
				if same && far != 0 || far > 1e-5 {
					t.Errorf("epoch %d: losses %v and %v, in one piece %v and %v", i+1, e.TrainLoss, e.EvalLoss, w.TrainLoss, w.EvalLoss)
				}
			}
		})
	}
}

// TestOwnFirstValues wants heter-trainers with first values of their own to begin with those of the
// first.
func TestOwnFirstValues(t *testing.T) {
	set, keys := keyedSet(t)
	cfg := keyedConfig(keys)
	cfg.Servers.Consistency, cfg.Epochs, cfg.Heter = "bsp", 1, Heter{Count: 2, Micros: 2}
	var values [2][]float32
	splitOn(t, 2, cfg, set, nil, func(i int, d heter.Device) heter.Device {
		c := &heter.Callbacks{Start: heter.StartOwn, OnRun: d.Run, OnUpdate: d.Update, OnClose: d.Close}
		c.Memory.Gradients, c.Memory.Values, values[i] = d.Gradients(), d.Values(), d.Values()
		c.OnSync = func(action heter.SyncAction) error {
			if action == heter.ResetGradients {
				d.Reset()
			} else {
				d.Gradients() // zeros without a Run
			}
			return nil
		}
		for k := range values[i] {
			values[i][k] += 100 * float32(i)
		}
		return c
	})
	if !slices.Equal(values[0], values[1]) || slices.Max(values[0]) > 50 {
		t.Errorf("the parameters are %v and %v", values[0], values[1])
	}
}

// learned returns by how much the evaluation loss falls after the first epoch.
func learned(r *recorder) float64 {
	return r.epochs[0].EvalLoss - r.epochs[len(r.epochs)-1].EvalLoss
}

// TestHeterModes compares modes without steps in common with a model in one piece. One rank, with Adagrad, has the same bits with one
// heter-trainer and one micro-batch, and the same losses to 1e-5 with more. Of several ranks the order of steps varies, so they take small
// steps of SGD, which add up to the same in any order: the loss falls as much to a tenth, which a gradient of another scale, or a
// micro-batch that is dropped, exceeds.
func TestHeterModes(t *testing.T) {
	set, keys := keyedSet(t)
	for name, served := range map[string]Servers{
		"ssp": {Consistency: "ssp"}, "ssp 3": {Consistency: "ssp", Staleness: 3}, "async": {Consistency: "async"}, "geo": {Consistency: "geo", GeoSteps: 3},
	} {
		cfg := keyedConfig(keys)
		cfg.SetOptimizer("adagrad")
		cfg.Servers = served
		if name != "ssp" && name != "geo" {
			cfg.TableRules = "*=sgd:rate=1e-30" // rows stay as they are
		}
		for _, mix := range []struct{ ranks, threads, heters, micros int }{{1, 1, 1, 1}, {1, 1, 2, 4}, {2, 2, 2, 3}, {3, 1, 2, 5}} {
			if testing.Short() && mix.ranks*mix.heters < 4 {
				continue // time
			}
			t.Run(fmt.Sprint(name, mix), func(t *testing.T) {
				cfg := cfg
				cfg.Servers.Threads = mix.threads
				if mix.ranks > 1 {
					cfg.SetOptimizer("sgd")
					cfg.LR = 0.002 // of which a step changes the next one's gradient little
				}
				_, whole := split(t, mix.ranks, cfg, set, nil)
				cfg.Heter = Heter{Count: mix.heters, Micros: mix.micros}
				sum, rec := split(t, mix.ranks, cfg, set, nil)
				if s := sum.Stages; s == nil || s.Pool.BusyS <= 0 || s.Back.BusyS <= 0 {
					t.Errorf("stages %v", s)
				}
				if mix.ranks > 1 {
					if got, want := learned(rec), learned(whole); !(want > 1e-5 && math.Abs(got-want) <= 0.1*want) {
						t.Errorf("the loss falls by %.4g, in one piece by %.4g", got, want)
					}
					return
				}
				for i, e := range rec.epochs {
					w := whole.epochs[i]
					far := max(math.Abs(e.TrainLoss-w.TrainLoss), math.Abs(e.EvalLoss-w.EvalLoss))
					if same := mix.heters*mix.micros == 1; same && far != 0 || far > 1e-5 {
						t.Errorf("epoch %d: losses %v and %v, in one piece %v and %v", i+1, e.TrainLoss, e.EvalLoss, w.TrainLoss, w.EvalLoss)
					}
				}
			})
		}
	}
}

// A cache of rows changes no bit with heter-trainers where it changes none without: in bsp, where evaluations alone take rows from it, and in other modes where rows
// stay as they are.
func TestHeterCache(t *testing.T) {
	set, keys := keyedSet(t)
	for _, served := range []Servers{{Consistency: "bsp"}, {Consistency: "ssp", Staleness: 3}, {Consistency: "async"}} {
		cfg := keyedConfig(keys)
		bsp := served.Consistency == "bsp"
		if cfg.Servers = served; !bsp {
			cfg.TableRules = "*=sgd:rate=1e-30"
		}
		cfg.Heter = Heter{Count: 1, Micros: 1}
		_, want := split(t, 1, cfg, set, nil)
		cfg.Servers.CacheBytes = 1 << 20
		sum, rec := split(t, 1, cfg, set, nil)
		if c := sum.RowCache; c == nil || c.EvalHitRate == 0 && bsp || (c.TrainHitRate > 0) == bsp {
			t.Errorf("%s: %+v", served.Consistency, c)
		}
		for i, e := range rec.epochs {
			if w := want.epochs[i]; e.TrainLoss != w.TrainLoss || e.EvalLoss != w.EvalLoss {
				t.Errorf("%s, epoch %d: losses %v and %v, without a cache %v and %v", served.Consistency, i+1, e.TrainLoss, e.EvalLoss, w.TrainLoss, w.EvalLoss)
			}
		}
	}
}

// What heter-trainers rule out is refused.
func TestHeterRefuses(t *testing.T) {
	_, keys := keyedSet(t)
	cfg := keyedConfig(keys)
	cfg.Servers.Consistency = ""
	cfg.Heter = Heter{Count: 1, Values: "fp8"}
	err := cfg.Validate()
	for _, want := range []string{"heter.count has no effect: it needs sync bsp or ssp or async or geo", `heter.wire-dtype "fp8"`, "heter.micro-batches 0: want at least 1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	cfg.Heter, cfg.Servers = Heter{Count: 1, Micros: 1}, Servers{Consistency: "geo", GeoSteps: 3, CacheBytes: 1 << 20}
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "ps.row-cache has no effect with sync geo: there ranks have copies of rows") {
		t.Errorf("geo with a cache: %v", err)
	}
	if _, _, err := OpenPart(cfg, []byte(`{"Rows": 1}`)); err == nil || !strings.Contains(err.Error(), "the rank's description of its model") {
		t.Error(err)
	}
}

// TestHeterNeedsServers: a replica for heter-trainers without parameters on servers is an error.
func TestHeterNeedsServers(t *testing.T) {
	set, keys := keyedSet(t)
	cfg := Defaults(keyed(keys), "")
	cfg.Heter.Count = 1
	err := ringo.Local(context.Background(), 1, ringo.Config{}, func(job *ringo.Job) error {
		_, err := NewReplica(job, cfg, optionsOf(cfg.Model, set.Classes, set.Vocabulary, set.Rows))
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "heter.count 1: heter-trainers need parameters on servers") {
		t.Errorf("got %v", err)
	}
}
