package main

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// TestOddCasesRepeat: a case is a function of its seed and number alone.
func TestOddCasesRepeat(t *testing.T) {
	for n := range len(oddities) {
		a, b := t.TempDir(), t.TempDir()
		var jobs [2]oddJob
		for i, dir := range []string{a, b} {
			tr := &trap{dir: dir, rng: rand.New(rand.NewPCG(drawOdd(dice(7, "odd", n), n).At, 1))}
			jobs[i] = oddities[n].make(tr)
			if tr.err != nil {
				t.Fatalf("%s: %v", oddities[n].name, tr.err)
			}
		}
		if x, y := strings.Join(jobs[0].Args, " "), strings.ReplaceAll(strings.Join(jobs[1].Args, " "), b, a); x != y {
			t.Errorf("%s: %q and %q", oddities[n].name, x, y)
		}
	}
}

// TestOdditiesCanBeJudged: each one may be refused or explained, or has no meaning.
func TestOdditiesCanBeJudged(t *testing.T) {
	names := map[string]bool{}
	for _, o := range oddities {
		if !o.sound && len(o.blame) == 0 && len(o.say) == 0 {
			t.Errorf("%s: no answer is right but an equally good model: want sound", o.name)
		}
		if names[o.name] {
			t.Errorf("%s: twice", o.name)
		}
		names[o.name] = true
	}
	if len(oddities) > oddCases {
		t.Errorf("%d oddities, %d cases: some are never tried", len(oddities), oddCases)
	}
}

// TestOddScores: perfect answers score 1, the mean of all scores 0, and a wrong row is an error.
func TestOddScores(t *testing.T) {
	numbers := r2([]float64{1, 2, 3})
	for _, c := range []struct {
		out  string
		f    func([]any) float64
		want float64
	}{
		{"{\"row\":0,\"prediction\":1}\n{\"row\":1,\"prediction\":2}\n{\"row\":2,\"prediction\":3}\n", numbers, 1},
		{"{\"row\":0,\"prediction\":2}\n{\"row\":1,\"prediction\":2}\n{\"row\":2,\"prediction\":2}\n", numbers, 0},
		{"{\"row\":0,\"prediction\":1}\n", numbers, 0},
		{"{\"row\":0,\"prediction\":\"a\"}\n{\"row\":1,\"prediction\":\"b\"}\n", accuracy([]string{"a", "c"}), 0.5},
	} {
		if got, err := scored(c.out, c.f); err != nil || got != c.want {
			t.Errorf("%q: %v, %v, want %v", c.out, got, err, c.want)
		}
	}
	if _, err := scored("{\"row\":1,\"prediction\":1}\n", numbers); err == nil {
		t.Error("a row in place of another is not found")
	}
}

// TestOddRefusal: a refusal is right where it blames the change, in one line, and the change has a
// meaning.
func TestOddRefusal(t *testing.T) {
	for _, c := range []struct {
		errs  string
		sound bool
		right bool
	}{
		{"ringo: t.csv: line 7: \"sold\"\n", false, true},
		{"ringo: something is wrong\n", false, false},
		{"ringo: line 7\nringo: line 7\n", false, false},
		{"", false, false},
		{"ringo: t.csv: line 7: \"sold\"\n", true, false},
	} {
		var v verdict
		oddCase{oddity: oddity{sound: c.sound, blame: aLine}}.judgeRefusal(&v, ending{Status: 1, Errs: c.errs})
		if right := len(v.Wrong) == 0; right != c.right {
			t.Errorf("%q: right is %v, want %v", c.errs, right, c.right)
		}
	}
}
