package datafile

import (
	"errors"
	"fmt"
	"sync"

	"github.com/ringo-ml/ringo/internal/setting"
)

// Skips counts the bad samples that are left out, up to a limit.
type Skips struct {
	Max int // bad samples that may be left out

	mu    sync.Mutex
	n     int
	names []string // errors of the first bad samples, or of all
	All   bool     // keep the errors of all bad samples
	// Checked reports whether every sample was read before the first step: a later bad sample is an
	// error.
	Checked bool
}

// Skip leaves out one sample because of a fault, or returns an error above the limit.
func (s *Skips) Skip(fault error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.Checked:
		return fmt.Errorf("%w; it could be read when all were checked, before the first step", fault)
	case s.n == s.Max && s.n > 0:
		return TooManyBad(fault, s.Max, s.n, errors.New(s.names[0]))
	case s.n == s.Max:
		return TooManyBad(fault, s.Max, s.n, nil)
	}
	if s.n++; s.All || len(s.names) < MaxNames {
		s.names = append(s.names, fault.Error())
	}
	return nil
}

// SkipOnce returns Skip for several passes over the same samples: it counts each fault once.
func (s *Skips) SkipOnce() func(fault error) error {
	skipped := map[string]bool{}
	return func(fault error) error {
		text := fault.Error()
		if skipped[text] {
			return nil
		}
		if err := s.Skip(fault); err != nil {
			return err
		}
		skipped[text] = true
		return nil
	}
}

// TooManyBad is the error of a fault above the limit, after n samples were left out. First is the
// first fault, or nil if it is unknown.
func TooManyBad(fault error, most, n int, first error) error {
	if most == 0 {
		return fmt.Errorf("%w; %w", fault, setting.Errorf("", "%v N leaves out up to N such faults", SkipBadPath))
	}
	text := ""
	if first != nil {
		text = fmt.Sprintf(", the first: %v", first)
	}
	return fmt.Errorf("%w; %w", fault, setting.Errorf("", "%d more before it were left out, as %v allows%s", n, SkipBadPath, text))
}

// LeftOut returns the bad samples left out until now: no element, or one kind. A nil Skips, as in a
// custom set, has none.
func (s *Skips) LeftOut() []LeftOut {
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

// Count returns the number of bad samples left out until now.
func (s *Skips) Count() int {
	for _, l := range s.LeftOut() {
		return l.Count
	}
	return 0
}
