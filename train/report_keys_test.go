package train

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/freeport"
	"github.com/ringo-ml/ringo/internal/heter"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/rowinit"
	keeper "github.com/ringo-ml/ringo/internal/server"
	"github.com/ringo-ml/ringo/internal/server/engine"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
	kept "github.com/ringo-ml/ringo/ps/offline"
	"github.com/ringo-ml/ringo/transport"
	"github.com/ringo-ml/ringo/weights"
)

// keyedRows are those of a table that the ranks have, enough for the keys of keyedSet to have each its own.
const keyedRows = 1 << 14

// keyedSet are samples with two bags and a sequence of few different keys, the first and the last that there are among them.
func keyedSet(t *testing.T) (set *data.Dataset, keys []uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(3, 4))
	keys = []uint64{0, 1<<64 - 1}
	taken := map[int32]bool{nn.RowOf(keys[0], keyedRows): true, nn.RowOf(keys[1], keyedRows): true}
	for len(keys) < 80 {
		if key := r.Uint64(); !taken[nn.RowOf(key, keyedRows)] {
			taken[nn.RowOf(key, keyedRows)] = true
			keys = append(keys, key)
		}
	}
	shape := data.Shape{Labels: 1, Slots: []data.Slot{{Name: "a"}, {Name: "b"}, {Name: "c", Sequence: true}}}
	var sources []data.Source
	for _, n := range []int{203, 41} {
		b := data.Batch{N: n, Bags: data.Bags{Offsets: []int32{0}}}
		for range n {
			b.Labels = append(b.Labels, int32(r.IntN(2)))
		}
		for slot := range shape.Slots {
			for i := range n {
				for range r.IntN(5) { // none, too
					b.Bags.Keys = append(b.Bags.Keys, keys[(r.IntN(40)+20*slot+10*int(b.Labels[i]))%len(keys)])
				}
				b.Bags.Offsets = append(b.Bags.Offsets, int32(len(b.Bags.Keys)))
			}
		}
		src, err := data.FromBatch(shape, b)
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, src)
	}
	return &data.Dataset{Name: "own", Train: sources[0], Eval: sources[1], Classes: 2, Rows: keyedRows}, keys
}

// keyed looks keys up in tables of several widths: one that reads all slots, one that reads the bags, and one that reads the last two of a
// sequence. Where rows lie with the ranks, those of keys begin as on servers.
func keyed(keys []uint64) model.Spec {
	s := tinyClick()
	s.Name, s.IDs, s.Input, s.AnySlots = "keyed", 0, nil, true
	s.Slots = []model.Slot{{Name: "any"}}
	s.Build = func(ps *nn.Params, o model.Options) model.Model {
		wide := ps.NewTable("wide", nn.RowInit{}, o.Rows, 1)
		deep, steps := ps.NewTable("deep", nn.UniformRows(0.5), o.Rows, 3), ps.NewTable("steps", nn.UniformRows(0.25), o.Rows, 2)
		for _, t := range ps.Tables() {
			begin, err := t.Init.Init()
			for _, key := range keys {
				if err == nil && len(t.Data) == t.Rows*t.Dim {
					begin(t.Data[int(nn.RowOf(key, t.Rows))*t.Dim:][:t.Dim], rowinit.Row(t.Stream(), key))
				}
			}
		}
		out := ps.Dense("out", 3+6+4, 1)
		dense := func(t *nn.Tape, x []*nn.Tensor) *nn.Tensor { return t.Dense(x[0], out, nn.Identity) }
		return model.Model{
			Forward: func(t *nn.Tape, b model.Batch) model.Outputs {
				last := t.Reshape(t.EmbeddingSequence(b.Bags.Slots(2, 3), steps, 2), b.N, 4)
				x := t.EmbeddingBag(b.Bags.Slots(0, 2), deep, nn.SqrtPool, last)
				return model.Outputs{t.OnDevice(heter.DeviceName, dense, t.EmbeddingBag(b.Bags, wide, nn.MeanPool, x))}
			},
			Loss: model.BinaryCrossEntropy, Metrics: []model.Metric{model.LogLoss(), model.AUC(model.Probability)},
		}
	}
	return s
}

func keyedConfig(keys []uint64) Config {
	cfg := custom(keyed(keys))
	cfg.Data, cfg.TrainLimit, cfg.EvalLimit, cfg.Batch, cfg.Epochs, cfg.Threads = "", 0, 0, 8, 3, 1
	return cfg
}

