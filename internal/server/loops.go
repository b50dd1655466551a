package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/server/engine"
	"github.com/ringo-ml/ringo/internal/server/snapshot"
	"github.com/ringo-ml/ringo/ps/offline"
	"github.com/ringo-ml/ringo/ps/schema"
)

// findFrom finds the checkpoints that the server starts from, before the first trainer connects.
func (s *server) findFrom() error {
	if s.cfg.From == "" {
		return nil
	}
	if begun, err := s.begun(); err != nil || begun {
		return err
	}
	j, err := s.fromWhich()
	if err != nil {
		return fmt.Errorf("beginning with %s: %w", s.cfg.From, err)
	}
	s.from = j.Dirs()
	least, most := j.Steps()
	line := fmt.Sprintf("server %d: it begins with its part of %s: %s, after step %d", s.cfg.Index, s.cfg.From, quantity.Count(len(j.Servers), "server"), least)
	if least != most {
		line = fmt.Sprintf("%s to %d: they were saved at different moments", line, most)
	}
	if s.cfg.FromStep > 0 {
		line += " of the run; what came later is left out"
	}
	s.cfg.Report(line)
	if s.cfg.Index == 0 && s.cfg.FromStep == 0 {
		s.cfg.Report("server 0: the model in it has " + inputsText(j.Servers[0].About.Layout.Inputs))
	}
	return nil
}

func inputsText(inputs []string) string {
	const most = 6
	switch n := len(inputs); {
	case n == 0:
		return "inputs without names: assumed that this job's are the same, in the same order"
	case n > most:
		return fmt.Sprintf("the inputs %s and %d more", strings.Join(inputs[:most], ", "), n-most)
	}
	return "the inputs " + strings.Join(inputs, ", ")
}

// begun reports whether the server has a checkpoint from an earlier run to continue.
func (s *server) begun() (bool, error) {
	if s.cfg.tables().Durability == engine.None {
		return false, nil
	}
	own, err := snapshot.Numbers(engine.CheckpointDir(s.cfg.serverDir()))
	return len(own) > 0, err
}

// beginRows puts this server's rows of Config.Begin into a table.
func (s *server) beginRows(table schema.Sparse, put func(keys []uint64, weights []float32) error) error {
	n := 0
	var own []uint64
	var rows []float32
	err := s.cfg.Begin(table, func(keys []uint64, weights []float32) error {
		own, rows = own[:0], rows[:0]
		for i, key := range keys {
			if schema.Owner(key, s.cfg.Servers) == s.cfg.Index {
				own, rows = append(own, key), append(rows, weights[i*table.Dim:][:table.Dim]...)
			}
		}
		n += len(own)
		return put(own, rows)
	})
	if err == nil && n > 0 {
		s.cfg.Report(fmt.Sprintf("server %d: %d rows of table %s begin with weights that were given", s.cfg.Index, n, table.Name))
	}
	return err
}

func (s *server) fromWhich() (*offline.Job, error) {
	if s.cfg.FromStep > 0 {
		return offline.At(s.cfg.From, s.cfg.FromStep, s.cfg.FromNumbers)
	}
	return offline.Begin(s.cfg.From)
}

// await returns the engine when it is open, nil if ctx ends before.
func (s *server) await(ctx context.Context) *engine.Engine {
	select {
	case <-s.ready:
		return s.opened()
	case <-ctx.Done():
		return nil
	}
}

// saver is the part of the engine that checkpointLoop uses.
type saver interface {
	SavedAt() time.Time
	LogFull() <-chan struct{}
	LogDue() bool
	Checkpoint(ctx context.Context) (engine.Saved, error)
}

