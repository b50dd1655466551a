package status

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringo-ml/ringo/cmd/ringo/internal/dashboard"
	"github.com/ringo-ml/ringo/internal/steptrace"
)

// busy is a state with all that the screen has.
func busy(t *testing.T) dashboard.Status {
	s := state(t)
	nan := math.NaN()
	for i := range s.Processes[:2] {
		p := &s.Processes[i]
		p.Parts = s.Step
		put(&p.Parts.ComputeMS, 8.1+2.2*float64(i))
		put(&p.Parts.ExposedCommMS, 2.3-2.2*float64(i))
	}
	s.Processes[3].UnderWay = 2
	s.Cause = &steptrace.Cause{Kind: steptrace.SlowRank, Rank: 1, Share: 0.21, Text: s.Stragglers[0].Cause}
	s.Stragglers = append(s.Stragglers, dashboard.Straggler{Rank: 0, Cause: "rank 0 holds up the others, too"})
	s.Tables = []dashboard.TableStatus{{Table: "users", Rows: 1_234_567, Below: 12, Bytes: 5e8}, {Table: "items", Rows: 9}, {Server: 1, Fault: "it does not answer: EOF"}}
	put(&s.Tables[0].Hits, 0.987)
	put(&s.Tables[1].Hits, nan)
	return s
}

func put[T ~float64](at *T, v float64) { *at = T(v) }

// screenText is a screen as text, lines cut as the terminal has them.
func screenText(all []line, width int) string {
	var b strings.Builder
	for _, l := range all {
		var text strings.Builder
		for _, s := range cut(l, width) {
			text.WriteString(s.text)
		}
		b.WriteString(strings.TrimRight(text.String(), " ") + "\n")
	}
	return b.String()
}

// Screens of several sizes are as testdata/top.txt has them. go test -update writes it.
func TestScreens(t *testing.T) {
	var b strings.Builder
	s := busy(t)
	for _, c := range []struct {
		width, height int
		view          view
	}{{40, 12, view{}}, {80, 24, view{jobs: 2}}, {130, 34, view{sort: 1, reversed: true, paused: true}}, {60, 16, view{first: 2}}, {80, 20, view{help: true}}} {
		all := lines(s, c.view, c.width, c.height)
		if len(all) > c.height {
			t.Errorf("%d lines on a screen of %d", len(all), c.height)
		}
		fmt.Fprintf(&b, "== %d x %d\n%s", c.width, c.height, screenText(all, c.width))
	}
	golden := filepath.Join("testdata", "top.txt")
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || b.String() != string(want) {
		t.Errorf("drawn:\n%s\nwant:\n%s(%v)", b.String(), want, err)
	}
}

// Whatever a job says and however large the screen is, each line fits, and nothing but text is in it.
func TestScreensFit(t *testing.T) {
	const hostile = "\x1b[2J\r\u202e\u009b31m世界é́🙂"
	s := busy(t)
	s.Command, s.Model, s.Phase = hostile, hostile, hostile
	for range 100 {
		s.Processes = append(s.Processes, dashboard.ProcessStatus{Name: hostile + hostile + hostile + hostile, Doing: hostile})
		s.Faults = append(s.Faults, dashboard.FaultAt{Text: hostile + "\n" + hostile})
		s.Stragglers = append(s.Stragglers, dashboard.Straggler{Cause: hostile})
	}
	var empty dashboard.Status
	for _, s := range []dashboard.Status{s, empty} {
		for height := 1; height < 60; height += 7 {
			for _, width := range []int{1, 5, 20, 39, 40, 80, 90, 200, 500} {
				all := lines(s, view{first: 90}, width, height)
				if len(all) > height {
					t.Fatalf("%d lines on %d x %d", len(all), width, height)
				}
				for _, l := range all {
					n := 0
					for _, s := range cut(l, width) {
						n += columns(s.text)
						if strings.ContainsAny(s.text, "\x1b\r\n\u009b\u202e") {
							t.Fatalf("%q reaches the terminal", s.text)
						}
					}
					if n > width {
						t.Fatalf("%d columns on %d x %d: %v", n, width, height, l)
					}
				}
			}
		}
	}
}

