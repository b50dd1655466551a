package cluster

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/freeport"
	"github.com/ringo-ml/ringo/transport"
)

// job starts a coordinator on loopback for n ranks.
func job(t *testing.T, n int, set func(*CoordinatorConfig)) (*Coordinator, MemberConfig) {
	t.Helper()
	cfg := CoordinatorConfig{Address: "127.0.0.1:0", WorldSize: n, HostRank: -1, Ticket: transport.NewTicket(), Version: "1"}
	if set != nil {
		set(&cfg)
	}
	c, err := NewCoordinator(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, MemberConfig{Rendezvous: c.Addr().String(), WorldSize: n, Ticket: cfg.Ticket, Version: "1", Times: cfg.Times}
}

// joinAll joins every rank of cfg's job.
func joinAll(t *testing.T, cfg MemberConfig) []*Member {
	t.Helper()
	members := make([]*Member, cfg.WorldSize)
	errs := make([]error, cfg.WorldSize)
	var wg sync.WaitGroup
	for r := range members {
		wg.Go(func() {
			mine := cfg
			mine.Rank = r
			members[r], errs[r] = Join(context.Background(), mine)
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, m := range members {
			m.Leave("")
		}
	})
	return members
}

func TestJoinAndLeave(t *testing.T) {
	c, cfg := job(t, 4, nil)
	members := joinAll(t, cfg)
	for r, m := range members {
		if !reflect.DeepEqual(m.Addrs(), members[0].Addrs()) || len(m.Addrs()) != 4 {
			t.Errorf("rank %d has the addresses %v", r, m.Addrs())
		}
		if m.Addrs()[r] != m.Listener().Addr().String() || !strings.HasPrefix(m.Addrs()[r], "127.0.0.1:") {
			t.Errorf("rank %d listens on %v, the roster says %s", r, m.Listener().Addr(), m.Addrs()[r])
		}
		if tr := m.Traffic(); tr.WireSent == 0 || tr.WireReceived == 0 || m.Rank() != r || m.Size() != 4 {
			t.Errorf("rank %d of %d: traffic %+v", m.Rank(), m.Size(), tr)
		}
	}
	for r, m := range members {
		if err := m.Leave(""); err != nil || !c.HasLeft(r) {
			t.Errorf("rank %d: %v, left %v", r, err, c.HasLeft(r))
		}
	}
	c.MarkLost(2, "too late to matter")
	if c.Err() != nil || members[0].Err() != nil {
		t.Error(c.Err(), members[0].Err())
	}
	again := cfg
	again.Rank = 2
	if _, err := Join(t.Context(), again); !errors.Is(err, transport.ErrRefused) || !strings.Contains(err.Error(), "rank 2 has left this job: a process joins it once") {
		t.Error(err)
	}
}

func TestRefusals(t *testing.T) {
	var mu sync.Mutex
	var reports []string
	coordinator, cfg := job(t, 2, func(c *CoordinatorConfig) {
		c.Report = func(line string) { mu.Lock(); defer mu.Unlock(); reports = append(reports, line) }
	})
	ctx, cancel := context.WithCancel(context.Background())
	first := make(chan error, 1)
	go func() { _, err := Join(ctx, cfg); first <- err }()
	for !joined(coordinator, 0) { // else another would be rank 0
		time.Sleep(time.Millisecond)
	}
	c2 := cfg
	c2.Rank = 1
	for _, c := range []struct {
		name string
		set  func(*MemberConfig)
		is   error
		want string
	}{
		{"ticket", func(m *MemberConfig) { m.Ticket = transport.NewTicket() }, transport.ErrTicket, "rank 1 cannot join at 127.0.0.1:"},
		{"version", func(m *MemberConfig) { m.Version = "2" }, transport.ErrVersion, "ringo 2"},
		{"world size", func(m *MemberConfig) { m.WorldSize = 3 }, transport.ErrRefused, "rank 1 was started for a job of 3 ranks, but the job has 2"},
		{"duplicate", func(m *MemberConfig) { m.Rank = 0 }, transport.ErrRefused, "there is a rank 0 already"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := c2
			c.set(&m)
			_, err := Join(context.Background(), m)
			var de *DialError
			if !errors.Is(err, c.is) || !errors.As(err, &de) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %v and %q", err, c.is, c.want)
			}
		})
	}
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	count := func() int { mu.Lock(); defer mu.Unlock(); return len(reports) }
	for end := time.Now().Add(time.Minute); count() < 4 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	if text := strings.Join(reports, "\n"); count() != 4 || strings.Count(text, "refused a connection from 127.0.0.1:") != 4 {
		t.Errorf("reports:\n%s", text)
	}
}

