package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// setup is what all cases share.
type setup struct {
	Ringo   string // the binary
	Data    string // folder of real data; "": none
	Scratch string // each case has a folder of its own in it

	mu   sync.Mutex
	made map[string]*fixture
}

// fixture is something that several cases start from, made once.
type fixture struct {
	once sync.Once
	dir  string
	sha  string
	err  error
}

// fixture returns what make makes under a name, the first time it is asked for.
func (s *setup) fixture(name string, build func(dir string) (sha string, err error)) *fixture {
	s.mu.Lock()
	if s.made == nil {
		s.made = map[string]*fixture{}
	}
	f := s.made[name]
	if f == nil {
		f = &fixture{}
		s.made[name] = f
	}
	s.mu.Unlock()
	f.once.Do(func() {
		if f.dir, f.err = os.MkdirTemp(s.Scratch, "fixture-"); f.err == nil {
			f.sha, f.err = build(f.dir)
		}
	})
	return f
}

// baseline returns the hash with which a command line ends when nothing disturbs it.
func (s *setup) baseline(args func(dir string) []string) (string, error) {
	f := s.fixture(strings.Join(args("DIR"), " "), func(dir string) (string, error) {
		return s.trained(dir, args(dir))
	})
	return f.sha, f.err
}

// trained runs a command line that must end well, and returns its hash.
func (s *setup) trained(dir string, args []string) (string, error) {
	e, err := s.run(dir, args, baselineLimit)
	if err != nil {
		return "", err
	}
	if e.Status != 0 || sha(e.Out) == "" {
		return "", fmt.Errorf("ringo %s, undisturbed: exit status %d: %s", strings.Join(args, " "), e.Status, lastLine(e.Errs))
	}
	return sha(e.Out), nil
}

// baselineLimit is by when an undisturbed job must have ended.
const baselineLimit = 2 * time.Minute

// broken is the verdict of a case that could not be tried.
func broken(err error) verdict { return verdict{Wrong: []string{"could not be tried: " + err.Error()}} }

// real lets a command line train on real data, where they are given.
func (s *setup) real(args []string) []string {
	at := slices.Index(args, "synthetic")
	if s.Data == "" || at < 1 {
		return args
	}
	switch args[1] {
	case "mnist", "mlp":
		return slices.Concat(args[:at], []string{s.Data + "/mnist"}, args[at+1:])
	case clicks.Name:
		return slices.Concat(args[:at-1], []string{"--train-file", s.Data + "/criteo/criteo_8000_train.tsv", "--eval-file", s.Data + "/criteo/criteo_8000_test.tsv",
			"--set", "data.max-bad-records=1000"}, args[at+1:])
	}
	return args
}
