package search

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/job"
)

// parse parses texts with the settings of a job.
func parse(t *testing.T, texts ...string) (Space, error) {
	t.Helper()
	_, table, err := job.New()
	if err != nil {
		t.Fatal(err)
	}
	return Parse(texts, table)
}

func mustTrials(t *testing.T, random int, texts ...string) []Trial {
	t.Helper()
	space, err := parse(t, texts...)
	if err != nil {
		t.Fatal(err)
	}
	trials, err := space.Trials(random)
	if err != nil {
		t.Fatal(err)
	}
	return trials
}

// A grid has every combination once, in the order of the command line, the last setting fastest.
func TestGridHasAllCombinations(t *testing.T) {
	var got []string
	for i, trial := range mustTrials(t, 0, "lr=0.1,1e-2", "training.batch=16,32,64") {
		if trial.Number != i+1 {
			t.Errorf("trial %d has the number %d", i+1, trial.Number)
		}
		got = append(got, strings.Join(trial.Values, " "))
	}
	if want := []string{"0.1 16", "0.1 32", "0.1 64", "0.01 16", "0.01 32", "0.01 64"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A longer random search begins with the trials of a shorter one, and repeats none.
func TestRandomTrialsExtend(t *testing.T) {
	for _, texts := range [][]string{{"lr=0.0001..0.1:log", "batch=1..8"}, {"lr=0.1,0.2,0.3,0.4", "batch=1,2,3,4,5,6,7,8"}} {
		short, long := mustTrials(t, 10, texts...), mustTrials(t, 30, texts...)
		if len(short) != 10 || len(long) != 30 {
			t.Fatalf("%d and %d trials", len(short), len(long))
		}
		seen := map[string]bool{}
		for i, trial := range long {
			key := fmt.Sprint(trial.Values)
			if seen[key] || i < len(short) && fmt.Sprint(short[i]) != fmt.Sprint(trial) {
				t.Errorf("trial %d: %v", i+1, trial)
			}
			seen[key] = true
		}
	}
	if n := len(mustTrials(t, 100, "batch=1..8")); n != 8 {
		t.Errorf("%d trials of 8 values", n)
	}
}

// Values of a range lie within the ends and have the stated distribution.
func TestRangesAreUniform(t *testing.T) {
	const n = 2000
	for _, c := range []struct {
		text   string
		median float64
	}{{"lr=0.0001..1:log", 0.01}, {"lr=0.2..0.6", 0.4}, {"batch=1..1000001", 500_001}, {"training.seed=10..1000000000:log", 100_000}} {
		var values []float64
		for _, trial := range mustTrials(t, n, c.text) {
			v, err := strconv.ParseFloat(trial.Values[0], 64)
			if err != nil {
				t.Fatal(err)
			}
			values = append(values, v)
		}
		slices.Sort(values)
		_, ends, _ := strings.Cut(strings.TrimSuffix(c.text, ":log"), "=")
		low, high, _ := strings.Cut(ends, "..")
		lowest, _ := strconv.ParseFloat(low, 64)
		highest, _ := strconv.ParseFloat(high, 64)
		if values[0] < lowest || values[len(values)-1] > highest {
			t.Errorf("%s: from %v to %v", c.text, values[0], values[len(values)-1])
		}
		share := (math.Log(values[len(values)/2]) - math.Log(c.median)) / math.Log(highest/lowest)
		if len(values) != n || math.Abs(share) > 0.06 {
			t.Errorf("%s: %d values, median %v, want about %v", c.text, len(values), values[len(values)/2], c.median)
		}
	}
}

// Every invalid text is rejected with its reason, all together.
func TestParseReportsAllFaults(t *testing.T) {
	faults := map[string]string{
		"lr":                       "want PATH=VALUES",
		"lr=":                      "want PATH=VALUES",
		"lrr=1":                    `did you mean "lr"`,
		"lr=x":                     "want a number",
		"batch=1.5":                "1.5",
		"lr=0.1,0.10":              "listed twice",
		"optimizer=sgd,adamm":      "adamm",
		"np=1,2":                   "equal in all trials",
		"output.json=a,b":          "equal in all trials",
		"training.momentum=0.9..0": "smaller end first",
		"eps=1..2":                 "no setting",
		"training.seed=0..5:log":   "above 0",
		"weight-decay=0..NaN":      "no number",
	}
	var texts []string
	for text := range faults {
		texts = append(texts, text)
	}
	_, err := parse(t, texts...)
	for text, want := range faults {
		found := false
		for _, line := range strings.Split(fmt.Sprint(err), "\n") {
			found = found || strings.HasPrefix(line, "--try "+text+": ") && strings.Contains(line, want)
		}
		if !found {
			t.Errorf("%s: want an error with %q in:\n%v", text, want, err)
		}
	}
	if _, err := parse(t, "lr=1,2", "training.lr=3"); err == nil || !strings.Contains(err.Error(), "given twice") {
		t.Error(err)
	}
	space, err := parse(t, "lr=0.1..1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := space.Trials(0); err == nil || !strings.Contains(err.Error(), "--trials N") {
		t.Error(err)
	}
}
