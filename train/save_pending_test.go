package train

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/internal/dirlock"
)

// slowFile comes to the disk when it is told to, or fails to.
type slowFile struct {
	*os.File
	sync func() error
}

func (f slowFile) Sync() error {
	if err := f.sync(); err != nil {
		return err
	}
	return f.File.Sync()
}

// slowDisk gives the files of checkpoints what Sync does, by their number from 0.
func slowDisk(sync func(n int) error) func(path string) (checkpoint.WriteFile, error) {
	n := -1
	return func(path string) (checkpoint.WriteFile, error) {
		f, err := dirlock.Create(path)
		n++
		number := n
		return slowFile{f, func() error { return sync(number) }}, err
	}
}

// Steps go on while a checkpoint comes to the disk, the next one waits for it, and results are those of a run that saves nothing.
func TestSavingHoldsNoSteps(t *testing.T) {
	cfg := small()
	cfg.TrainLimit, cfg.Epochs = 192, 2
	want, _ := onRanks(t, 2, cfg)
	later, first := make(chan struct{}), make(chan struct{})
	cfg.Checkpoint = Checkpoint{Dir: t.TempDir(), Every: 4, Keep: 1000, create: slowDisk(func(n int) error {
		if n > 0 {
			select {
			case <-first:
			default:
				t.Errorf("file %d is written before the first one is on the disk", n)
			}
			return nil
		}
		defer close(first)
		select { // until three steps more are done
		case <-later:
			return nil
		case <-time.After(10 * time.Second):
			return errors.New("the run waits for the disk")
		}
	})}
	var once sync.Once // ranks are goroutines here
	cfg.AfterStep = func(s Step) error {
		if s.Done == 7 {
			once.Do(func() {
				steps, err := checkpoint.Steps(cfg.Checkpoint.Dir)
				if err != nil || len(steps) != 0 {
					t.Errorf("after step 7 there are %v, %v", steps, err)
				}
				close(later)
			})
		}
		return nil
	}
	got, _ := onRanks(t, 2, cfg)
	if got.ParamsSHA256 != want.ParamsSHA256 {
		t.Errorf("sha256 %s, want %s", got.ParamsSHA256, want.ParamsSHA256)
	}
	steps, err := checkpoint.Steps(cfg.Checkpoint.Dir)
	if err != nil || len(steps) < 3 || steps[len(steps)-1] != 4 {
		t.Errorf("checkpoints %v, %v", steps, err)
	}
}

// A checkpoint that is lost on its way to a full disk is told, and no other fault is left unsaid.
func TestLostOnTheWayToTheDisk(t *testing.T) {
	cfg := small()
	cfg.TrainLimit, cfg.Epochs = 192, 2
	failing := func(fault error) func(n int) error {
		return func(n int) error {
			if n == 1 {
				return fault
			}
			return nil
		}
	}
	cfg.Checkpoint = Checkpoint{Dir: t.TempDir(), Every: 4, Keep: 1000, create: slowDisk(failing(syscall.ENOSPC))}
	_, rec := onRanks(t, 2, cfg)
	if len(rec.remarks) != 1 || !strings.Contains(rec.remarks[0].Text, "the checkpoint of step 8 is lost, because the disk was full: free space in "+cfg.Checkpoint.Dir+"; the checkpoint of step 12 is tried now") {
		t.Errorf("%+v", rec.remarks)
	}
	if steps, err := checkpoint.Steps(cfg.Checkpoint.Dir); err != nil || strings.Contains(fmt.Sprint(steps), " 8 ") || !strings.Contains(fmt.Sprint(steps), "12") {
		t.Errorf("checkpoints %v, %v", steps, err)
	}
	cfg.Checkpoint = Checkpoint{Dir: t.TempDir(), Every: 4, create: slowDisk(failing(errors.New("the disk is broken")))}
	checkFails(t, 2, cfg, "saving step 8 in "+cfg.Checkpoint.Dir, "the disk is broken")
}
