// Package search is `ringo tune` without the command line: settings to try, trials of a grid or a
// random search, a process per trial, and the folder of results.
//
//	space, err := search.Parse([]string{"lr=0.001,0.01", "batch=16..256"}, table)
//	trials, err := space.Trials(20)
//	results, err := search.Run(ctx, search.Config{…})
package search

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/spelling"
)

// maxTrials limits a search: a larger grid is a mistake in most cases, and its folder has a folder
// per trial.
const maxTrials = 10_000

// Axis is a setting to try, with a list of values or a range.
type Axis struct {
	Path setting.Path
	// Values are the values of a list, in the format of --set; nil for a range.
	Values []string
	// Low and High are the ends of a range, both included. Log draws the logarithm uniformly.
	Low, High    float64
	Log, Integer bool
}

// Space is the settings to try, in the order of the command line.
type Space []Axis

// Trial is one run of a search: a value per setting of the space, in the same order.
type Trial struct {
	Number int // first is 1
	Values []string
}

// Parse reads PATH=VALUES texts. PATH is a setting's path or flag. VALUES is a list a,b,c, or a
// range LOW..HIGH of numbers, with :log for a uniform logarithm. All errors are joined.
func Parse(texts []string, table *setting.Table) (Space, error) {
	var out Space
	var errs []error
	for _, text := range texts {
		axis, err := parseAxis(text, table)
		if err == nil && slices.ContainsFunc(out, func(a Axis) bool { return a.Path == axis.Path }) {
			err = fmt.Errorf("%s is given twice", axis.Path)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("--try %s: %w", text, err))
			continue
		}
		out = append(out, axis)
	}
	if len(texts) == 0 {
		errs = append(errs, errors.New("nothing to try: give --try PATH=VALUES, such as --try lr=0.001,0.01,0.1"))
	}
	return out, errors.Join(errs...)
}

func parseAxis(text string, table *setting.Table) (Axis, error) {
	name, values, ok := strings.Cut(text, "=")
	if !ok || values == "" {
		return Axis{}, errors.New("want PATH=VALUES, such as lr=0.001,0.01 or lr=0.0001..0.1:log")
	}
	row, err := find(name, table)
	if err != nil {
		return Axis{}, err
	}
	if low, high, is := strings.Cut(values, ".."); is {
		return parseRange(row, low, high)
	}
	axis := Axis{Path: row.Path}
	for _, v := range strings.Split(values, ",") {
		canonical, err := canonical(row, v)
		if err != nil {
			return Axis{}, fmt.Errorf("%s: %w", v, err)
		}
		if slices.Contains(axis.Values, canonical) {
			return Axis{}, fmt.Errorf("%s is listed twice", v)
		}
		axis.Values = append(axis.Values, canonical)
	}
	return axis, nil
}

// find returns the row of a setting by path or flag, if trials may differ in the setting.
func find(name string, table *setting.Table) (setting.Row, error) {
	var names []string
	for _, r := range table.Rows() {
		if string(r.Path) != name && (r.Flag == "" || r.Flag != name) {
			names = append(names, string(r.Path), r.Flag)
			continue
		}
		switch group, _, _ := strings.Cut(string(r.Path), "."); group {
		case "job", "output", "network", "checkpoint", "tuning":
			return r, fmt.Errorf("%s is equal in all trials: give it as a setting of the search, without --try", r.Path)
		}
		return r, nil
	}
	return setting.Row{}, fmt.Errorf("%s is no setting%s", name, spelling.Hint(name, names...))
}

// canonical returns a value in the setting's own format. It sets the row's field.
func canonical(row setting.Row, text string) (string, error) {
	if err := row.Value.Set(text); err != nil {
		return "", err
	}
	return row.Value.String(), nil
}

