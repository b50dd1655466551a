package train

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/server/service"
	"github.com/ringo-ml/ringo/internal/server/service/fake"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/ps/client"
	"github.com/ringo-ml/ringo/ps/schema"
	"github.com/ringo-ml/ringo/transport"
)

// server is a server of tables in memory, for ranks that meet there.
func server(t *testing.T, n int) (dial func(rank int) *serverComm) {
	t.Helper()
	var net fake.Net
	sc := schema.Schema{Dense: []schema.Dense{{Name: "d", Len: 1, Rule: schema.Rule{Name: "sgd", LR: 1}}}}
	ticket := transport.NewTicket()
	s, err := service.New(service.Config{
		Ticket: ticket, Version: "1", Servers: 1, Trainers: n, Schema: &sc,
		Open: func(sc schema.Schema) (service.Engine, error) {
			return fake.New(fake.Config{Trainers: n, Sessions: 1, LostLeaves: true}, sc), nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended, l := make(chan error), net.Listen("server")
	go func() { ended <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return func(rank int) *serverComm {
		c, err := client.Dial(context.Background(), client.Config{
			Servers: []string{"server"}, Ticket: ticket, Version: "1", Trainer: rank, Trainers: n, Schema: sc, Dial: net.Dial,
		})
		if err != nil {
			t.Error(err)
			return nil
		}
		t.Cleanup(func() { c.Close() })
		return &serverComm{client: c, ranks: collective.Ranks(n)}
	}
}

// onPeers calls do on n ranks of either kind at once.
func onPeers(t *testing.T, n int, do func(rank int, p communicator) error) {
	t.Helper()
	err := ringo.Local(context.Background(), n, ringo.Config{Collective: collective.Config{Algorithm: collective.Naive}}, func(job *ringo.Job) error {
		return do(job.Rank(), meshComm{job.Group()})
	})
	if err != nil {
		t.Errorf("meshed: %v", err)
	}
	dial := server(t, n)
	var all sync.WaitGroup
	for rank := range n {
		all.Go(func() {
			if err := do(rank, dial(rank)); err != nil {
				t.Errorf("without a mesh, rank %d: %v", rank, err)
			}
		})
	}
	all.Wait()
}

// Ranks without a mesh agree on what those of a mesh do, to the last bit.
func TestPeersAgree(t *testing.T) {
	leakcheck.Check(t)
	for n := 1; n <= 5; n++ {
		r := rand.New(rand.NewPCG(7, uint64(n)))
		own, sums, scores := make([][]float64, n), make([]float64, 20), []uint64(nil)
		values, means := make([][]float32, n), make([]float64, 50)
		shards, blobs := make([][]uint64, n), make([][]byte, n)
		for rank := range n {
			own[rank] = make([]float64, len(sums))
			for i := range sums {
				own[rank][i] = r.NormFloat64() * math.Pow(10, float64(r.IntN(20)))
				if rank == 0 {
					sums[i] = own[0][i]
				} else {
					sums[i] += own[rank][i]
				}
			}
			for i := range means {
				v := float32(r.NormFloat64())
				values[rank] = append(values[rank], v)
				means[i] += float64(v) / float64(n)
			}
			for range r.IntN(100) {
				shards[rank] = append(shards[rank], r.Uint64())
			}
			scores = append(scores, shards[rank]...)
			blobs[rank] = bytes.Repeat([]byte{byte(rank)}, r.IntN(3)*100)
		}
		onPeers(t, n, func(rank int, p communicator) error {
			x := slices.Clone(own[rank])
			fields := make([]*float64, len(x))
			for i := range x {
				fields[i] = &x[i]
			}
			got, err := addUp(p, fields, [][]uint64{shards[rank]})
			if err != nil {
				return err
			}
			for i := range x {
				if math.Float64bits(x[i]) != math.Float64bits(sums[i]) {
					t.Errorf("%T, %d ranks: sum %d is %v on rank %d, want %v", p, n, i, x[i], rank, sums[i])
				}
			}
			if !slices.Equal(got[0], scores) {
				t.Errorf("%T, %d ranks: words %v, want %v", p, n, got[0], scores)
			}
			mean := slices.Clone(values[rank])
			if err := errors.Join(p.mean(mean), p.mean(nil)); err != nil {
				return err
			}
			for i, v := range mean {
				if math.Abs(float64(v)-means[i]) > 1e-6 {
					t.Errorf("%T, %d ranks: mean %d is %v on rank %d, want %v", p, n, i, v, rank, means[i])
				}
			}
			sum := sha256.Sum256(bytesview.Bytes(mean))
			equal, err := p.gather(sum[:])
			if err != nil || slices.ContainsFunc(equal, func(b []byte) bool { return !bytes.Equal(b, sum[:]) }) {
				t.Errorf("%T, %d ranks: means have other bits by rank, %v", p, n, err)
			}
			all, err := p.gather(blobs[rank])
			if err != nil {
				return err
			}
			if !slices.EqualFunc(all, blobs, func(a, b []byte) bool { return a != nil && bytes.Equal(a, b) }) {
				t.Errorf("%T, %d ranks: gathered %v", p, n, all)
			}
			numbers, err := gatherNumbers(p, int64(rank), -5)
			for r, v := range numbers {
				if !slices.Equal(v, []int64{int64(r), -5}) {
					t.Errorf("%T, %d ranks: numbers %v", p, n, numbers)
				}
			}
			if there := p.liveRanks(); !slices.Equal(there, collective.Ranks(n)) {
				t.Errorf("%T: %v are there", p, there)
			}
			return errors.Join(err, p.barrier())
		})
	}
}

// What needs the others is done at once where there is a mesh, else when the servers are found,
// in the same order, up to the first fault.
func TestPeersMeetSoon(t *testing.T) {
	fault := errors.New("fault")
	for _, c := range []struct {
		p     communicator
		early string
	}{{meshComm{}, "12"}, {new(serverComm), ""}} {
		said := ""
		say := func(what string, err error) func() error {
			return func() error {
				said += what
				return err
			}
		}
		if err := errors.Join(c.p.whenConnected(say("1", nil)), c.p.whenConnected(say("2", nil))); err != nil || said != c.early {
			t.Errorf("%T: %q, %v", c.p, said, err)
		}
		if err := c.p.setServers(new(client.Client)); err != nil || said != "12" {
			t.Errorf("%T, with servers: %q, %v", c.p, said, err)
		}
		if err := c.p.whenConnected(say("3", fault)); err != fault || said != "123" {
			t.Errorf("%T, later: %q, %v", c.p, said, err)
		}
	}
	a, after := new(serverComm), false
	_ = a.whenConnected(func() error { return fault })
	_ = a.whenConnected(func() error { after = true; return nil })
	if err := a.setServers(new(client.Client)); err != fault || after {
		t.Errorf("a fault: %v, and what follows was done: %v", err, after)
	}
}

// What ranks without a mesh cannot do is refused before anything is begun.
func TestPeersSuit(t *testing.T) {
	served := Defaults(zoo("ctr-dnn"), data.Synthetic)
	served.Servers.Consistency = "async"
	saved, streamed := served, served
	saved.Checkpoint.Dir = "run"
	streamed.Stream, streamed.Warmup.Steps = true, 5
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{served, ""},
		{Defaults(zoo("mlp"), data.Synthetic), "use parameter servers"},
		{saved, "no common step for a checkpoint"},
		{streamed, "training.warmup 5"},
	} {
		if err := meshComm.validate(meshComm{}, c.cfg); err != nil {
			t.Errorf("meshed: %v", err)
		}
		if err := new(serverComm).validate(c.cfg); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}

// Those without a mesh go on without one that is lost, unless it is the first one.
func TestPeersWithoutTheLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial := server(t, 3)
		var all [3]*serverComm
		for rank := range all {
			all[rank] = dial(rank)
		}
		each := func(do func(p *serverComm) error, ranks ...int) {
			var wait sync.WaitGroup
			for _, rank := range ranks {
				wait.Go(func() {
					if err := do(all[rank]); err != nil {
						t.Error(err)
					}
				})
			}
			wait.Wait()
		}
		each((*serverComm).barrier, 0, 1, 2)
		_ = all[1].client.Close()
		each(func(p *serverComm) error {
			x := 1.0
			words, err := addUp(p, []*float64{&x}, [][]uint64{{4}})
			if x != 2 || len(words) != 1 || len(words[0]) != 2 || !slices.Equal(p.liveRanks(), []int{0, 2}) {
				t.Errorf("sum %v, words %v, %v are there", x, words, p.liveRanks())
			}
			numbers, err2 := gatherNumbers(p, 3)
			if len(numbers) != 3 || numbers[1] != nil || numbers[2] == nil {
				t.Errorf("numbers %v", numbers)
			}
			return errors.Join(err, err2)
		}, 0, 2)
		_ = all[0].client.Close()
		begun := time.Now()
		if err := all[2].barrier(); !errors.Is(err, errLostTeller) || time.Since(begun) > 2*time.Minute {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
	})
}

// Ranks that bring something else than the others are named.
func TestPeersDiffer(t *testing.T) {
	dial := server(t, 2)
	a, b := dial(0), dial(1)
	meet := func(other func() error) error {
		ended := make(chan error)
		go func() { ended <- other() }()
		_, err := addUp(a, []*float64{new(float64), new(float64)}, nil)
		<-ended
		return err
	}
	err := meet(func() error { _, err := b.gather([]byte{1}); return err })
	if err == nil || !strings.Contains(err.Error(), "rank 1 has sent 1 bytes for 2 numbers") {
		t.Errorf("got %v", err)
	}
	err = meet(func() error { _, err := gatherNumbers(b, 1, 2, 3); return err })
	if err == nil || !strings.Contains(err.Error(), "24 bytes for 2 numbers") {
		t.Errorf("a figure more: %v", err)
	}
	ended := make(chan error)
	go func() { ended <- b.barrier() }()
	if _, err = gatherNumbers(a, 1); err == nil || !strings.Contains(err.Error(), "rank 1 has brought 0 bytes for 1 numbers") {
		t.Errorf("got %v", err)
	}
	<-ended
}

// TestPeersWithOtherModels names the rank, the parameter or table and both shapes, on ranks with a
// mesh and without one.
func TestPeersWithOtherModels(t *testing.T) {
	for want, other := range map[string]func(*nn.Params){
		"": func(ps *nn.Params) { ps.New("w", nn.Zeros, 64, 80); ps.NewTable("users", nn.RowInit{}, 10, 4) },
		"rank 2 has another model than rank 0: parameter 0 is w of 80×64 values there, and w of 64×80 values on rank 0: all ranks must build the same one": func(ps *nn.Params) {
			ps.New("w", nn.Zeros, 80, 64)
			ps.NewTable("users", nn.RowInit{}, 10, 4)
		},
		"rank 2 has another model than rank 0: table 0 is users of rows of 8 values there, and users of rows of 4 values on rank 0: all ranks must build the same one": func(ps *nn.Params) {
			ps.New("w", nn.Zeros, 64, 80)
			ps.NewTable("users", nn.RowInit{}, 10, 8)
		},
	} {
		onPeers(t, 3, func(rank int, p communicator) error {
			ps := nn.NewParams(1)
			if rank == 2 {
				other(ps)
			} else {
				ps.New("w", nn.Zeros, 64, 80)
				ps.NewTable("users", nn.RowInit{}, 10, 4)
			}
			got := ""
			if err := agreeModel(p, ps); err != nil {
				got = err.Error()
			}
			if got != want {
				return fmt.Errorf("got %q, want %q", got, want)
			}
			return nil
		})
	}
}

// losing is ranks of which some are lost while the others evaluate.
type losing struct {
	communicator
	after [][]int // who is there at first, and after each sum
	sums  int
}

func (l *losing) liveRanks() []int { return l.after[l.sums] }
func (l *losing) barrier() error   { return nil }
func (l *losing) gather(b []byte) ([][]byte, error) {
	l.sums++
	return [][]byte{b}, nil
}

// When ranks are lost while they evaluate, the others evaluate again, and together all samples.
func TestEvaluationIsSharedOutAnew(t *testing.T) {
	cfg := custom(tinyClick())
	err := ringo.Local(context.Background(), 1, ringo.Config{}, func(job *ringo.Job) error {
		r := newRun(context.Background(), job, cfg, nil)
		r.obs = silent{}
		defer r.close()
		if err := r.prepare(); err != nil {
			return err
		}
		for _, c := range []struct {
			after [][]int
			sums  int
			part  int // of the set is evaluated here at last
		}{
			{[][]int{{0}, {0}}, 1, 1},
			{[][]int{{0, 1, 2}, {0, 1, 2}}, 1, 3},
			{[][]int{{0, 1, 2}, {0, 2}, {0, 2}}, 2, 2},
			{[][]int{{0, 1, 2}, {0, 2}, {0}, {0}}, 3, 1},
		} {
			l := &losing{communicator: r.peers, after: c.after}
			r.peers = l
			tally := r.replica.newTally()
			tally.train.Loss = 5
			all, err := r.loop.evaluateAll(1, &tally)
			if err != nil {
				return err
			}
			whole := r.data.set.Eval.Len()
			if got := int(all.counts.Terms); got < whole/c.part || got > whole/c.part+1 || len(all.words[0]) != got || tally.train.Loss != 5 || l.sums != c.sums {
				t.Errorf("%v: %d of %d samples, %d scores, loss %v, %d sums", c.after, got, whole, len(all.words[0]), tally.train.Loss, l.sums)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
