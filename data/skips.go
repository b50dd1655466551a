package data

import (
	"errors"
	"fmt"
	"sync"

	"github.com/ringo-ml/ringo/internal/setting"
)

// skips counts the bad samples that are left out, up to a limit.
type skips struct {
	most int

	mu    sync.Mutex
	n     int
	names []string // the first of them, or all
	all   bool     // names has all
	// checked reports whether every sample was read before the first step: a later fault is an
	// error.
	checked bool
}

// skip leaves out one sample for a fault, or returns why that is not allowed.
func (s *skips) skip(fault error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.checked:
		return fmt.Errorf("%w; it could be read when all were checked, before the first step", fault)
	case s.n == s.most && s.n > 0:
		return tooManyBad(fault, s.most, s.n, errors.New(s.names[0]))
	case s.n == s.most:
		return tooManyBad(fault, s.most, s.n, nil)
	}
	if s.n++; s.all || len(s.names) < maxNames {
		s.names = append(s.names, fault.Error())
	}
	return nil
}

// skipOnce returns skip for passes that may report a fault again: it counts each fault once.
func (s *skips) skipOnce() func(fault error) error {
	skipped := map[string]bool{}
	return func(fault error) error {
		text := fault.Error()
		if skipped[text] {
			return nil
		}
		if err := s.skip(fault); err != nil {
			return err
		}
		skipped[text] = true
		return nil
	}
}

// tooManyBad is a fault after n that were left out, as many as may be, of which the first may not
// be known.
func tooManyBad(fault error, most, n int, first error) error {
	if most == 0 {
		return fmt.Errorf("%w; %w", fault, setting.Errorf("", "%v N leaves out up to N such faults", skipBad))
	}
	text := ""
	if first != nil {
		text = fmt.Sprintf(", the first: %v", first)
	}
	return fmt.Errorf("%w; %w", fault, setting.Errorf("", "%d more before it were left out, as %v allows%s", n, skipBad, text))
}

// left returns the bad samples left out so far: none, or one kind. A set of the caller's own has no
// skips.
func (s *skips) left() []LeftOut {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n == 0 {
		return nil
	}
	return []LeftOut{{BadSample, s.n, append([]string(nil), s.names...)}}
}

// count returns the number of bad samples left out so far; of none 0.
func (s *skips) count() int {
	for _, l := range s.left() {
		return l.Count
	}
	return 0
}