func parseRange(row setting.Row, low, high string) (Axis, error) {
	axis := Axis{Path: row.Path}
	high, axis.Log = strings.CutSuffix(high, ":log")
	for _, end := range []struct {
		text string
		to   *float64
	}{{low, &axis.Low}, {high, &axis.High}} {
		v, err := strconv.ParseFloat(end.text, 64)
		if err != nil || math.IsInf(v, 0) || math.IsNaN(v) {
			return axis, fmt.Errorf("%s is no number: a range is LOW..HIGH or LOW..HIGH:log", end.text)
		}
		if _, err := canonical(row, end.text); err != nil {
			return axis, fmt.Errorf("%s: %w", end.text, err)
		}
		*end.to = v
	}
	_, err := canonical(row, "1.5")
	_, half := canonical(row, "0.5")
	axis.Integer = err != nil && half != nil
	switch {
	case axis.Low >= axis.High:
		return axis, fmt.Errorf("%s..%s: want the smaller end first", low, high)
	case axis.Log && axis.Low <= 0:
		return axis, fmt.Errorf("%s: the logarithm needs an end above 0", low)
	}
	return axis, nil
}

// Grid returns the number of combinations of all lists, and false with a range or above maxTrials.
func (s Space) Grid() (n int, ok bool) {
	n = 1
	for _, a := range s {
		if a.Values == nil {
			return 0, false
		}
		if n *= len(a.Values); n > maxTrials {
			return n, false
		}
	}
	return n, true
}

// Trials returns the trials of a search. random 0 means the grid: all combinations, the last
// setting varying fastest. Otherwise random trials are drawn without repetition, or all
// combinations if there are no more. A longer random search begins with the trials of a shorter
// one.
func (s Space) Trials(random int) ([]Trial, error) {
	grid, listed := s.Grid()
	if random > maxTrials {
		return nil, fmt.Errorf("--trials %d: want at most %d", random, maxTrials)
	}
	if random == 0 {
		for _, a := range s {
			if a.Values == nil {
				return nil, fmt.Errorf("--try %s: a range needs --trials N, the number of random trials", a.Path)
			}
		}
		if !listed {
			return nil, fmt.Errorf("the grid has more than %d combinations: give --trials N for N random ones", maxTrials)
		}
	}
	switch {
	case random == 0:
		return s.pick(grid, func(i int) int { return i }), nil
	case listed:
		order := generator(0).Perm(grid)
		return s.pick(min(random, grid), func(i int) int { return order[i] }), nil
	}
	return s.draw(random)
}

// pick returns n combinations of lists, by their number in the grid.
func (s Space) pick(n int, number func(i int) int) (out []Trial) {
	for i := range n {
		t, rest := Trial{Number: i + 1, Values: make([]string, len(s))}, number(i)
		for k, a := range slices.Backward(s) {
			t.Values[k] = a.Values[rest%len(a.Values)]
			rest /= len(a.Values)
		}
		out = append(out, t)
	}
	return out
}

// draw returns n different random trials, fewer if 100 draws in a row repeat earlier ones.
func (s Space) draw(n int) ([]Trial, error) {
	var out []Trial
	seen := map[string]bool{}
	for attempt, repeated := uint64(1), 0; len(out) < n && repeated < 100; attempt++ {
		r := generator(attempt)
		t := Trial{Number: len(out) + 1}
		for _, a := range s {
			t.Values = append(t.Values, a.value(r))
		}
		if key := strings.Join(t.Values, "\x00"); seen[key] {
			repeated++
			continue
		} else {
			seen[key], repeated = true, 0
		}
		out = append(out, t)
	}
	return out, nil
}

// generator returns an attempt's random numbers. The seed is fixed, so a repeated search is equal.
func generator(attempt uint64) *rand.Rand { return rand.New(rand.NewPCG(0x7475_6e65, attempt)) }

// value draws a value. Numbers have four significant digits, which can be typed.
func (a Axis) value(r *rand.Rand) string {
	if a.Values != nil {
		return a.Values[r.IntN(len(a.Values))]
	}
	low, high := a.Low, a.High
	if a.Integer { // each integer has the same share of the range
		low, high = low-0.5, high+0.5
	}
	u := r.Float64()
	v := low + u*(high-low)
	if a.Log {
		v = math.Exp(math.Log(low) + u*(math.Log(high)-math.Log(low)))
	}
	if a.Integer {
		return strconv.FormatFloat(min(max(math.Round(v), a.Low), a.High), 'f', -1, 64)
	}
	short, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64)
	return strconv.FormatFloat(min(max(short, a.Low), a.High), 'g', -1, 64)
}
