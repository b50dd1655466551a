package data

import (
	"fmt"
	"sync"
)

// skips counts what was left out for being bad, up to a limit.
type skips struct {
	most int

	mu  sync.Mutex
	n   int
	why error // the first
}

// skip leaves one out for a fault, or returns why not.
func (s *skips) skip(fault error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n == s.most {
		if s.most == 0 {
			return fmt.Errorf("%w; --skip-bad N leaves out up to N such faults", fault)
		}
		return fmt.Errorf("%w; %d more before it were left out, as --skip-bad allows, the first: %v", fault, s.n, s.why)
	}
	if s.n++; s.n == 1 {
		s.why = fault
	}
	return nil
}

func (s *skips) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}
