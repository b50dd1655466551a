package cluster

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringo-ml/ringo/transport"
)

// pipe is a channel in memory, for tests whose time is synctest's.
type pipe struct {
	in, out *lane
	near    bool         // both ends are on one host
	down    *atomic.Bool // what is sent is lost
}

// lane is one direction.
type lane struct {
	messages chan message
	ended    chan struct{}
	once     sync.Once
}

func newLane() *lane { return &lane{messages: make(chan message, 100), ended: make(chan struct{})} }

func (l *lane) end() { l.once.Do(func() { close(l.ended) }) }

func pipes() (a, b *pipe) {
	x, y := newLane(), newLane()
	down := new(atomic.Bool)
	return &pipe{in: x, out: y, down: down}, &pipe{in: y, out: x, down: down}
}

func (p *pipe) send(m message, timeout time.Duration) error {
	if p.down.Load() {
		return nil
	}
	select {
	case <-p.out.ended:
		return io.ErrClosedPipe
	case p.out.messages <- m:
		return nil
	case <-time.After(timeout):
		return transport.ErrTimeout
	}
}

func (p *pipe) receive(timeout time.Duration) (message, error) {
	select { // what was sent before the end comes before it
	case m := <-p.in.messages:
		return m, nil
	default:
	}
	var late <-chan time.Time
	if timeout > 0 {
		late = time.After(timeout)
	}
	select {
	case m := <-p.in.messages:
		return m, nil
	case <-p.in.ended:
		return message{}, io.EOF
	case <-late:
		return message{}, transport.ErrTimeout
	}
}

func (p *pipe) finish()                   { p.out.end() }
func (p *pipe) within() bool              { return p.near }
func (p *pipe) close() error              { p.out.end(); p.in.end(); return nil }
func (p *pipe) traffic() (int64, int64)   { return 0, 0 }
func (nowhere) Accept() (net.Conn, error) { return nil, net.ErrClosed }
func (nowhere) Close() error              { return nil }
func (nowhere) Addr() net.Addr            { return nowhere{} }
func (nowhere) Network() string           { return "none" }
func (nowhere) String() string            { return "nowhere:1" }

// nowhere is a listener, and an address, that nobody reaches.
type nowhere struct{}

// scene is a job in memory.
type scene struct {
	*Coordinator
	members []*Member
	down    []*atomic.Bool // of their links
	mu      sync.Mutex
	lines   []string
}

// reports returns the lines reported so far.
func (s *scene) reports() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lines)
}

// play runs fn on a job of n ranks in a bubble whose time passes at once; it
// fails if a goroutine is left when all is closed.
func play(t *testing.T, n int, fn func(*testing.T, *scene)) {
	synctest.Test(t, func(t *testing.T) {
		s := &scene{members: make([]*Member, n)}
		cfg := CoordinatorConfig{Listener: nowhere{}, WorldSize: n, HostRank: -1}
		cfg.Report = func(l string) { s.mu.Lock(); defer s.mu.Unlock(); s.lines = append(s.lines, l) }
		cfg.setDefaults()
		s.Coordinator = newCoordinator(cfg)
		var wg sync.WaitGroup
		for r := range n {
			mine := MemberConfig{Rank: r, WorldSize: n, Rendezvous: "nowhere:1"}
			mine.Times = mine.Times.WithDefaults()
			a, b := pipes()
			s.members[r], s.down = newMember(mine, a, nowhere{}), append(s.down, a.down)
			go s.seat(r, b, nil)
			wg.Go(func() {
				if err := s.members[r].join(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		fn(t, s)
		for _, m := range s.members {
			m.Leave("")
		}
		s.Close()
	})
}

func TestQuietJobGoesOn(t *testing.T) {
	play(t, 3, func(t *testing.T, s *scene) {
		time.Sleep(24 * time.Hour)
		if s.Err() != nil || s.members[1].Err() != nil || len(s.reports()) > 0 {
			t.Error(s.Err(), s.members[1].Err(), s.reports())
		}
	})
}

// What several ranks say is reported once, and not without end.
func TestRanksReport(t *testing.T) {
	play(t, 3, func(t *testing.T, s *scene) {
		for _, m := range s.members {
			m.Report("the disk is full")
			m.Report("and old")
		}
		synctest.Wait()
		lines := s.reports()
		if slices.Sort(lines); !slices.Equal(lines, []string{"and old", "the disk is full"}) {
			t.Errorf("reports: %q", lines)
		}
		for i := range 2 * maxTold {
			s.members[0].Report(strings.Repeat("x", i))
			synctest.Wait()
		}
		if n := len(s.reports()); n != maxTold {
			t.Errorf("%d lines are reported", n)
		}
	})
}

// A rank without a heartbeat is lost after 10 s.
func TestSilentRank(t *testing.T) {
	play(t, 3, func(t *testing.T, s *scene) {
		start := time.Now()
		close(s.members[2].closing) // its heart stops, its connection stays
		s.members[2].leaving.Do(func() {})
		got := <-s.members[0].Lost()
		if took := time.Since(start); took < 9*time.Second || took > 11*time.Second {
			t.Errorf("after %v", took)
		}
		if got.Error() != "rank 2 is lost: no sign of life for 10s" {
			t.Error(got)
		}
		s.members[2].ch.close()
	})
}

// A coordinator whose host vanished is gone after 10 s.
func TestSilentCoordinator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := MemberConfig{Rank: 0, WorldSize: 1, Rendezvous: "nowhere:1", Times: Times{}.WithDefaults()}
		a, b := pipes()
		m := newMember(cfg, a, nowhere{})
		b.send(message{Kind: kindRoster, Peer: -1, Addrs: []string{"nowhere:1"}}, time.Second)
		if err := m.join(t.Context()); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		err := <-m.Lost()
		if took := time.Since(start); took < 9*time.Second || took > 12*time.Second {
			t.Errorf("after %v", took)
		}
		if !errors.Is(err, ErrNoCoordinator) || !strings.Contains(err.Error(), "the launcher at nowhere:1") || !strings.Contains(err.Error(), "no sign of life for 10s") {
			t.Error(err)
		}
		m.Leave("")
	})
}

// A launcher on this host that is silent was stopped, as its connection stands: its ranks wait for it.
func TestSilentLauncher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, host := range []int{-1, 1} { // rank 1 coordinates: it is lost
			cfg := MemberConfig{Rank: 0, WorldSize: 2, Rendezvous: "nowhere:1"}
			cfg.Times = cfg.Times.WithDefaults()
			a, b := pipes()
			a.near = true
			m := newMember(cfg, a, nowhere{})
			b.send(message{Kind: kindRoster, Peer: host, Addrs: []string{"nowhere:1", "nowhere:1"}}, time.Second)
			if err := m.join(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(90 * time.Second) // the lane has room for as many messages
			if err := m.Err(); (err == nil) != (host < 0) {
				t.Errorf("coordinated by %d: %v", host, err)
			}
			b.close()
			if err := <-m.Lost(); !errors.Is(err, ErrNoCoordinator) {
				t.Error(err)
			}
			m.Leave("")
		}
	})
}

