package train

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/internal/dirlock"
)

// smallDisk is a disk on which some files find no room, after so many bytes of each.
type smallDisk struct {
	mu    sync.Mutex
	files int              // made so far
	full  func(n int) bool // file number n, from 0
	room  int
}

func (d *smallDisk) create(path string) (checkpoint.WriteFile, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f, err := dirlock.Create(path)
	if d.files++; err == nil && d.full(d.files-1) {
		return &smallFile{f, d.room}, nil
	}
	return f, err
}

type smallFile struct {
	*os.File
	room int
}

func (f *smallFile) Write(b []byte) (int, error) {
	if f.room -= len(b); f.room < 0 {
		return 0, &os.PathError{Op: "write", Path: f.Name(), Err: syscall.ENOSPC}
	}
	return f.File.Write(b)
}

// A run whose disk is full goes on, tries again, tells so, and ends with the bits of one that had room: also where
// other ranks send what they keep while the file is written. What it saves later can be gone on from.
func TestFullDisk(t *testing.T) {
	plain, keeps := small(), small()
	keeps.Exchange.Strategy = distopt.DLGS
	for _, cfg := range []Config{plain, keeps} {
		cfg.TrainLimit, cfg.Epochs = 192, 2
		for _, np := range []int{1, 2} {
			want, whole := onRanks(t, np, cfg)
			disk := &smallDisk{full: func(n int) bool { return n == 1 || n == 2 }, room: 70_000}
			saving := cfg
			saving.Checkpoint = Checkpoint{Dir: t.TempDir(), Every: 4, Keep: 1000, DiskFullWait: time.Microsecond, create: disk.create}
			got, rec := onRanks(t, np, saving)
			what := fmt.Sprintf("%s, np %d", cfg.Exchange.Strategy, np)
			checkSame(t, what, got, rec.epochs, want, whole.epochs)
			if got.DiskFullCheckpoints != 2 || len(rec.remarks) != 3 {
				t.Fatalf("%s: %d without room, remarks %v", what, got.DiskFullCheckpoints, rec.remarks)
			}
			for i, says := range []string{
				"no space for the checkpoint of step 8 of |B: no space left on device: free space in " + saving.Checkpoint.Dir + "|the run continues and tries again after step 9|the last one is of step 4",
				"the checkpoint of step 9 of |tries again after step 10|the last one is of step 4", "the checkpoint of step 10 is written",
			} {
				for _, part := range strings.Split(says, "|") {
					if m := rec.remarks[i]; !strings.Contains(m.Text, part) || m.Epoch != 1+int(m.Step-1)/whole.info.StepsPerEpoch || m.Event != "remark" {
						t.Errorf("%s: remark %+v lacks %q", what, m, part)
					}
				}
			}
			steps, err := checkpoint.Steps(saving.Checkpoint.Dir)
			end := int64(2 * whole.info.StepsPerEpoch)
			if err != nil || fmt.Sprint(steps[len(steps)-2:]) != "[10 4]" || steps[0] != end {
				t.Errorf("%s: checkpoints %v, %v", what, steps, err)
			}
			again := saving
			again.Checkpoint.Resume, again.Checkpoint.Dir = true, onlyFile(t, checkpoint.PathOf(saving.Checkpoint.Dir, 10))
			last, rec := onRanks(t, np, again)
			checkSame(t, what+", resumed", last, rec.epochs, want, whole.epochs)
		}
	}
}

// At its end a run waits for room, within a bound: then it fails.
func TestFullDiskAtTheEnd(t *testing.T) {
	cfg := small()
	cfg.TrainLimit = 96
	for _, c := range []struct {
		full int // trials that find no room
		wait time.Duration
		ok   bool
	}{{2, 15 * time.Second, true}, {1 << 30, time.Millisecond, false}, {1, -1, false}, {0, -1, true}} {
		disk := &smallDisk{full: func(n int) bool { return n < c.full }, room: 100}
		cfg.Checkpoint = Checkpoint{Dir: t.TempDir(), DiskFullWait: c.wait, create: disk.create}
		if !c.ok {
			checkFails(t, 2, cfg, "the last checkpoint could not be written", "after step 0 is lost", "no space left on device", cfg.Checkpoint.Dir)
			continue
		}
		sum, rec := onRanks(t, 2, cfg)
		if sum.DiskFullCheckpoints != c.full || len(rec.remarks) != 2*min(1, c.full) {
			t.Errorf("%+v: %d without room, remarks %v", c, sum.DiskFullCheckpoints, rec.remarks)
		}
		if c.full > 0 && (!strings.Contains(rec.remarks[0].Text, "the run waits for space for 15s") || !strings.Contains(rec.remarks[0].Text, "no checkpoint exists yet")) {
			t.Errorf("%+v: remark %s", c, rec.remarks[0].Text)
		}
		if files, err := filepath.Glob(filepath.Join(cfg.Checkpoint.Dir, "*")); err != nil || len(files) != 2 {
			t.Errorf("%+v: the folder holds %v, %v", c, files, err)
		}
	}
}

// The pause between two trials doubles up to a bound, and no other fault is waited for.
func TestFullDiskPauses(t *testing.T) {
	r := compose(&runEnv{cfg: small(), obs: new(recorder), replica: new(Replica), workers: make([]*trainerThread, 1)}, nil)
	r.reports.stepS, r.data.steps = []float64{1, 3}, 1000
	r.cfg.Epochs = 1000
	var got []int64
	for range 7 {
		got = append(got, r.saver.later(position{epoch: 1, step: 10}, syscall.ENOSPC))
	}
	if want := "[5 10 20 40 80 150 150]"; fmt.Sprint(got) != want {
		t.Errorf("steps %v at 2 s each, want %s", got, want)
	}
	cfg := small()
	cfg.TrainLimit = 96
	denied := errors.New("denied")
	cfg.Checkpoint = Checkpoint{Dir: t.TempDir(), Every: 2, create: func(string) (checkpoint.WriteFile, error) { return nil, denied }}
	checkFails(t, 2, cfg, "saving step 2 in ", "denied")
}
