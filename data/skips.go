package data

import (
	"fmt"
	"sync"

	"github.com/ringo-ml/ringo/setting"
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
		return tooManyBad(fault, s.most, s.n, s.why)
	}
	if s.n++; s.n == 1 {
		s.why = fault
	}
	return nil
}

// tooManyBad is a fault after n that were left out, as many as may be, of which the first may not be known.
func tooManyBad(fault error, most, n int, first error) error {
	if most == 0 {
		return fmt.Errorf("%w; %w", fault, setting.Faultf("", "%v N leaves out up to N such faults", skipBad))
	}
	text := ""
	if first != nil {
		text = fmt.Sprintf(", the first: %v", first)
	}
	return fmt.Errorf("%w; %w", fault, setting.Faultf("", "%d more before it were left out, as %v allows%s", n, skipBad, text))
}

// count is of none 0, such as of a set of one's own.
func (s *skips) count() int {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}