// Tables by keys on servers that are in step have the bits of tables with the ranks whose rows no two keys share, summed by the naive
// algorithm: losses, dense parameters and each key's rows.
func TestKeysOnServers(t *testing.T) {
	set, keys := keyedSet(t)
	for optimizer, rules := range map[string]string{"adagrad": "", "sgd": "wide=ftrl:rate=30:l1=0.001,s*=adagrad-rowwise:rate=2"} {
		cfg := keyedConfig(keys)
		cfg.SetOptimizer(optimizer)
		cfg.Epochs = 2
		cfg.TableRules = rules
		cfg.Checkpoint = Checkpoint{Dir: t.TempDir()}
		var want recorder
		err := ringo.Local(t.Context(), 2, ringo.Config{Collective: collective.Config{Algorithm: collective.Naive}}, func(job *ringo.Job) error {
			own := &want
			if job.Rank() > 0 {
				own = new(recorder)
			}
			c := cfg
			c.Observer = own
			_, err := Run(t.Context(), job, cfg.Model, set, c)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		here, err := weights.OpenSource(cfg.Checkpoint.Dir)
		if err != nil {
			t.Fatal(err)
		}
		defer here.Close()
		cfg.Checkpoint.Dir = t.TempDir()
		cfg.Servers.Consistency, cfg.Servers.Start = "bsp", 1
		sum, got, stats := onServers(t, 2, 2, cfg, set, func(c *keeper.Config) {
			c.Dir, c.Job = AttemptDir(cfg.Checkpoint.Dir, 1), JobName(1, 0)
		})
		if len(got.epochs) != 2 {
			t.Fatalf("%s: %d epochs", optimizer, len(got.epochs))
		}
		for i, e := range got.epochs {
			if w := want.epochs[i]; e.TrainLoss != w.TrainLoss || e.EvalLoss != w.EvalLoss {
				t.Errorf("%s, epoch %d: losses %v and %v, with the ranks %v and %v", optimizer, i+1, e.TrainLoss, e.EvalLoss, w.TrainLoss, w.EvalLoss)
			}
		}
		checkRowsOf(t, cfg, here, len(keys), stats)
		if sum.DistinctKeys < int64(len(keys))-2 || sum.DistinctKeys > int64(len(keys))+2 || sum.Params != 14 {
			t.Errorf("%d different keys and %d parameters, want %d and 14", sum.DistinctKeys, sum.Params, len(keys))
		}
	}
}

// checkRowsOf compares what servers have saved with the tables that a run without them has.
func checkRowsOf(t *testing.T, cfg Config, here *weights.Source, most int, stats []keeper.Stats) {
	t.Helper()
	_, step, part, err := LastServerParts(cfg.Checkpoint.Dir)
	if err != nil {
		t.Fatal(err)
	}
	there, err := kept.At(AttemptDir(cfg.Checkpoint.Dir, 1), uint64(step), part.Numbers)
	if err != nil {
		t.Fatal(err)
	}
	for i, dim := range []int{1, 3, 2} {
		name := []string{"wide", "deep", "steps"}[i]
		all, err := here.Read(name)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		err = there.Each(context.Background(), i, func(keys []uint64, weights []float32) error {
			for k, key := range keys {
				if got, want := weights[k*dim:][:dim], all[int(nn.RowOf(key, keyedRows))*dim:][:dim]; !slices.Equal(got, want) {
					t.Errorf("table %s: row of key %d is %v, with the ranks %v", name, key, got, want)
				}
			}
			n += len(keys)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		rows := int64(0)
		for _, s := range stats {
			rows += s.Tables.Tables[i].Rows
		}
		if n == 0 || n > most || rows != int64(n) {
			t.Errorf("table %s: %d rows are saved, servers had %d, of %d keys", name, n, rows, most)
		}
	}
}

// testTicket is that of all jobs of tests with servers.
var testTicket = sync.OnceValue(transport.NewTicket)

// onServers runs cfg on n ranks, each with its own connections, whose parameters lie on servers.
func onServers(t *testing.T, n, servers int, cfg Config, set *data.Dataset, change func(*keeper.Config), heters ...string) (sum Summary, rec *recorder, stats []keeper.Stats) {
	t.Helper()
	sum, rec, stats, errs := serveRun(t, n, servers, cfg, set, change, heters...)
	for _, err := range errs {
		t.Error(err)
	}
	return sum, rec, stats
}

// serveRun is onServers of a run that may fail.
func serveRun(t *testing.T, n, servers int, cfg Config, set *data.Dataset, change func(*keeper.Config), heters ...string) (sum Summary, rec *recorder, stats []keeper.Stats, errs []error) {
	t.Helper()
	leakcheck.Check(t)
	ticket := testTicket()
	var group sync.WaitGroup
	var mu sync.Mutex
	var addresses []string
	stats = make([]keeper.Stats, servers)
	fail := func(who string, err error) {
		if err == nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		errs = append(errs, fmt.Errorf("%s: %w", who, err))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i := range servers {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addresses = append(addresses, l.Addr().String())
		sc := keeper.Defaults()
		sc.Listener, sc.Ticket, sc.Version, sc.Index, sc.Servers, sc.Trainers, sc.Sessions = l, ticket, ringo.Version, i, servers, n, cfg.Servers.Threads
		sc.Mode, sc.Staleness = engine.Mode(cfg.Servers.Consistency), cfg.Servers.Staleness
		if change != nil {
			change(&sc)
		}
		group.Go(func() {
			var err error
			stats[i], err = keeper.Run(ctx, sc)
			fail(fmt.Sprintf("server %d", i), err)
		})
	}
	rec = new(recorder)
	meeting := freeport.Address(t)
	for rank := range n {
		group.Go(func() {
			own := rec
			if rank > 0 {
				own = new(recorder)
			}
			err := ringo.Run(ctx, ringo.Config{
				Size: n, Rank: rank, Rendezvous: meeting, ParameterServers: addresses, Heters: heters, Transport: ringo.TransportTCP, Collective: collective.Config{Algorithm: collective.Naive},
				Lookup: func(name string) (string, bool) {
					if name != launch.TicketVar {
						return "", false
					}
					return ticket.String(), true
				},
			}, func(job *ringo.Job) error {
				c := cfg
				if c.Observer = own; rank == 0 && cfg.Observer != nil {
					c.Observer = cfg.Observer
				}
				s, err := Run(ctx, job, cfg.Model, set, c)
				mu.Lock()
				defer mu.Unlock()
				if rank == 0 {
					sum = s
				}
				return err
			})
			fail(fmt.Sprintf("rank %d", rank), err)
			if err != nil {
				cancel()
			}
		})
	}
	group.Wait()
	return sum, rec, stats, errs
}

// A run on servers goes on from its checkpoint as if it had not ended, with its own copies too, and what servers have saved is evaluated
// without them as the run did.
func TestKeysResume(t *testing.T) {
	set, keys := keyedSet(t)
	for _, mode := range []string{"bsp", "geo"} {
		np := map[string]int{"bsp": 2, "geo": 1}[mode]
		cfg := keyedConfig(keys)
		cfg.Servers.Consistency, cfg.Servers.Start = mode, 1
		cfg.Checkpoint = Checkpoint{Dir: t.TempDir()}
		_, whole, _ := onServers(t, np, 1, cfg, set, func(c *keeper.Config) {
			c.Dir, c.Job = AttemptDir(cfg.Checkpoint.Dir, 1), JobName(1, 0)
		})
		part := cfg
		part.Checkpoint = Checkpoint{Dir: t.TempDir(), Resume: true}
		part.Epochs = 1
		onServers(t, np, 2, part, set, func(c *keeper.Config) {
			c.Dir, c.Job = AttemptDir(part.Checkpoint.Dir, 1), JobName(1, 0)
		})
		_, step, from, err := LastServerParts(part.Checkpoint.Dir)
		if err != nil {
			t.Fatal(err)
		}
		part.Epochs, part.Servers.Start = 3, 2
		_, rest, _ := onServers(t, np, 3, part, set, func(c *keeper.Config) {
			c.Dir, c.Job = AttemptDir(part.Checkpoint.Dir, 2), JobName(2, step)
			c.From, c.FromNumbers, c.FromStep = AttemptDir(part.Checkpoint.Dir, 1), from.Numbers, uint64(step)
		})
		if len(rest.epochs) != 2 || rest.epochs[1].TrainLoss != whole.epochs[2].TrainLoss || rest.epochs[1].EvalLoss != whole.epochs[2].EvalLoss {
			t.Fatalf("%s: gone on: %+v\nin one run: %+v", mode, rest.epochs, whole.epochs)
		}
		cfg.Servers = Servers{OpenServerCheckpoint: func(dir string, step uint64, numbers []uint64) (ServerCheckpoint, error) {
			return kept.At(dir, step, numbers)
		}}
		err = ringo.Local(t.Context(), np, ringo.Config{}, func(job *ringo.Job) error {
			e, err := Evaluate(t.Context(), job, cfg.Model, set, cfg)
			if err == nil && e.EvalLoss != whole.epochs[2].EvalLoss {
				t.Errorf("%s: %v evaluated without servers, %v with them", mode, e.EvalLoss, whole.epochs[2].EvalLoss)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// Ranks that go on by themselves learn by keys, too, on several threads, and with rows below the servers' memory.
func TestKeysOutOfStep(t *testing.T) {
	set, keys := keyedSet(t)
	for _, mode := range []string{"ssp", "async", "geo"} {
		cfg := keyedConfig(keys)
		cfg.Servers.Consistency, cfg.Servers.Threads, cfg.Epochs = mode, 2, 6
		dir := t.TempDir()
		_, rec, stats := onServers(t, 2, 2, cfg, set, func(c *keeper.Config) {
			c.Dir, c.MemoryBytes = dir, 4<<20
		})
		if n := len(rec.epochs); n != 6 {
			t.Fatalf("%s: %d epochs", mode, n)
		} else if !(rec.epochs[5].TrainLoss < 0.95*rec.epochs[0].TrainLoss) {
			t.Errorf("%s: the loss went from %v to %v", mode, rec.epochs[0].TrainLoss, rec.epochs[n-1].TrainLoss)
		}
		for i := range 3 {
			if rows := stats[0].Tables.Tables[i].Rows + stats[0].Tables.Tables[i].StoredRows; rows < 1 || rows > int64(len(keys)) {
				t.Errorf("%s: table %d has %d rows", mode, i, rows)
			}
		}
	}
}
