package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/watch/failure"
	"github.com/ringo-ml/ringo/transport"
)

// placed is a rank's error with its place.
type placed struct{ error }

func (p placed) Place() failure.Position {
	return failure.Position{Where: "in step 7 of epoch 2", Bucket: "bucket 1 (a … b)"}
}
func (p placed) Unwrap() error { return p.error }

// Every member's end comes to the coordinator once, with who it blames, where it was, and also
// after the verdict.
func TestEnds(t *testing.T) {
	leakcheck.Check(t)
	c, cfg := job(t, 5, nil)
	members := joinAll(t, cfg)
	c.MarkLost(4, "killed by signal 9 (SIGKILL)")
	lost := <-members[0].Lost()
	for r, err := range []error{placed{lost}, errors.New("no file"), fmt.Errorf("stopped: %w", context.Canceled), fmt.Errorf("pull: %w", &transport.ServerLostError{Process: "parameter server 3", Addr: "host:1", Reason: "away"})} {
		if !members[r].Fail(err) {
			t.Errorf("rank %d was not heard", r)
		}
		if members[r].Fail(errors.New("again")) {
			t.Errorf("rank %d was heard twice", r)
		}
	}
	place := placed{}.Place()
	want := []failure.Exit{
		{Rank: 0, Cause: "rank 4", Reason: lost.Error(), Place: place},
		{Rank: 1, Reason: "no file"},
		{Rank: 2, Reason: "stopped: context canceled", Stopped: true},
		{Rank: 3, Cause: "parameter server 3", Reason: "away"},
	}
	if got := c.Ends(); !slices.Equal(got, want) {
		t.Errorf("got\n%+v, want\n%+v", got, want)
	}
	for _, m := range members {
		_ = m.Leave("")
	}
}

// Who comes when the job has ended is told, and counts among those whom the loss has ended.
func TestEndBeforeJoining(t *testing.T) {
	leakcheck.Check(t)
	reports := make(chan string, 9)
	c, cfg := job(t, 2, func(c *CoordinatorConfig) { c.Report = func(line string) { reports <- line } })
	c.MarkLost(0, "exit status 3")
	cfg.Rank = 1
	_, err := Join(context.Background(), cfg)
	if !IsVerdict(err) || !errors.Is(err, transport.ErrRefused) || !strings.Contains(err.Error(), "the job has ended: rank 0 is lost: exit status 3") {
		t.Errorf("got %v", err)
	}
	if got := c.Ends(); len(got) != 1 || got[0].Rank != 1 || got[0].Cause != "rank 0" {
		t.Errorf("got %+v", got)
	}
	cfg.Ticket = transport.NewTicket()
	if _, err := Join(context.Background(), cfg); !errors.Is(err, transport.ErrTicket) {
		t.Errorf("got %v", err)
	}
	if line := <-reports; strings.Contains(line, "is lost") { // a stranger alone is news
		t.Errorf("it is told twice: %q", line)
	}
	if IsVerdict(errors.New("x")) || IsVerdict(transport.ErrRefused) || !IsVerdict(&MissingError{}) || !IsVerdict(&transport.ServerLostError{}) {
		t.Error("it knows what it cannot know")
	}
}

// A timeout is one on every rank that is told of the verdict, and no other reason is.
func TestVerdictOfATimeout(t *testing.T) {
	leakcheck.Check(t)
	for _, late := range []bool{true, false} {
		_, cfg := job(t, 3, nil)
		members := joinAll(t, cfg)
		cause := transport.ErrGoodbye
		if late {
			cause = fmt.Errorf("%w after 3s", transport.ErrTimeout)
		}
		fault := &transport.Error{Op: "receive", Rank: 0, Peer: 2, Err: cause}
		go members[0].Verdict(fault, settleSuspect)
		for _, m := range members {
			if err := <-m.Lost(); errors.Is(err, os.ErrDeadlineExceeded) != late || !strings.HasPrefix(err.Error(), "rank 2 is lost: rank 0 reports: ") {
				t.Errorf("late %v: rank %d heard %v", late, m.Rank(), err)
			}
			_ = m.Leave("")
		}
	}
	if !errors.Is(&MissingError{}, os.ErrDeadlineExceeded) {
		t.Error("who waited in vain for others to join has not timed out")
	}
}

// TestLeftEarly names a rank that left in good order as soon as another rank waits for it, on all ranks, and whichever of the two
// the coordinator hears first; without such a rank the job goes on.
func TestLeftEarly(t *testing.T) {
	leakcheck.Check(t)
	for _, leavesFirst := range []bool{true, false} {
		c, cfg := job(t, 4, nil)
		members := joinAll(t, cfg)
		_ = members[3].Leave("")
		fault := &transport.Error{Op: "receive", Rank: 0, Peer: 2, Err: transport.ErrGoodbye}
		if leavesFirst {
			_ = members[2].Leave("allreduce 98")
			if c.Err() != nil {
				t.Fatalf("no rank waits: %v", c.Err())
			}
			go members[0].Verdict(fault, settleSuspect)
		} else {
			go members[0].Verdict(fault, settleSuspect)
			for accused := false; !accused; time.Sleep(time.Millisecond) {
				c.mu.Lock()
				accused = len(c.evidence) > 0
				c.mu.Unlock()
			}
			_ = members[2].Leave("allreduce 98")
		}
		want := "rank 2 ended early: it left the job after allreduce 98, but rank 0 waits for it in an operation: all ranks must start the same operations"
		for _, m := range members[:2] {
			if err := <-m.Lost(); err == nil || err.Error() != want {
				t.Errorf("it leaves first: %v, rank %d: %v", leavesFirst, m.Rank(), err)
			}
			_ = m.Leave("")
		}
	}
}