// The rank at the root of a chain of waits is reported with what it does, at
// 5 s and then ever more rarely, and lives.
func TestSlowRank(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		for r, m := range s.members {
			since := time.Now()
			m.SetWaiting(func() (Wait, bool) { return Wait{Peer: (r + 3) % 4, Since: since, In: "allreduce 7"}, r != 2 })
		}
		s.members[2].SetStatus("evaluating")
		time.Sleep(4900 * time.Millisecond)
		if len(s.reports()) > 0 {
			t.Error("too early:", s.reports())
		}
		time.Sleep(2 * time.Second)
		lines := s.reports()
		if len(lines) != 1 || !strings.HasPrefix(lines[0], "rank 2 is slow: ranks 0, 1 and 3 have been waiting for it in allreduce 7 for ") || !strings.HasSuffix(lines[0], " (evaluating)") {
			t.Errorf("reports: %q", lines)
		}
		time.Sleep(time.Minute)
		if n := len(s.reports()); n < 4 || n > 6 {
			t.Errorf("%d reports: %q", n, s.reports())
		}
		stuck := slices.IndexFunc(s.reports(), func(l string) bool {
			return strings.HasPrefix(l, "allreduce 7 makes no progress, though all ranks are alive: ranks 0, 1 and 3 have been waiting for rank 2 (evaluating) for 30")
		})
		if stuck < 0 {
			t.Errorf("not reported as stuck: %q", s.reports())
		}
		if s.Err() != nil {
			t.Error(s.Err())
		}
	})
}

// Ranks that wait in different operations under one number are all told so.
func TestMismatch(t *testing.T) {
	play(t, 3, func(t *testing.T, s *scene) {
		for r, m := range s.members {
			since, what := time.Now(), []string{"barrier", "allreduce", "barrier"}[r]
			m.SetWaiting(func() (Wait, bool) {
				// Rank 1 is late: heartbeats of one moment are heard one by one, and
				// two are enough for a verdict.
				ok := r != 1 || time.Since(since) > 1500*time.Millisecond
				return Wait{Peer: (r + 1) % 3, Since: since, Begun: []Begun{{7, what}}}, ok
			})
		}
		for r, m := range s.members {
			err := <-m.Lost()
			if err == nil || !strings.HasPrefix(err.Error(), "the ranks differ in operation 7: ranks 0 and 2 in barrier, rank 1 in allreduce;") {
				t.Errorf("rank %d: %v", r, err)
			}
		}
	})
}

