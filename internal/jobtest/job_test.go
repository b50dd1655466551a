// Package jobtest tests jobs of several ranks by the public API of package ringo.
package jobtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/freeport"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/transport"
)

// The test binary is also a rank that kills itself in the middle of a job.
const vanishVar = "RINGO_TEST_VANISH"

func TestMain(m *testing.M) {
	if os.Getenv(vanishVar) == "" {
		os.Exit(m.Run())
	}
	err := ringo.Run(context.Background(), ringo.Config{}, func(job *ringo.Job) error {
		if err := exchange(job); err != nil {
			return err
		}
		self, err := os.FindProcess(os.Getpid())
		if err != nil {
			return err
		}
		_ = self.Kill()
		select {}
	})
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

var (
	errBoom = errors.New("shard 7 is missing")
	errStop = errors.New("the user has had enough")
)

// exchange is a sum over the ranks, checked.
func exchange(job *ringo.Job) error {
	const n = 1000
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(job.Rank())
	}
	if err := collective.AllReduce(job.Group(), x, collective.Sum); err != nil {
		return err
	}
	want := float32(job.Size() * (job.Size() - 1) / 2)
	if i := slices.IndexFunc(x, func(v float32) bool { return v != want }); i >= 0 {
		return fmt.Errorf("value %d is %v, want %v", i, x[i], want)
	}
	return nil
}

// exchangeOn is a rank that ends only when others do.
func exchangeOn(job *ringo.Job) error {
	for {
		if err := exchange(job); err != nil {
			return err
		}
	}
}

// byHand places n ranks on a free port of loopback and gives them a ticket.
func byHand(t *testing.T, n int) []ringo.Config {
	t.Helper()
	t.Setenv(launch.TicketVar, transport.NewTicket().String())
	address := freeport.Address(t)
	cfgs := make([]ringo.Config, n)
	for r := range cfgs {
		cfgs[r] = ringo.Config{Size: n, Rank: r, Rendezvous: address}
	}
	return cfgs
}

// within is await for a function.
func within(t *testing.T, fn func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); fn() }()
	await(t, done)
}

// start runs fn on the ranks of cfgs; their errors come in that order.
func start(ctx context.Context, cfgs []ringo.Config, fn func(*ringo.Job) error) <-chan []error {
	out := make(chan []error, 1)
	go func() {
		errs := make([]error, len(cfgs))
		var wg sync.WaitGroup
		for i, cfg := range cfgs {
			wg.Go(func() { errs[i] = ringo.Run(ctx, cfg, fn) })
		}
		wg.Wait()
		out <- errs
	}()
	return out
}

// patience is longer than any of these tests takes on a machine that others use, too.
const patience = 2 * time.Minute

// await fails the test when out takes longer than any of these tests should.
func await[T any](t *testing.T, out <-chan T) T {
	t.Helper()
	select {
	case v := <-out:
		return v
	case <-time.After(patience):
		t.Fatalf("no end after %v", patience)
		panic("not reached")
	}
}

// runAll is start and await.
func runAll(t *testing.T, cfgs []ringo.Config, fn func(*ringo.Job) error) []error {
	t.Helper()
	return await(t, start(t.Context(), cfgs, fn))
}

// checkLost wants every error to blame rank, for the reason why.
func checkLost(t *testing.T, errs []error, rank int, why string) {
	t.Helper()
	for _, err := range errs {
		var lost *transport.LostError
		if !errors.As(err, &lost) || lost.Rank != rank || !strings.Contains(err.Error(), why) {
			t.Errorf("got %v, want rank %d lost and %q", err, rank, why)
		}
	}
}

func checkText(t *testing.T, err error, want ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want %q", want)
		return
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("got %q, want %q in it", err, w)
		}
	}
}