func TestMissingRanksAreNamed(t *testing.T) {
	t.Parallel()
	c, cfg := job(t, 4, func(c *CoordinatorConfig) { c.Times.Join = 3 * time.Second }) // in which the others join
	errs := make(chan error, 2)
	for _, r := range []int{0, 2} {
		go func() {
			mine := cfg
			mine.Rank = r
			_, err := Join(context.Background(), mine)
			errs <- err
		}()
	}
	want := &MissingError{Ranks: []int{1, 3}, WorldSize: 4, Timeout: 3 * time.Second}
	for range 2 {
		var got *MissingError
		if err := <-errs; !errors.As(err, &got) || !reflect.DeepEqual(got, want) {
			t.Errorf("got %v", err)
		}
	}
	if got := (<-c.Lost()).Error(); !strings.HasPrefix(got, "ranks 1 and 3 of 4 did not join within 3s") {
		t.Error(got)
	}
	late := cfg
	late.Rank = 1
	if _, err := Join(context.Background(), late); !errors.Is(err, transport.ErrRefused) || !strings.Contains(err.Error(), "ranks 1 and 3") {
		t.Errorf("a late rank got %v", err)
	}
}

func TestNoCoordinator(t *testing.T) {
	t.Parallel()
	cfg := MemberConfig{Rendezvous: freeport.Address(t), WorldSize: 1, Ticket: transport.NewTicket(), Version: "1", Times: Times{Join: time.Second}}
	_, err := Join(context.Background(), cfg)
	if err == nil || !strings.Contains(err.Error(), "no coordinator for 1s") || !strings.Contains(err.Error(), "refused") {
		t.Error(err)
	}
}

// Whatever a survivor sees first, all name the rank that the launcher saw die.
// It holds invariant[one-verdict].
func TestVerdict(t *testing.T) {
	c, cfg := job(t, 3, nil)
	members := joinAll(t, cfg)
	members[2].ch.close()
	c.MarkLost(2, "killed by signal 9")
	want := "rank 2 is lost: killed by signal 9"
	echo := &transport.Error{Op: "receive", Rank: 0, Peer: 1, Err: transport.ErrAborted}
	if got := members[0].Verdict(echo, 5*time.Second); got.Error() != want {
		t.Errorf("Verdict: %v", got)
	}
	if got := <-members[1].Lost(); got.Error() != want {
		t.Errorf("Lost: %v", got)
	}
	var lost *transport.LostError
	if !errors.As(members[1].Err(), &lost) || lost.Rank != 2 || c.Err().Error() != want {
		t.Errorf("Err: %v, %v", members[1].Err(), c.Err())
	}
}

// A rank that beats more slowly than the coordinator thinks it dead is refused
// before the job begins, and so is one that would think that of the coordinator.
// Times that only differ are not.
func TestTimesOfRanks(t *testing.T) {
	for _, times := range [][4]time.Duration{
		{time.Second, 30 * time.Second, 40 * time.Second, 10 * time.Minute},
		{40 * time.Second, 10 * time.Minute, time.Second, 30 * time.Second},
	} {
		c, cfg := job(t, 2, func(c *CoordinatorConfig) { c.Times.Heartbeat, c.Times.DeadAfter = times[0], times[1] })
		errs := make([]error, 2)
		var wg sync.WaitGroup
		for r := range errs {
			mine := cfg
			if mine.Rank = r; r == 1 {
				mine.Times.Heartbeat, mine.Times.DeadAfter = times[2], times[3]
			}
			wg.Go(func() { _, errs[r] = Join(t.Context(), mine) })
		}
		wg.Wait()
		for r, err := range append(errs, c.Err()) {
			if err == nil || !strings.Contains(err.Error(), "rank 1 has a heartbeat of "+times[2].String()) || !strings.Contains(err.Error(), times[1].String()) {
				t.Errorf("times %v, rank %d: %v", times, r, err)
			}
		}
	}
	_, cfg := job(t, 2, func(c *CoordinatorConfig) { c.Times.Heartbeat, c.Times.DeadAfter = time.Second, 10*time.Second })
	cfg.Times.Heartbeat, cfg.Times.DeadAfter = 5*time.Second, time.Minute
	joinAll(t, cfg)
}

func TestFail(t *testing.T) {
	_, cfg := job(t, 3, nil)
	members := joinAll(t, cfg)
	members[1].Fail(errors.New("disk full"))
	members[1].Leave("")
	if got := <-members[0].Lost(); got.Error() != "rank 1 is lost: it failed: disk full" {
		t.Error(got)
	}
	if got := members[1].Verdict(errors.New("x"), time.Millisecond); got.Error() != "x" {
		t.Error(got)
	}
}

func joined(c *Coordinator, rank int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.members[rank].state == seatJoined
}