// A lost server is named as one.
func TestLostServer(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		s.cfg.Servers = 2
		s.MarkLost(3, "exit status 7")
		if got := <-s.members[0].Lost(); got.Error() != "rank 3 is lost: server 1: exit status 7" {
			t.Error(got)
		}
	})
	play(t, 4, func(t *testing.T, s *scene) {
		s.cfg.Servers = 2
		s.MarkLost(1, "exit status 7")
		if got := <-s.members[0].Lost(); got.Error() != "rank 1 is lost: exit status 7" {
			t.Error(got)
		}
	})
}

// Without a launcher the end of a control connection is proof enough, after a
// moment in which a launcher would have known better.
func TestCutConnection(t *testing.T) {
	play(t, 3, func(t *testing.T, s *scene) {
		start := time.Now()
		s.members[1].ch.close()
		got := <-s.members[0].Lost()
		if got.Error() != "rank 1 is lost: its control connection ended before it left (EOF)" || time.Since(start) != settleDisconnect {
			t.Error(got, time.Since(start))
		}
	})
	play(t, 3, func(t *testing.T, s *scene) {
		s.members[1].ch.close()
		time.Sleep(settleDisconnect / 2)
		s.MarkLost(1, "exit status 7")
		if got := <-s.members[0].Lost(); got.Error() != "rank 1 is lost: exit status 7" {
			t.Error(got)
		}
	})
}

// A rank that fails because of another accuses that one, and one that is only
// asked about a broken link does, too.
func TestAccusations(t *testing.T) {
	link := &transport.Error{Op: "send", Rank: 1, Peer: 2, Err: io.EOF}
	play(t, 3, func(t *testing.T, s *scene) {
		s.members[1].Fail(link)
		s.MarkLost(1, "exit status 1") // the echo
		got := <-s.members[0].Lost()
		if !strings.HasPrefix(got.Error(), "rank 2 is lost: rank 1 reports: ") {
			t.Error(got)
		}
	})
	play(t, 3, func(t *testing.T, s *scene) {
		if got := s.members[1].Verdict(link, time.Minute); !strings.HasPrefix(got.Error(), "rank 2 is lost: rank 1 reports: ") {
			t.Error(got)
		}
	})
	// Rank 2 itself waits for rank 0: the accusation goes there.
	play(t, 4, func(t *testing.T, s *scene) {
		since := time.Now()
		s.members[2].SetWaiting(func() (Wait, bool) { return Wait{Peer: 0, Since: since}, true })
		time.Sleep(3 * time.Second)
		if got := s.members[1].Verdict(link, time.Minute); !strings.HasPrefix(got.Error(), "rank 0 is lost: rank 1 reports: ") {
			t.Error(got)
		}
	})
}

// Verdict returns what it was given when nobody is lost, and no later than
// asked.
func TestVerdictWithoutVerdict(t *testing.T) {
	play(t, 2, func(t *testing.T, s *scene) {
		start, own := time.Now(), errors.New("own fault")
		if got := s.members[0].Verdict(own, 3*time.Second); got != own || time.Since(start) != 3*time.Second {
			t.Error(got, time.Since(start))
		}
		if s.members[0].Verdict(nil, time.Hour) != nil {
			t.Error("an error made of nil")
		}
	})
}

// A coordinator that must go says so, and ranks that stay are not alarmed.
func TestClosing(t *testing.T) {
	play(t, 2, func(t *testing.T, s *scene) {
		start := time.Now()
		s.Close()
		if took := time.Since(start); took < 10*time.Second || took > 10*time.Second+answerTimeout {
			t.Errorf("took %v", took)
		}
		synctest.Wait()
		if err := s.members[0].Err(); err != nil {
			t.Error(err)
		}
	})
}

// After a verdict, ranks that do not hear of it hold up Close only shortly.
func TestCloseAfterVerdict(t *testing.T) {
	play(t, 2, func(t *testing.T, s *scene) {
		s.MarkLost(1, "x")
		start := time.Now()
		s.Close()
		if took := time.Since(start); took > 2*answerTimeout {
			t.Errorf("took %v", took)
		}
		if err := s.members[0].Err(); err == nil || err.Error() != "rank 1 is lost: x" {
			t.Error(err)
		}
	})
}

// A rank that was lost for its silence does not hold up Close at all.
func TestCloseAfterSilence(t *testing.T) {
	play(t, 2, func(t *testing.T, s *scene) {
		close(s.members[1].closing)
		s.members[1].leaving.Do(func() {})
		<-s.members[0].Lost()
		s.members[0].Leave("")
		start := time.Now()
		s.Close()
		if took := time.Since(start); took > 0 {
			t.Errorf("took %v", took)
		}
		s.members[1].ch.close()
	})
}

func TestJoinIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := MemberConfig{WorldSize: 2}
		cfg.Times = cfg.Times.WithDefaults()
		a, b := pipes()
		m := newMember(cfg, a, nowhere{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := m.join(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		m.Leave("")
		b.close()
	})
}
