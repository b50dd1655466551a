package evalmetrics

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// naiveGroup computes a group's metrics by their definitions, the AUC over all pairs of samples.
func naiveGroup(value string, chances []float64, events []bool) Group {
	g, pairs, wins := Group{value, ClickReport{Samples: int64(len(chances))}}, 0.0, 0.0
	for i, p := range chances {
		g.Predicted += p / float64(len(chances))
		loss := -math.Log(1 - p)
		if events[i] {
			g.Events++
			loss = -math.Log(p)
		}
		g.LogLoss += loss / float64(len(chances))
		for j, q := range chances {
			if events[i] && !events[j] {
				pairs++
				wins += map[bool]float64{float32(p) > float32(q): 1}[true] + map[bool]float64{float32(p) == float32(q): 0.5}[true]
			}
		}
	}
	g.Observed = float64(g.Events) / float64(len(chances))
	if g.Events > 0 {
		g.Calibration = known(g.Predicted / g.Observed)
	}
	if pairs > 0 {
		g.AUC = known(wins / pairs)
	}
	return g
}

// TestGroupsEqualNaiveTwin filters the samples of each value, for clicks of one and two logits and
// for two classes; any division of the passes gives the same bits.
func TestGroupsEqualNaiveTwin(t *testing.T) {
	for trial := range 60 {
		rnd := rand.New(rand.NewPCG(10, uint64(trial)))
		by := &Grouping{Column: "day", Values: []string{"9", "10", "b", "unused"}}
		plan := Plan{Kind: []Kind{Clicks, Classes}[trial%2], Classes: 2, Names: []string{"no", "yes"}, Samples: true, Losses: true, By: by}
		var passes []Pass
		chances, events := map[string][]float64{}, map[string][]bool{}
		for range 6 {
			var p Pass
			for range 1 + rnd.IntN(9) {
				x, label, k := float32(rnd.IntN(9)-4)/2, int32(rnd.IntN(2)), int32(rnd.IntN(3))
				if k == 2 {
					label = 0 // a group with one label
				}
				p.Index, by.Member = append(p.Index, int32(len(by.Member))), append(by.Member, k)
				p.Labels = append(p.Labels, label)
				if p.Outputs = append(p.Outputs, x); trial%4 > 1 {
					p.Outputs = append(p.Outputs[:len(p.Outputs)-1], 1, 1+x)
				}
				if (x > 0) == (label == 1) {
					p.Correct++
				}
				value := by.Values[k]
				chances[value] = append(chances[value], 1/(1+math.Exp(-float64(x))))
				events[value] = append(events[value], label == 1)
			}
			passes = append(passes, p)
		}
		r := division(plan, passes, 1, rnd)
		for ranks := 2; ranks <= 4; ranks++ {
			if other := division(plan, passes, ranks, rnd); !reflect.DeepEqual(other, r) {
				t.Fatalf("trial %d: %d ranks report %+v, one %+v", trial, ranks, other.Groups, r.Groups)
			}
		}
		weighted, samples, ranked := 0.0, 0.0, 0
		for i, value := range slices.DeleteFunc(slices.Clone(by.Values), func(v string) bool { return chances[v] == nil }) {
			got, want := r.Groups.Groups[i], naiveGroup(value, chances[value], events[value])
			if math.Abs(got.Predicted-want.Predicted) > 1e-7 || got.Calibration.Known != want.Calibration.Known || math.Abs(got.Calibration.Value-want.Calibration.Value) > 1e-6 {
				t.Errorf("trial %d: predicted %v, %v, the naive twin has %v, %v", trial, got.Predicted, got.Calibration, want.Predicted, want.Calibration)
			}
			closeTo(t, "AUC", got.AUC.Value, want.AUC.Value)
			closeTo(t, "log-loss", got.LogLoss, want.LogLoss)
			if want.AUC.Known {
				weighted, samples, ranked = weighted+want.AUC.Value*float64(want.Samples), samples+float64(want.Samples), ranked+1
			}
			got.Predicted, got.Calibration, got.LogLoss, got.AUC.Value = want.Predicted, want.Calibration, want.LogLoss, want.AUC.Value
			if !reflect.DeepEqual(got, want) {
				t.Errorf("trial %d: group %+v, want %+v", trial, got, want)
			}
		}
		if r.Groups.Ranked != ranked || r.Groups.GAUC.Known != (ranked > 0) || (r.Groups.Event == "yes") != (plan.Kind == Classes) {
			t.Errorf("trial %d: %+v", trial, r.Groups)
		}
		if ranked > 0 {
			closeTo(t, "mean AUC", r.Groups.GAUC.Value, weighted/samples)
		}
	}
}

// TestGroupLinesFitTerminal prints the values in order or, of more than 20, those with the most
// samples, within 80 columns.
func TestGroupLinesFitTerminal(t *testing.T) {
	r := &GroupReport{Column: strings.Repeat("column", 5), Event: "yes", Ranked: 2, GAUC: known(0.625)}
	for i := range 23 {
		r.Groups = append(r.Groups, Group{fmt.Sprintf("value %d is long", i), ClickReport{Samples: int64(9e6) - int64(22-i), Events: 9e6, Predicted: 1, Observed: 1, Calibration: known(1.5), AUC: known(1), LogLoss: 12}})
	}
	r.Groups[22].Value, r.Groups[22].AUC = "", Value{}
	lines := Report{Groups: r}.Lines()
	text := strings.Join(lines, "\n")
	for _, want := range []string{"(missing)     9,000,000", "and 3 groups of at most 8,999,980 samples; all are in --json", "events are the samples of class yes", "AUC is undefined (-) in 21 groups with one label", "mean AUC of 2 groups, weighted by samples (GAUC): 0.6250"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if !strings.HasPrefix(lines[1], "(missing)") || strings.Contains(text, "value 2 is") {
		t.Errorf("not by samples:\n%s", text)
	}
	for _, line := range lines {
		if n := len([]rune(line)); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	r.Groups = r.Groups[:20]
	if lines := r.lines(); !strings.HasPrefix(lines[1], "value 0 is") {
		t.Errorf("not in order: %q", lines)
	}
}
