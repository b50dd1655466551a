package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
)

// inputCase is one hostile command line, with the files that it names.
type inputCase struct {
	hostile
	At uint64 // what its random bytes are drawn from
}

// hostile is a command line that is at fault, or whose data are.
type hostile struct {
	name string
	// make writes what is needed below dir and returns the arguments.
	make func(t *trap) []string
	// blame is what an error must have one of.
	blame []string
	// mayTrain says that to train is right, too: where ringo tells what it made of the input, by one of these; "": nothing has
	// to be told
	mayTrain []string
	relief   string // when ringo has said so, the small disk is given room
	env      []string
	skip     func() string // why it cannot be tried here, or ""
}

// trap is where one hostile input is made.
type trap struct {
	dir  string
	rng  *rand.Rand
	err  error // the first that a helper met
	undo []func()
}

// write writes a file below the folder and returns its path.
func (t *trap) write(name string, content []byte) string {
	path := t.dir + "/" + name
	if at := strings.LastIndex(path, "/"); t.err == nil {
		t.err = os.MkdirAll(path[:at], 0o755)
	}
	if t.err == nil {
		t.err = os.WriteFile(path, content, 0o644)
	}
	return path
}

// bytes returns random ones.
func (t *trap) bytes(n int) []byte {
	out := make([]byte, n)
	for i := range out {
		out[i] = byte(t.rng.Uint32())
	}
	return out
}

var hostileInputs = slices.Concat(hostileDigits, hostileImages, hostileLines, hostileFiles, hostileFlags, hostilePlaces)

// drawInput draws an input: all of the list in turn, each with other random bytes.
func drawInput(rng *rand.Rand, number int) inputCase {
	return inputCase{hostileInputs[number%len(hostileInputs)], rng.Uint64()}
}

func (c inputCase) String() string { return fmt.Sprintf("%s (%x)", c.name, c.At) }

// What a hostile input may cost: time until ringo refuses it, or has trained, and memory.
const (
	inputLimit = 60 * time.Second
	inputMiB   = 768
)

func (c inputCase) run(s *setup, dir string) verdict {
	if c.skip != nil && c.skip() != "" {
		return verdict{Skipped: c.skip()}
	}
	t := &trap{dir: dir, rng: rand.New(rand.NewPCG(c.At, 0))}
	defer func() {
		for _, u := range slices.Backward(t.undo) {
			u()
		}
	}()
	args := c.make(t)
	if t.err != nil {
		return broken(t.err)
	}
	j, err := s.start(dir, args, c.env...)
	if err != nil {
		return broken(err)
	}
	defer j.end()
	if c.relief != "" && j.await(inputLimit, func() bool { return j.says(regexp.MustCompile(c.relief)) }) && !j.over() {
		if err := t.grow(); err != nil {
			return broken(err)
		}
	}
	return judgeInput(c.blame, c.mayTrain, j.finish(inputLimit))
}

// judgeInput judges what was made of a hostile input: an error of one line that names what
// is at fault, or, where that may be, a training that tells.
func judgeInput(blame, mayTrain []string, e ending) verdict {
	v := verdict{Said: lastLine(e.Errs)}
	judgeClean(&v, e)
	if e.PeakMiB > inputMiB {
		v.wrong("a process took %d MiB of memory, %d at most are right", e.PeakMiB, inputMiB)
	}
	if e.Overran {
		return v
	}
	said := e.Out + "\n" + e.Errs
	if e.Status == 0 {
		if mayTrain == nil {
			v.wrong("exit status 0: %s", lastLine(said))
		} else if !holdsAny(said, mayTrain) {
			v.wrong("it trained and told none of %q", mayTrain)
		}
		return v
	}
	var errs []string
	for _, text := range strings.Split(e.Errs, "\n") {
		if strings.HasPrefix(text, "ringo: ") {
			errs = append(errs, text)
		}
	}
	switch {
	case len(errs) != 1:
		v.wrong("%d error lines, want one: %q", len(errs), e.Errs)
	case !holdsAny(e.Errs, blame):
		v.wrong("the error names none of %q: %s", blame, errs[0])
	}
	return v
}

func holdsAny(text string, parts []string) bool {
	return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(strings.ToLower(text), strings.ToLower(p)) })
}