func TestAlone(t *testing.T) {
	leakcheck.Check(t)
	job, err := ringo.Join(t.Context(), ringo.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if job.Rank() != 0 || job.Size() != 1 || job.LocalRank() != 0 || job.Columns() != 0 || job.Transport() != "mem" {
		t.Errorf("rank %d of %d, local %d, %d columns, over %s", job.Rank(), job.Size(), job.LocalRank(), job.Columns(), job.Transport())
	}
	job.SetStatus("testing")
	if err := exchange(job); err != nil || job.Traffic() != (transport.Traffic{}) {
		t.Errorf("%v, traffic %+v", err, job.Traffic())
	}
	if job.Context().Err() != nil {
		t.Error("the context ended before the job")
	}
	if err := job.Close(); err != nil || job.Context().Err() == nil {
		t.Errorf("%v, the context goes on: %v", err, job.Context().Err() == nil)
	}
	if err := exchange(job); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestByHand(t *testing.T) {
	leakcheck.Check(t)
	var mu sync.Mutex
	seen := map[int]bool{}
	cfgs := byHand(t, 3)
	for r := range cfgs {
		cfgs[r].Transport, cfgs[r].Collective.Algorithm = ringo.TransportTCP, collective.Ring
	}
	for _, err := range runAll(t, cfgs, func(job *ringo.Job) error {
		mu.Lock()
		seen[job.Rank()] = true
		mu.Unlock()
		if job.Size() != 3 || job.LocalRank() != job.Rank() || job.Transport() != "tcp" {
			return fmt.Errorf("size %d, local rank %d, over %s", job.Size(), job.LocalRank(), job.Transport())
		}
		job.SetStatus("testing")
		before := job.Traffic()
		if err := exchange(job); err != nil {
			return err
		}
		after := job.Traffic()
		want := int64(4 * 2 * 1000) // by ring, less two chunks of three
		for next := 1; next <= 2; next++ {
			lo, hi := collective.RingChunk(1000, 3, (job.Rank()+next)%3)
			want -= int64(4 * (hi - lo))
		}
		if sent := after.PayloadSent - before.PayloadSent; sent != want {
			return fmt.Errorf("rank %d sent %d bytes, want %d", job.Rank(), sent, want)
		}
		if before.WireSent == 0 || after.WireSent <= before.WireSent+want || after.WireReceived == 0 {
			return fmt.Errorf("rank %d: wire bytes %+v, then %+v", job.Rank(), before, after)
		}
		return nil
	}) {
		if err != nil {
			t.Error(err)
		}
	}
	if len(seen) != 3 {
		t.Errorf("ranks %v ran", seen)
	}
}

// Both the rank that coordinates and one that does not.
func TestRankFails(t *testing.T) {
	for _, bad := range []int{0, 2} {
		t.Run(fmt.Sprint("rank ", bad), func(t *testing.T) {
			leakcheck.Check(t)
			errs := runAll(t, byHand(t, 3), func(job *ringo.Job) error {
				if err := exchange(job); err != nil {
					return err
				}
				if job.Rank() == bad {
					return errBoom
				}
				return exchangeOn(job)
			})
			if errs[bad] != errBoom {
				t.Errorf("rank %d itself: %v", bad, errs[bad])
			}
			checkLost(t, slices.Delete(errs, bad, bad+1), bad, errBoom.Error())
		})
	}
}

func TestRankVanishes(t *testing.T) {
	for _, bad := range []int{0, 1} {
		t.Run(fmt.Sprint("rank ", bad), func(t *testing.T) {
			leakcheck.Check(t)
			cfgs := byHand(t, 3)
			child := exec.Command(os.Args[0])
			child.Stderr = t.Output()
			child.Env = append(os.Environ(), vanishVar+"=1", launch.RankVar+"="+fmt.Sprint(bad),
				launch.WorldSizeVar+"=3", launch.RendezvousVar+"="+cfgs[bad].Rendezvous)
			if err := child.Start(); err != nil {
				t.Fatal(err)
			}
			errs := runAll(t, slices.Delete(cfgs, bad, bad+1), exchangeOn)
			if err := child.Wait(); err == nil || child.ProcessState.Exited() {
				t.Errorf("the child was not killed: %v", err)
			}
			checkLost(t, errs, bad, fmt.Sprintf("rank %d is lost", bad))
		})
	}
}

// A rank that leaves while others still need it is named, too.
func TestRankLeavesEarly(t *testing.T) {
	leakcheck.Check(t)
	errs := runAll(t, byHand(t, 2), func(job *ringo.Job) error {
		if job.Rank() == 1 {
			return nil
		}
		return exchange(job)
	})
	if errs[1] != nil {
		t.Error(errs[1])
	}
	checkLost(t, errs[:1], 1, "left")
}

// shortLoop makes 20 sums, or one less on the last rank.
func shortLoop(job *ringo.Job) error {
	steps := 20
	if job.Rank() == job.Size()-1 {
		steps--
	}
	x := make([]float32, 100)
	for range steps {
		if err := collective.AllReduce(job.Group(), x, collective.Sum); err != nil {
			return err
		}
	}
	return nil
}

// TestShortLoopIsNamedFirst begins the error of each rank with the rank whose loop is shorter, with
// the last operation of that rank and the one that waits.
func TestShortLoopIsNamedFirst(t *testing.T) {
	leakcheck.Check(t)
	for _, n := range []int{2, 4} {
		errs := runAll(t, byHand(t, n), shortLoop)
		if last := errs[n-1]; last != nil {
			t.Errorf("%d ranks: the one that ends: %v", n, last)
		}
		for rank, err := range append(errs[:n-1], ringo.Local(t.Context(), n, ringo.Config{}, shortLoop)) {
			want := fmt.Sprintf(`^rank %d ended early: it left the job after allreduce 18, but rank \d waits for it in allreduce 19: `+
				`all ranks must start the same operations; rank \d ended because of it: allreduce 19 on rank \d, at message \S+ with rank \d$`, n-1)
			if err == nil || !regexp.MustCompile(want).MatchString(err.Error()) {
				t.Errorf("%d ranks, rank %d: %v", n, rank, err)
			}
		}
	}
}

// TestIgnoredErrorEndsTheJob ends the other ranks of a job if one ignores that an operation failed,
// and closes the job.
func TestIgnoredErrorEndsTheJob(t *testing.T) {
	leakcheck.Check(t)
	errs := runAll(t, byHand(t, 3), func(job *ringo.Job) error {
		switch job.Rank() {
		case 0: // waits for no other rank
			<-job.Context().Done()
			return context.Cause(job.Context())
		case 1:
			if collective.Receive(job.Group(), make([]float32, 1), 2) == nil {
				return errors.New("a message that no rank has sent")
			}
		}
		return nil
	})
	want := "rank 2 ended early: it left the job, but rank 1 waits for it in receive 0: all ranks must start the same operations"
	if errs[0] == nil || !strings.HasPrefix(errs[0].Error(), want) {
		t.Errorf("got %v", errs[0])
	}
}

// join makes rank r of cfgs' job a member of the cluster and no more.
func join(t *testing.T, cfg ringo.Config) *cluster.Member {
	t.Helper()
	ticket, err := transport.ParseTicket(os.Getenv(launch.TicketVar))
	if err != nil {
		t.Fatal(err)
	}
	m, err := cluster.Join(t.Context(), cluster.MemberConfig{
		Rendezvous: cfg.Rendezvous, Ticket: ticket, Version: ringo.Version, Rank: cfg.Rank, WorldSize: cfg.Size,
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// A rank that is lost after all have joined and before all are connected ends
// the others' Join.
func TestRankIsLostWhileConnecting(t *testing.T) {
	leakcheck.Check(t)
	cfgs := byHand(t, 3)
	errs := start(t.Context(), cfgs[:2], exchange)
	m := join(t, cfgs[2])
	m.Fail(errBoom)
	_ = m.Leave("")
	checkLost(t, await(t, errs), 2, errBoom.Error())
}

// A rank that cannot connect does not let the others wait for it.
func TestConnectingFails(t *testing.T) {
	leakcheck.Check(t)
	cfg := byHand(t, 2)[1]
	ticket, _ := transport.ParseTicket(os.Getenv(launch.TicketVar))
	c, err := cluster.NewCoordinator(cluster.CoordinatorConfig{
		Address: cfg.Rendezvous, WorldSize: 2, HostRank: -1, Ticket: ticket, Version: ringo.Version,
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Times.Join = 3 * time.Second // to join, and to fail to connect
	errs := start(t.Context(), []ringo.Config{cfg}, exchange)
	other := cfg
	other.Rank = 0
	m := join(t, other)
	_ = m.Listener().Close()
	checkText(t, await(t, errs)[0], "no connection with rank 0")
	checkLost(t, []error{await(t, m.Lost())}, 1, "it failed")
	_, _ = m.Leave(""), c.Close()
}

func TestWrongTicket(t *testing.T) {
	leakcheck.Check(t)
	cfgs := byHand(t, 2)
	reports := make(chan string, 10)
	cfgs[0].Report = func(line string) { reports <- line }
	ctx, cancel := context.WithCancelCause(t.Context())
	first := make(chan error, 1)
	go func() { _, err := ringo.Join(ctx, cfgs[0]); first <- err }()
	within(t, func() { // until rank 0 has read its ticket and listens
		for {
			if conn, err := net.Dial("tcp", cfgs[0].Rendezvous); err == nil {
				_ = conn.Close()
				return
			}
			time.Sleep(time.Millisecond)
		}
	})
	t.Setenv(launch.TicketVar, transport.NewTicket().String())
	_, err := ringo.Join(t.Context(), cfgs[1])
	if !errors.Is(err, transport.ErrTicket) {
		t.Errorf("got %v", err)
	}
	checkText(t, err, "rank 1", cfgs[1].Rendezvous)
	within(t, func() {
		for !strings.Contains(<-reports, transport.ErrTicket.Error()) {
		}
	})
	cancel(errStop)
	if err := await(t, first); !errors.Is(err, errStop) {
		t.Errorf("rank 0: %v", err)
	}
}

func TestConfig(t *testing.T) {
	leakcheck.Check(t)
	for _, c := range []struct {
		cfg  ringo.Config
		want []string
	}{
		{ringo.Config{Size: -1}, []string{"job.ranks -1"}},
		{ringo.Config{Rank: 1}, []string{"job.rank 1", "needs job.ranks"}},
		{ringo.Config{Rendezvous: "host:1"}, []string{`job.rendezvous "host:1"`, "needs job.ranks"}},
		{ringo.Config{Size: 2, Rank: 2, Rendezvous: "host:1"}, []string{"rank 2: want 0 to 1"}},
		{ringo.Config{Size: 2, Rank: -1}, []string{"rank -1", `rendezvous ""`}},
		{ringo.Config{Size: 2, Rendezvous: "host"}, []string{`rendezvous "host": want HOST:PORT`}},
		{ringo.Config{Size: 2, Rendezvous: "host:"}, []string{`rendezvous "host:"`}},
		{ringo.Config{Size: 1, Rendezvous: "127.0.0.1:0"}, []string{`"127.0.0.1:0"`, "port"}},
		{ringo.Config{Size: 1, Rendezvous: ":4000"}, []string{`":4000"`, "host"}},
		{ringo.Config{Times: cluster.Times{Join: -time.Second}}, []string{"job.join-timeout -1s"}},
		{ringo.Config{Collective: collective.Config{Algorithm: "star"}}, []string{`"star"`}},
		{ringo.Config{Collective: collective.Config{Ranks: []int{0, 1}, ID: 3}}, []string{"ranks [0 1]", "Job.Subgroup", "id 3"}},
	} {
		_ = byHand(t, 1)
		_, err := ringo.Join(t.Context(), c.cfg)
		checkText(t, err, append(c.want, "joining the job")...)
	}
}

func TestVariables(t *testing.T) {
	const secret = "0123456789abcdef"
	good := map[string]string{
		launch.RankVar: "0", launch.WorldSizeVar: "1", launch.RendezvousVar: "127.0.0.1:1",
		launch.TicketVar: strings.Repeat(secret, 4),
	}
	for _, c := range []struct {
		name, value string
		want        []string
	}{
		{launch.RankVar, "x", []string{`RINGO_RANK="x"`}},
		{launch.RankVar, "1", []string{"RINGO_RANK=1: want less than RINGO_WORLD_SIZE=1"}},
		{launch.WorldSizeVar, "", []string{"RINGO_WORLD_SIZE is not set"}},
		{launch.LocalRankVar, "-1", []string{`RINGO_LOCAL_RANK="-1"`}},
		{launch.RendezvousVar, "here", []string{`RINGO_RENDEZVOUS="here"`}},
		{launch.TicketVar, secret, []string{"RINGO_TICKET", "64"}},
		{launch.CoordinatorVar, "me", []string{`RINGO_COORDINATOR="me"`}},
	} {
		t.Run(c.name+"="+c.value, func(t *testing.T) {
			for name, value := range good {
				t.Setenv(name, value)
			}
			t.Setenv(c.name, c.value)
			_, err := ringo.Join(t.Context(), ringo.Config{})
			checkText(t, err, c.want...)
			if err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("%v: shows the ticket", err)
			}
		})
	}
	t.Run("another launcher's", func(t *testing.T) {
		t.Setenv("WORLD_SIZE", "2")
		t.Setenv("RANK", "1")
		err := ringo.Run(t.Context(), ringo.Config{}, func(*ringo.Job) error { return nil })
		checkText(t, err, "joining the job", "torchrun's variables", "MASTER_ADDR is not set")
	})
	t.Run("one of several alone", func(t *testing.T) {
		t.Setenv("WORLD_SIZE", "2")
		err := ringo.Run(t.Context(), ringo.Config{}, func(*ringo.Job) error { return nil })
		checkText(t, err, "joining the job", "WORLD_SIZE=2: no other variable places this process")
	})
	t.Run("from elsewhere", func(t *testing.T) {
		t.Setenv(launch.RankVar, "x")
		lookup := func(name string) (string, bool) { v, ok := good[name]; return v, ok && name != launch.WorldSizeVar }
		_, err := ringo.Join(t.Context(), ringo.Config{Lookup: lookup})
		checkText(t, err, "RINGO_WORLD_SIZE is not set, but RINGO_RANK is")
	})
	t.Setenv(launch.TicketVar, "")
	_, err := ringo.Join(t.Context(), ringo.Config{Size: 2, Rendezvous: "127.0.0.1:1"})
	checkText(t, err, "RINGO_TICKET is not set")
}

func TestRankNeverComes(t *testing.T) {
	leakcheck.Check(t)
	cfgs := byHand(t, 3)
	for r := range cfgs {
		cfgs[r].Times.Join = 3 * time.Second // in which the others join
	}
	for _, err := range runAll(t, []ringo.Config{cfgs[0], cfgs[2]}, exchange) {
		var missing *cluster.MissingError
		if !errors.As(err, &missing) || !slices.Equal(missing.Ranks, []int{1}) {
			t.Errorf("got %v", err)
		}
		checkText(t, err, "rank 1 of 3", "3s")
	}
	cfgs[1].Times.Join = 300 * time.Millisecond
	checkText(t, runAll(t, cfgs[1:2], exchange)[0], "rank 1 cannot join at "+cfgs[1].Rendezvous, "is the launcher, or rank 0, running there")
}

func TestBusyPort(t *testing.T) {
	leakcheck.Check(t)
	cfg := byHand(t, 1)[0]
	l, err := net.Listen("tcp", cfg.Rendezvous)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = ringo.Join(t.Context(), cfg)
	checkText(t, err, cfg.Rendezvous, "address already in use")
}

// Of a rank that waits for others, and of one that waits for the coordinator.
func TestCancelWhileJoining(t *testing.T) {
	for rank := range 2 {
		t.Run(fmt.Sprint("rank ", rank), func(t *testing.T) {
			leakcheck.Check(t)
			cfg := byHand(t, 2)[rank]
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(20*time.Millisecond, func() { cancel(errStop) })
			within(t, func() {
				_, err := ringo.Join(ctx, cfg)
				checkText(t, err, fmt.Sprintf("rank %d gave up joining the job at %s", rank, cfg.Rendezvous))
				if !errors.Is(err, errStop) {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

// Rank 1 is cancelled while it waits for rank 2 in an allreduce. All others
// learn who ended the job and why, those that wait for nobody through their
// context.
func TestCancelInAllReduce(t *testing.T) {
	leakcheck.Check(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cfgs := byHand(t, 3)
	others := start(t.Context(), []ringo.Config{cfgs[0], cfgs[2]}, func(job *ringo.Job) error {
		if err := exchange(job); err != nil { // all have joined
			return err
		}
		if job.Rank() == 2 {
			cancel(errStop)
			<-job.Context().Done()
			return context.Cause(job.Context())
		}
		return exchange(job)
	})
	if err := await(t, start(ctx, cfgs[1:2], exchangeOn))[0]; !errors.Is(err, errStop) {
		t.Errorf("rank 1: %v", err)
	}
	checkLost(t, await(t, others), 1, errStop.Error())
}

// Ranks that encrypt everything agree as others do.
func TestEncryptedRanks(t *testing.T) {
	leakcheck.Check(t)
	cfgs := byHand(t, 3)
	for i := range cfgs {
		cfgs[i].Transport, cfgs[i].Network.TLS.Mode = ringo.TransportTCP, transport.TLSOn
	}
	if err := errors.Join(await(t, start(t.Context(), cfgs, exchange))...); err != nil {
		t.Error(err)
	}
}
