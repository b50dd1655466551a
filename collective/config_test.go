package collective

import (
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/transport/mem"
)

func TestValidateReportsAll(t *testing.T) {
	if err := (Config{}).Validate(); err != nil {
		t.Fatal(err)
	}
	bad := Config{Algorithm: "star", Timeout: -time.Second, SegmentBytes: 3, InFlight: 65, SlowAfter: -1}
	_, err := New(mem.New(1)[0], bad)
	for _, want := range []string{`"star"`, "-1s", "bytes 3", "flight 65", "-1ns"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %s: %v", want, err)
		}
	}
}

// Mistakes of the caller are told at once, and leave the group as it was.
func TestMisuse(t *testing.T) {
	onRanks(t, 2, Config{}, func(g *Group) error {
		for name, got := range map[string]error{
			"mean":          AllReduce(g, []int32{1}, Mean),
			"op":            AllReduce(g, []float32{1}, ReduceOp(7)),
			"root 2":        Broadcast(g, []uint8{1}, 2),
			"counts":        AllGatherV(g, make([]int32, 3), make([]int32, 3), []int{3}),
			"rank 1":        AllGatherV(g, make([]int32, 3), make([]int32, 2), []int{2, 2}),
			"sum":           AllGatherV(g, make([]int32, 5), make([]int32, 2), []int{2, 2}),
			"src 1":         AllGatherV(g, make([]int32, 4), make([]int32, 1), []int{2, 2}),
			"dst":           AllGather(g, make([]int64, 3), make([]int64, 2)),
			"lists 1":       AllGatherTo(g, make([][]int64, 1), make([]int64, 2)),
			"dst of rank 1": AllGatherTo(g, [][]int64{make([]int64, 2), make([]int64, 3)}, make([]int64, 2)),
		} {
			if op := asOpError(t, got); op.Peer != g.Rank() || !strings.Contains(strings.ToLower(got.Error()), name) {
				t.Errorf("%s: %v", name, got)
			}
		}
		return Barrier(g)
	})
}

func TestWaitTwice(t *testing.T) {
	onRanks(t, 1, Config{}, func(g *Group) error {
		w := StartBarrier(g)
		if err := w.Wait(); err != nil {
			return err
		}
		if w.Wait() == nil {
			t.Error("a second Wait succeeded")
		}
		return nil
	})
}

func TestSettings(t *testing.T) {
	c := Config{Algorithm: Auto, Timeout: time.Minute}
	table, err := setting.New(c.Settings()...)
	if err != nil {
		t.Fatal(err)
	}
	if g, err := New(mem.New(1)[0], c); err != nil || g.Algorithm() != "" {
		t.Errorf("auto is no choice of its own: %v", err)
	} else {
		g.Close()
	}
	faults := table.Apply(setting.Assignment{Path: "job.collective-algorithm", Text: "rng"}, setting.Assignment{Path: "job.timeout", Text: "3s"})
	if len(faults) != 1 || !strings.Contains(faults[0].Error(), `job.collective-algorithm rng: want one of auto, ring`) || c.Timeout != 3*time.Second {
		t.Errorf("got %v, %+v", faults, c)
	}
}
