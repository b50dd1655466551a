package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

// result is a case and how it went.
type result struct {
	Part    string   `json:"part"`
	Seed    uint64   `json:"seed"`
	Case    int      `json:"case"`
	What    string   `json:"what"`
	Wrong   []string `json:"wrong,omitempty"`
	NoStep  bool     `json:"without_step,omitempty"`
	Named   float64  `json:"named_seconds,omitempty"` // from the fault to the first line that names its victim
	Boxed   bool     `json:"boxed,omitempty"`         // a black box shows the victim
	Seconds float64  `json:"seconds"`                 // of the whole case
	Skipped string   `json:"skipped,omitempty"`       // why it could not be tried here
	Said    string   `json:"said,omitempty"`          // the last line of the errors, where these are what is judged
}

// failed tells whether something is to be complained of.
func (r result) failed() bool { return len(r.Wrong) > 0 || r.NoStep }

// failure is the line of a case that is not right.
func (r result) failure() string {
	why := r.Wrong
	if r.NoStep {
		why = append(slices.Clone(why), "no step and epoch in the error")
	}
	return fmt.Sprintf("WRONG %s (--only %s --case %d --seed %d): %s", strings.Join(why, "; "), r.Part, r.Case, r.Seed, r.What)
}

// tally is what is known of a part.
type tally struct {
	Part                                 string
	Cases, Right, Wrong, NoStep, Skipped int
	Boxed                                int     // of the right ones: a black box shows the victim
	Median, Max                          float64 // seconds until the victim was named
}

// tallies sums results up, by part in the given order.
func tallies(parts []string, results []result) []tally {
	var out []tally
	for _, name := range parts {
		t, named := tally{Part: name}, []float64(nil)
		for _, r := range results {
			if r.Part != name {
				continue
			}
			t.Cases++
			switch {
			case len(r.Wrong) > 0:
				t.Wrong++
			case r.NoStep:
				t.NoStep++
			case r.Skipped != "":
				t.Skipped++
			default:
				t.Right++
				if r.Boxed {
					t.Boxed++
				}
			}
			if r.Named > 0 {
				named = append(named, r.Named)
			}
		}
		if slices.Sort(named); len(named) > 0 {
			t.Median, t.Max = named[len(named)/2], named[len(named)-1]
		}
		out = append(out, t)
	}
	return out
}

// table writes tallies for people.
func table(w io.Writer, all []tally) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "part\tcases\tright\tboxed\twrong\twithout step\tskipped\tmedian s\tmax s\t")
	for _, t := range all {
		median, most := "-", "-"
		if t.Max > 0 {
			median, most = fmt.Sprintf("%.2f", t.Median), fmt.Sprintf("%.2f", t.Max)
		}
		fmt.Fprintf(tw, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t\n", t.Part, t.Cases, t.Right, t.Boxed, t.Wrong, t.NoStep, t.Skipped, median, most)
	}
	tw.Flush()
}

// progress tells of cases as they end, from several goroutines.
type progress struct {
	mu       sync.Mutex
	out      io.Writer // failures and now and then a line
	records  io.Writer // JSON lines; nil: none
	total    int
	began    time.Time
	reported time.Time
	results  []result
	err      error // of records
}

// between lines of progress.
const progressEvery = 5 * time.Second

func (p *progress) add(r result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.results = append(p.results, r)
	if r.failed() {
		fmt.Fprintln(p.out, r.failure())
	}
	if p.records != nil && p.err == nil {
		p.err = json.NewEncoder(p.records).Encode(r)
	}
	if done := len(p.results); time.Since(p.reported) > progressEvery || done == p.total {
		p.reported = time.Now()
		fmt.Fprintln(p.out, state(done, p.total, p.failures(), time.Since(p.began)))
	}
}

func (p *progress) failures() int {
	n := 0
	for _, r := range p.results {
		if r.failed() {
			n++
		}
	}
	return n
}

// state is a line of progress.
func state(done, total, failures int, passed time.Duration) string {
	left := passed / time.Duration(max(done, 1)) * time.Duration(total-done)
	return fmt.Sprintf("%d of %d cases, %d not right, %v passed, about %v left", done, total, failures, passed.Round(time.Second), left.Round(time.Second))
}