// Keys are read from sequences, however they are cut.
func TestKeys(t *testing.T) {
	const typed = "q\x1b[A\x1bOB\x1b[C\x1b[D\x1b[5~\x1b[6~\x1b[1;5H\x1b[4~\x1b[200~\x1bxr"
	want := fmt.Sprint([]key{'q', keyUp, keyDown, keyRight, keyLeft, keyPageUp, keyPageDown, keyHome, keyEnd, keyOther, keyOther, 'r'})
	for size := 1; size <= len(typed); size++ {
		var all []key
		var rest []byte
		for at := 0; at < len(typed); at += size {
			var keys []key
			keys, rest = readKeys(append(rest, typed[at:min(len(typed), at+size)]...))
			all = append(all, keys...)
		}
		if fmt.Sprint(all) != want || len(rest) > 0 {
			t.Errorf("in pieces of %d bytes: %v, rest %q; want %v", size, all, rest, want)
		}
	}
}

func FuzzKeys(f *testing.F) {
	f.Add([]byte("\x1b[1;5Aq\x1bO"))
	f.Fuzz(func(t *testing.T, b []byte) {
		keys, rest := readKeys(b)
		if len(keys) > len(b) || len(rest) > 34 {
			t.Errorf("%d keys, %d bytes are left of %d", len(keys), len(rest), len(b))
		}
	})
}

// painted keeps what was drawn last.
type painted struct {
	mu   sync.Mutex
	last string
	all  int
}

func (p *painted) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last, p.all = string(b), p.all+1
	return len(b), nil
}

// It draws what jobs say, does what keys ask for, has another size when the terminal has, and goes on showing a job that has ended.
func TestTop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys, typed := io.Pipe()
		var screen painted
		var narrow atomic.Bool
		term := &terminal{in: keys, out: &screen, colour: true}
		term.size = func() (int, int) { // whoever draws asks it
			if narrow.Load() {
				term.colour = false
				return 40, 24
			}
			return 100, 24
		}
		one, two := busy(t), busy(t)
		two.Job, two.Model = "4712-other", "second"
		top := &top{base: t.TempDir(), view: view{}} // where no job is
		top.take([]dashboard.Status{one, two}, nil)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			top.run(context.Background(), term, time.Second)
		}()
		shows := func(want ...string) {
			t.Helper()
			synctest.Wait()
			screen.mu.Lock()
			defer screen.mu.Unlock()
			for _, w := range want {
				if !strings.Contains(screen.last, w) {
					t.Fatalf("%q is not in %q", w, screen.last)
				}
			}
		}
		press := func(s string) { _, _ = io.WriteString(typed, s) }
		shows("training mnist", "1 of 2 jobs", "\x1b[0;1;31m! cause: 21% of a step", "\x1b[0;32m█", "parts")
		press("\t")
		shows("second", "2 of 2 jobs")
		press("\x1b[C")
		shows("(by ms a step)")
		press("r?")
		shows("sort them")
		press("? ")
		shows("paused")
		press(" ")
		narrow.Store(true)
		time.Sleep(1500 * time.Millisecond)
		shows("job 4712-other: gone", "the job has ended: q leaves", "\x1b[0;1m! cause: 21%")
		press("q")
		<-ended
		_ = typed.Close()
	})
}

// Where there is no terminal, or none that can be drawn on, it says who tells the same.
func TestNoTerminal(t *testing.T) {
	cmd := Command()
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	cmd.SetArgs([]string{"--watch"})
	if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), "`ringo status` prints the same") {
		t.Errorf("without a terminal: %v", err)
	}
	if _, err := openTerminal(strings.NewReader(""), io.Discard, os.LookupEnv); err == nil || !strings.Contains(err.Error(), "standard input") {
		t.Errorf("without keys: %v", err)
	}
}

// TestWatchOrJSON: one output is drawn or written, not both.
func TestWatchOrJSON(t *testing.T) {
	cmd := Command()
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	cmd.SetArgs([]string{"--watch", "--json", "-"})
	if err := cmd.Execute(); err == nil || err.Error() != "--watch draws on a terminal, and --json - writes JSON: give one of them" {
		t.Error(err)
	}
}
