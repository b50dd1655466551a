package shard

import "errors"

// snapshot is a table's rows in the store at one moment: an iteration that waits at its first row.
type snapshot struct {
	do   func(key uint64, row []byte) error // set before run is closed
	run  chan struct{}
	read bool
	done chan error
}

// snapshot takes a snapshot; each or cancel must follow.
func (t *Table) snapshot() *snapshot {
	s := &snapshot{run: make(chan struct{}), done: make(chan error, 1)}
	taken, first := make(chan struct{}), true
	go func() {
		err := t.store.Iterate(t.cfg.Number, func(key uint64, row []byte) error {
			if first {
				first = false
				close(taken)
				<-s.run
			}
			return s.do(key, row)
		})
		if first {
			close(taken)
		}
		s.done <- err
	}()
	<-taken
	return s
}

// each calls do for the rows of the snapshot, on another goroutine, and waits for the end.
func (s *snapshot) each(do func(key uint64, row []byte) error) error {
	s.do, s.read = do, true
	close(s.run)
	return <-s.done
}

var errCancelled = errors.New("cancelled")

// cancel ends a snapshot that was not read.
func (s *snapshot) cancel() error {
	if s == nil || s.read {
		return nil
	}
	if err := s.each(func(uint64, []byte) error { return errCancelled }); err != nil && !errors.Is(err, errCancelled) {
		return err
	}
	return nil
}
