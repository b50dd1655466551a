package train

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/internal/snapshot"
)

// TestSnapshots loses a rank after each step of runs with each kind of state. The run continues on
// another number of ranks from the snapshot, or from the checkpoint of the first epoch if it is
// newer, repeats fewer steps than the interval has, and has the bits and metrics of an undisturbed
// run.
func TestSnapshots(t *testing.T) {
	const interval = 2
	errLost := errors.New("lost")
	for name, cfg := range workersRuns() {
		if name == "momentum" || name == "schedule" || name == "topk" || testing.Short() && name != "norm" && name != "lstm" && name != "dlgs" {
			continue // the others have what these have
		}
		want, first := onRanks(t, 1, cfg)
		perEpoch := int64(first.info.StepsPerEpoch)
		whole := sameOnAnyRanks(first.epochs)
		for lost := int64(1); lost <= 2*perEpoch; lost++ {
			memory, err := snapshot.Create()
			if err != nil {
				t.Skip(err)
			}
			memory.Steps = interval
			cfg.Checkpoint = Checkpoint{Dir: t.TempDir()}
			np := 2 + int(lost)%2
			err = ringo.Local(context.Background(), np, ringo.Config{}, func(job *ringo.Job) error {
				own := cfg
				own.AfterStep = func(s Step) error {
					if s.Done == lost && job.Rank() == int(lost)%np {
						return errLost
					}
					return nil
				}
				mine := *memory // as in another process
				_, err := runOn(snapshot.With(job.Context(), &mine), job, watched(own, new(recorder)), nil)
				return err
			})
			if !errors.Is(err, errLost) {
				t.Fatalf("%s, lost after step %d: %v", name, lost, err)
			}
			again := cfg
			again.Checkpoint.Resume = true
			sum, rec := onMemory(t, 1+int(lost)%4, again, memory)
			what := fmt.Sprintf("%s, lost after step %d", name, lost)
			checkSame(t, what, sum, sameOnAnyRanks(rec.epochs), want, whole)
			last := (lost - 1) / interval * interval // the next snapshot is not written yet
			switch {
			case lost > perEpoch && last <= perEpoch:
				if !strings.HasSuffix(rec.info.Resumed, ".ringo") || rec.info.Steps != perEpoch {
					t.Errorf("%s: from %q after %d steps", what, rec.info.Resumed, rec.info.Steps)
				}
			case last > 0:
				if rec.info.Resumed != snapshot.Name || rec.info.Steps != last {
					t.Errorf("%s: from %q after %d steps, want %d", what, rec.info.Resumed, rec.info.Steps, last)
				}
			}
			memory.Close()
		}
	}
}

// onMemory is onRanks with memory for snapshots.
func onMemory(t *testing.T, np int, cfg Config, memory *snapshot.Memory) (sum Summary, rec *recorder) {
	t.Helper()
	rec = new(recorder)
	err := ringo.Local(context.Background(), np, ringo.Config{}, func(job *ringo.Job) error {
		own := new(recorder)
		if job.Rank() == 0 {
			own = rec
		}
		mine := *memory
		s, err := runOn(snapshot.With(job.Context(), &mine), job, watched(cfg, own), nil)
		if job.Rank() == 0 {
			sum = s
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sum, rec
}

// TestSnapshotInterval wants the interval whose measured cost is below the limit, and a longer one
// after the cost has risen.
func TestSnapshotInterval(t *testing.T) {
	var n snapshots
	for i, took := range []float64{0.0301, 0.0243, 0.00795} { // the first ones fill new memory
		if final := n.plan(took, 0.010); final != (i == 2) || n.every != []int{32, 32, 100}[i] {
			t.Fatalf("snapshot %d: every %d, final %v", i, n.every, final)
		}
	}
	if n.every != 100 || n.share > plannedShare || n.share < 0.9*plannedShare {
		t.Errorf("every %d with a part of %v", n.every, n.share)
	}
	for i := range 20 { // one slow snapshot among fast ones changes no interval
		took := 0.008
		if i == 10 {
			took = 0.020
		}
		if n.plan(took, 0.010) {
			t.Errorf("interval %d after snapshot %d", n.every, i)
		}
	}
	n.since, n.spent, n.steps = 0, 0, 0
	for i := range minSupervised {
		if final := n.plan(0.016, 0.010); final != (i == minSupervised-1) {
			t.Errorf("snapshot %d of double cost: %v", i, final)
		}
	}
	if n.every != 200 || n.share > maxShare {
		t.Errorf("every %d with a part of %v after a rise of the cost", n.every, n.share)
	}
}

// TestSnapshotMemoryShort wants a run without space to end its snapshots with one remark.
func TestSnapshotMemoryShort(t *testing.T) {
	memory, err := snapshot.Create()
	if err != nil {
		t.Skip(err)
	}
	memory.Steps = 1
	memory.Close() // each write fails
	cfg := workersRuns()["momentum"]
	want, _ := workersOn(t, 2, cfg)
	cfg.Checkpoint = Checkpoint{Dir: t.TempDir()}
	got, rec := onMemory(t, 2, cfg, memory)
	if got.ParamsSHA256 != want.ParamsSHA256 || len(rec.remarks) != 1 || !strings.Contains(rec.remarks[0].Text, "no snapshots in memory, which is short: ") {
		t.Errorf("%s, want %s; %v", got.ParamsSHA256, want.ParamsSHA256, rec.remarks)
	}
}
