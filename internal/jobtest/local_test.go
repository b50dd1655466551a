package jobtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/leakcheck"
)

func TestLocal(t *testing.T) {
	leakcheck.Check(t)
	for _, n := range []int{1, 2, 5} {
		var ranks atomic.Int64
		err := ringo.Local(t.Context(), n, ringo.Config{}, func(job *ringo.Job) error {
			ranks.Add(1 << (8 * job.Rank()))
			if job.Size() != n || job.LocalRank() != job.Rank() || job.Transport() != "mem" {
				return fmt.Errorf("size %d, local rank %d, over %s", job.Size(), job.LocalRank(), job.Transport())
			}
			return exchange(job)
		})
		if want := int64(0x0101010101 & (1<<(8*n) - 1)); err != nil || ranks.Load() != want {
			t.Errorf("%d ranks: %v; calls by rank %010x", n, err, ranks.Load())
		}
	}
}

// The others may see the echo of the fault before its own rank has returned:
// it is the fault that counts, every time.
func TestLocalFirstFault(t *testing.T) {
	leakcheck.Check(t)
	for range 200 {
		err := ringo.Local(t.Context(), 4, ringo.Config{}, func(job *ringo.Job) error {
			if job.Rank() == 2 {
				return errBoom
			}
			return exchangeOn(job)
		})
		if !errors.Is(err, errBoom) || err.Error() != "rank 2: "+errBoom.Error() {
			t.Fatalf("got %v", err)
		}
	}
}

func TestLocalRefuses(t *testing.T) {
	for _, c := range []struct {
		n    int
		cfg  ringo.Config
		want string
	}{
		{0, ringo.Config{}, "0 ranks: want at least 1"},
		{2, ringo.Config{Size: 2, Rendezvous: "host:1"}, "size 2"},
		{2, ringo.Config{Collective: collective.Config{Timeout: -1}}, "timeout -1ns"},
	} {
		err := ringo.Local(t.Context(), c.n, c.cfg, func(*ringo.Job) error { t.Error("it ran"); return nil })
		checkText(t, err, c.want)
	}
}

// One rank has nobody to abort it, and must end all the same.
func TestLocalCancel(t *testing.T) {
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprint(n, " ranks"), func(t *testing.T) {
			leakcheck.Check(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			within(t, func() {
				err := ringo.Local(ctx, n, ringo.Config{}, func(job *ringo.Job) error {
					if job.Rank() == 0 {
						cancel(errStop)
					}
					return exchangeOn(job)
				})
				if err != errStop {
					t.Errorf("got %v", err)
				}
			})
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := ringo.Local(ctx, 1, ringo.Config{}, func(*ringo.Job) error { cancel(); return nil }); err != nil {
		t.Errorf("cancelled when all was done: %v", err)
	}
}

// However a job is ended, it ends once and leaves nothing, and a rank's own
// fault is reported as it is.
func TestEndsInAnyOrder(t *testing.T) {
	ends := map[string]func(*ringo.Job) error{
		"close": (*ringo.Job).Close,
		"fail": func(job *ringo.Job) error {
			if err := job.Fail(errBoom); err != errBoom {
				return fmt.Errorf("Fail returns %w", err)
			}
			return nil
		},
		"neither": func(job *ringo.Job) error { return errors.Join(job.Fail(nil), job.Err(nil), exchange(job)) },
	}
	for _, size := range []int{0, 1} { // over memory and over TCP
		for _, order := range []string{"neither close close", "close fail fail", "fail close", "fail fail close"} {
			t.Run(fmt.Sprint(size, " ", order), func(t *testing.T) {
				leakcheck.Check(t)
				cfg := byHand(t, 1)[0]
				if cfg.Size = size; size == 0 {
					cfg.Rendezvous = ""
				}
				job, err := ringo.Join(t.Context(), cfg)
				if err != nil {
					t.Fatal(err)
				}
				for _, end := range strings.Fields(order) {
					if err := ends[end](job); err != nil {
						t.Errorf("%s: %v", end, err)
					}
				}
			})
		}
	}
}

func TestEndsAtOnce(t *testing.T) {
	leakcheck.Check(t)
	job, err := ringo.Join(t.Context(), byHand(t, 1)[0])
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { _ = job.Close() })
		wg.Go(func() { _ = job.Fail(errBoom) })
	}
	within(t, wg.Wait)
}

// Of a job of one process, too, a black box tells what ranks were doing when it failed; of one that ends well nothing is left.
func TestLocalBlackBox(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("processes leave nothing on this system")
	}
	folder := t.TempDir()
	cfg := ringo.Config{BlackBox: folder}
	files := func() []string {
		names, err := filepath.Glob(filepath.Join(folder, "*"))
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	if err := ringo.Local(t.Context(), 2, cfg, func(job *ringo.Job) error {
		if job.Recorder().File() == "" || len(files()) == 0 { // the other rank's may come later
			return fmt.Errorf("files %v", files())
		}
		return exchange(job)
	}); err != nil || len(files()) > 0 {
		t.Errorf("%v, left: %v", err, files())
	}
	fault := errors.New("bad data")
	err := ringo.Local(t.Context(), 2, cfg, func(job *ringo.Job) error {
		if err := exchange(job); err != nil || job.Rank() == 1 {
			return cmp.Or(err, fault)
		}
		return exchange(job)
	})
	var recorded *launch.RecordedError
	if !errors.As(err, &recorded) || !errors.Is(err, fault) || recorded.Finding == nil || len(recorded.Finding.Missing) != 1 || recorded.Finding.Missing[0].Rank != "rank 1" {
		t.Fatalf("%v", err)
	}
	if left, err := filepath.Glob(recorded.File); err != nil || len(left) != 2 {
		t.Errorf("%v: %v of %s", err, left, recorded.File)
	}
	err = ringo.Local(t.Context(), 2, ringo.Config{BlackBox: t.TempDir()}, func(*ringo.Job) error { return fault })
	if errors.As(err, &recorded) && !errors.Is(err, fault) || err.Error() != "rank 0: bad data" && err.Error() != "rank 1: bad data" {
		t.Errorf("nobody was in an operation: %v", err)
	}
}

// TestPanicOfOneRankIsTheErrorOfAll names the rank that panics and the function, while the other
// ranks wait in an exchange.
func TestPanicOfOneRankIsTheErrorOfAll(t *testing.T) {
	leakcheck.Check(t)
	var none []int
	for _, n := range []int{1, 2, 4} {
		err := ringo.Local(t.Context(), n, ringo.Config{}, func(job *ringo.Job) error {
			if job.Rank() == n-1 {
				return fmt.Errorf("unreached %d", none[job.Rank()])
			}
			return exchangeOn(job)
		})
		if want := fmt.Sprintf("rank %d: panic: runtime error: index out of range [%d] with length 0 (in ", n-1, n-1); err == nil || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), "local_test.go:") {
			t.Errorf("%d ranks: %v, want %s", n, err, want)
		}
	}
}
