package main

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func TestTable(t *testing.T) {
	results := []result{
		{Part: "ranks", Named: 0.5, Boxed: true}, {Part: "ranks", Named: 3.25, NoStep: true}, {Part: "ranks", Named: 1, Wrong: []string{"it hung"}, NoStep: true}, {Part: "files"},
		{Part: "files", Skipped: "root may read anything"},
	}
	var b bytes.Buffer
	table(&b, tallies([]string{"ranks", "files"}, results))
	want := `   part  cases  right  boxed  wrong  without step  skipped  median s  max s
  ranks      3      1      1      1             1        0      1.00   3.25
  files      2      1      0      0             0        1         -      -
`
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", &b, want)
	}
}

// A line of a failure says how to repeat it.
func TestFailureLine(t *testing.T) {
	r := result{Part: "ranks", Seed: 1, Case: 17, What: "kill rank 1", Wrong: []string{"it hung", "a stack trace"}, NoStep: true}
	want := "WRONG it hung; a stack trace; no step and epoch in the error (--only ranks --case 17 --seed 1): kill rank 1"
	if got := r.failure(); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func TestProgress(t *testing.T) {
	var out, records bytes.Buffer
	p := &progress{out: &out, records: &records, total: 2, began: time.Now(), reported: time.Now()}
	p.add(result{Part: "files", Case: 0})
	if out.Len() > 0 {
		t.Errorf("a line too soon: %s", &out)
	}
	p.add(result{Part: "files", Case: 1, Wrong: []string{"bad"}})
	for _, want := range []string{"WRONG bad (--only files --case 1", "2 of 2 cases, 1 not right"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in %s", want, &out)
		}
	}
	if strings.Count(records.String(), "\n") != 2 || p.err != nil {
		t.Errorf("records %q, %v", &records, p.err)
	}
	if got, want := state(10, 40, 1, 20*time.Second), "10 of 40 cases, 1 not right, 20s passed, about 1m0s left"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Every harm changes a file of some length, always in the same way.
func TestHarms(t *testing.T) {
	content := (&trap{rng: rand.New(rand.NewPCG(1, 1))}).bytes(2001)
	for _, h := range harms {
		for at := range uint64(50) {
			got := h.apply(content, at)
			if bytes.Equal(got, content) {
				t.Errorf("%s at %d changes nothing", h, at)
			}
			if !bytes.Equal(got, h.apply(content, at)) {
				t.Errorf("%s at %d is another each time", h, at)
			}
		}
		_ = h.apply(nil, 1) // an empty file has no place for most harms
	}
	if got := swapped.apply([]byte("abcde"), 0); string(got) != "cdeab" {
		t.Errorf("swapped halves: %s", got)
	}
}