// A rank that gives up while it waits for others is not waited for.
// The loss of a process outside the mesh is no rank's fault: whoever finds it, all are told that, and so is who starts
// processes.
func TestLostOutsideMesh(t *testing.T) {
	for by, want := range map[string]transport.ServerLostError{
		"a rank":       {Process: "parameter server 1", Addr: "host:5000", Reason: "no sign of life for 3s"},
		"the launcher": {Process: "parameter server 1", Addr: "host:5000", Reason: "no sign of life for 3s"},
		"nobody else":  {Process: "helper 0", Reason: "exit status 3"}, // could: it listens nowhere
	} {
		c, cfg := job(t, 3, nil)
		members := joinAll(t, cfg)
		if by == "a rank" {
			members[1].Fail(fmt.Errorf("epoch 3: %w", &want))
		} else {
			c.MarkServerLost(want.Process, want.Addr, want.Reason)
		}
		verdicts := []error{<-c.Lost(), <-members[0].Lost(), <-members[2].Lost()}
		members[2].Fail(errors.New("a fault that follows"))
		c.MarkLost(2, "exit status 1")
		for _, err := range append(verdicts, c.Err()) {
			var got *transport.ServerLostError
			if !errors.As(err, &got) || *got != want || errors.As(err, new(*transport.LostError)) {
				t.Errorf("%s: got %v", by, err)
			}
		}
	}
}

func TestGivesUpJoining(t *testing.T) {
	c, cfg := job(t, 3, nil)
	ctx, cancel := context.WithCancel(context.Background())
	errs := make([]error, 2)
	var wg sync.WaitGroup
	for r, ctx := range []context.Context{context.Background(), ctx} {
		wg.Go(func() {
			mine := cfg
			mine.Rank = r
			_, errs[r] = Join(ctx, mine)
		})
	}
	for !joined(c, 0) || !joined(c, 1) {
		time.Sleep(time.Millisecond)
	}
	cancel()
	wg.Wait()
	var lost *transport.LostError
	if !errors.As(errs[0], &lost) || lost.Rank != 1 || !errors.Is(errs[1], context.Canceled) {
		t.Errorf("rank 0: %v; rank 1: %v", errs[0], errs[1])
	}
}

// When the coordinator lives in a rank, its end is that rank's.
func TestCoordinatorDies(t *testing.T) {
	c, cfg := job(t, 2, func(c *CoordinatorConfig) { c.HostRank = 0 })
	members := joinAll(t, cfg)
	c.hangUp(everyone)
	var lost *transport.LostError
	if err := <-members[1].Lost(); !errors.As(err, &lost) || lost.Rank != 0 || !errors.Is(err, ErrNoCoordinator) {
		t.Error(err)
	}
}

// Close waits for the ranks that are still in the job.
func TestCloseWaits(t *testing.T) {
	c, cfg := job(t, 2, nil)
	members := joinAll(t, cfg)
	done := make(chan struct{})
	go func() { c.Close(); close(done) }()
	members[0].Leave("")
	select {
	case <-done:
		t.Fatal("the coordinator left a rank behind")
	case <-time.After(50 * time.Millisecond):
	}
	members[1].Leave("")
	<-done
	if members[1].Err() != nil {
		t.Error(members[1].Err())
	}
}

// A program that does not use the library may end; one whose peers wait may not.
func TestMarkEnded(t *testing.T) {
	c, cfg := job(t, 2, nil)
	c.MarkEnded(1)
	if c.Err() != nil {
		t.Fatal(c.Err())
	}
	_, err := Join(context.Background(), cfg)
	var lost *transport.LostError
	if !errors.As(err, &lost) || lost.Rank != 1 || lost.Error() != "rank 1 ended early: its process ended with status 0 before it joined the job" {
		t.Error(err)
	}
}

func TestValidate(t *testing.T) {
	err := MemberConfig{Rank: 4, WorldSize: 4, Rendezvous: "0.0.0.0:7", Times: Times{Heartbeat: time.Second, DeadAfter: time.Second, Join: -1}}.Validate()
	for _, want := range []string{"rank 4: want 0 to 3", `"0.0.0.0:7"`, "job.heartbeat-timeout 1s: want at least twice Times.Heartbeat, which is 1s", "job.join-timeout -1ns", "no ticket"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	for _, bad := range []string{"", "host", ":7", "[::]:7", "host:0", "host:"} {
		if checkRendezvous(bad) == nil {
			t.Errorf("rendezvous %q was accepted", bad)
		}
	}
	err = CoordinatorConfig{Servers: -1, HostRank: -2, SlowAfter: -1}.Validate()
	for _, want := range []string{"world size 0", "-1 servers in a mesh of 0: want 0 to 0", "host rank -2", "neither Listener nor Address", "slow after -1ns", "no ticket"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
}
