package collective

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringo-ml/ringo/internal/transport/fault"
	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/transport"
)

// Whatever message of whatever operation meets a fault, every rank ends within
// the timeout, with an error that has the fault as its cause where it happened
// and names it elsewhere.
func TestInjectedFaults(t *testing.T) {
	const size = 4
	operations := map[string]func(g *Group) error{
		"ring": func(g *Group) error { return AllReduce(g, make([]float32, 500), Sum) },
		// with a barrier, because the root of a broadcast receives nothing
		"broadcast": func(g *Group) error {
			return errors.Join(Broadcast(g, make([]float32, 500), 0), Barrier(g))
		},
		"allgather": func(g *Group) error { return AllGather(g, make([]float32, 500), make([]float32, 125)) },
		"allgatherv": func(g *Group) error {
			counts := []int{200, 50, 100, 150}
			return AllGatherV(g, make([]float32, 500), make([]float32, counts[g.Rank()]), counts)
		},
		"barrier": Barrier,
	}
	// with a barrier, because not every rank waits for another in them
	for _, k := range []kind{kindReduceScatter, kindReduce, kindGather, kindScatter, kindAllToAll, kindAllToAllV, kindSend} {
		operations[k.String()] = func(g *Group) error { return errors.Join(runOf(k, g, 40), Barrier(g)) }
	}
	for name, run := range operations {
		for rank := range size {
			for nth := 1; nth < 50; nth += 6 {
				for _, rule := range []fault.Rule{
					{Rank: rank, Peer: fault.Any, Op: fault.Send, Nth: nth, Do: fault.Fail},
					{Rank: rank, Peer: fault.Any, Op: fault.Receive, Nth: nth, Do: fault.Fail},
					{Rank: rank, Peer: fault.Any, Op: fault.Send, Nth: nth, Do: fault.Drop},
				} {
					synctest.Test(t, func(t *testing.T) { injectedFault(t, name, run, size, rule) })
				}
			}
		}
	}
}

func injectedFault(t *testing.T, name string, run func(g *Group) error, size int, rule fault.Rule) {
	meshes := mem.New(size)
	for r := range meshes {
		meshes[r] = fault.Wrap(meshes[r], rule)
	}
	start := time.Now()
	errs := onMeshes(t, meshes, Config{Algorithm: Ring, SegmentBytes: 64, Timeout: time.Minute}, func(g *Group) error {
		for range 50 {
			if err := run(g); err != nil {
				return err
			}
		}
		return Barrier(g)
	})
	if took := time.Since(start); took > 2*time.Minute {
		t.Errorf("%s, %v: took %v", name, rule, took)
	}
	for r, err := range errs {
		want := transport.ErrAborted
		if rule.Do == fault.Drop {
			want = os.ErrDeadlineExceeded // here, and where it was told
		} else if r == rule.Rank {
			want = fault.ErrInjected
		}
		if !errors.Is(err, want) {
			t.Errorf("%s, %v: rank %d: want %v, have %v", name, rule, r, want, err)
		}
	}
	for r, err := range errs {
		if rule.Do == fault.Fail && !strings.Contains(fmt.Sprint(err), rule.String()) {
			t.Errorf("%s, %v: rank %d was not told of it: %v", name, rule, r, err)
		}
	}
}

// Delays alone change nothing: a chain of slow messages takes longer than the
// timeout, which bounds single waits.
func TestSlowIsNotDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		meshes := mem.New(3)
		for r := range meshes {
			meshes[r] = fault.Wrap(meshes[r], fault.Rule{Rank: 1, Peer: fault.Any, Op: fault.Send, Do: fault.Delay, For: 4 * time.Second})
		}
		start := time.Now()
		for r, err := range onMeshes(t, meshes, Config{Algorithm: Ring, SegmentBytes: 64, Timeout: 10 * time.Second}, func(g *Group) error {
			x := filled(g.Rank(), 300)
			if err := AllReduce(g, x, Mean); err != nil {
				return err
			}
			return same("mean", x, serialRing(300, 3, Mean, operand))
		}) {
			if err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		}
		if time.Since(start) < 20*time.Second {
			t.Errorf("it took only %v", time.Since(start))
		}
	})
}