// checkpointLoop writes checkpoints: by time, and by the length of the log. The time since the last
// checkpoint includes restarts, so that a repeatedly killed server replays less each time. On a
// full disk it retries after each pause, because ending would lose more. Any other error ends the
// server: users rely on checkpoints, and an untruncated log fills the disk.
func (s *server) checkpointLoop(ctx context.Context, e saver, pause time.Duration, fail context.CancelCauseFunc) {
	for begun := time.Now(); s.awaitDue(ctx, e, begun); {
		_, err := e.Checkpoint(ctx)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return
		case isFull(err):
			s.cfg.Report(fmt.Sprintf("server %d: there is no room for a checkpoint: %v; make some, it tries again every %v", s.cfg.Index, err, pause))
			if !sleep(ctx, pause) {
				return
			}
		default:
			fail(fmt.Errorf("ps: server %d: a checkpoint: %w", s.cfg.Index, err))
			return
		}
	}
}

// awaitDue blocks until a checkpoint is due, and reports whether ctx is not done.
func (s *server) awaitDue(ctx context.Context, e saver, begun time.Time) bool {
	for ctx.Err() == nil {
		if e.LogDue() {
			return true
		}
		last := e.SavedAt()
		at := last
		if at.IsZero() || at.After(time.Now()) {
			at = begun
		}
		var byTime <-chan time.Time
		if s.cfg.SaveEvery > 0 {
			byTime = time.After(time.Until(at.Add(s.cfg.SaveEvery)))
		}
		select {
		case <-byTime:
			if e.SavedAt().Equal(last) { // unless another caller has saved
				return true
			}
		case <-e.LogFull():
		case <-ctx.Done():
		}
	}
	return false
}

// fullPause is the delay between retries on a full disk.
const fullPause = 10 * time.Second

// isFull reports whether an error is due to a lack of disk space or of file descriptors.
func isFull(err error) bool {
	return slices.ContainsFunc([]error{syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, syscall.ENFILE}, func(e error) bool { return errors.Is(err, e) })
}

// saveLast writes the last checkpoint of a server that ends, with retries on a full disk.
func (s *server) saveLast(ctx context.Context, pause time.Duration, save func(context.Context) error) error {
	err := s.retryWhileDiskFull(ctx, pause, "its last checkpoint", save)
	if err != nil {
		return fmt.Errorf("its last checkpoint could not be written: %w", err)
	}
	return nil
}

// retryWhileDiskFull saves; on a full disk it reports the remedy and retries, up to FullWait.
func (s *server) retryWhileDiskFull(ctx context.Context, pause time.Duration, what string, save func(context.Context) error) error {
	for until := time.Now().Add(s.cfg.FullWait); ; {
		err := save(ctx)
		left := time.Until(until)
		if !isFull(err) || left <= 0 || ctx.Err() != nil {
			return err
		}
		s.cfg.Report(fmt.Sprintf("server %d: there is no room for %s: %v; make some within %s", s.cfg.Index, what, err, quantity.Duration(left)))
		sleep(ctx, min(left, pause))
	}
}

// diskFullEngine is an engine that waits for disk space in SaveStep: an error would end the job.
type diskFullEngine struct {
	*engine.Engine
	s *server
}

func (p diskFullEngine) SaveStep(ctx context.Context, step, oldest uint64) (number uint64, err error) {
	err = p.s.retryWhileDiskFull(ctx, fullPause, fmt.Sprintf("its part of the job's checkpoint of step %d", step), func(ctx context.Context) error {
		number, err = p.Engine.SaveStep(ctx, step, oldest)
		return err
	})
	return number, err
}

func (s *server) shrinkLoop(ctx context.Context, fail context.CancelCauseFunc) {
	for e := s.await(ctx); e != nil && sleep(ctx, s.cfg.ShrinkEvery); {
		deleted, err := e.Shrink(ctx, 1)
		switch {
		case err == nil || ctx.Err() != nil:
		case isFull(err):
			s.cfg.Report(fmt.Sprintf("server %d: there is no room for the checkpoint after a day: %v", s.cfg.Index, err))
		default:
			fail(fmt.Errorf("ps: server %d: shrinking: %w", s.cfg.Index, err))
			return
		}
		if deleted > 0 {
			s.cfg.Report(fmt.Sprintf("server %d: a day has passed, rows deleted: %d", s.cfg.Index, deleted))
		}
	}
}

// sleep waits for d, and reports whether ctx is not done.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
