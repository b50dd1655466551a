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

// TestWorstSamplesEqualNaiveTwin computes the loss of each sample by its definition, for each kind
// of table, and sorts; any division of the passes gives the same report.
func TestWorstSamplesEqualNaiveTwin(t *testing.T) {
	for trial := range 60 {
		rnd := rand.New(rand.NewPCG(9, uint64(trial)))
		plan := Plan{Kind: []Kind{Classes, Numbers, Clicks}[trial%3], Classes: 4, Samples: true, Scores: true, Losses: true, Worst: 5}
		if plan.Kind == Numbers {
			plan.Value = func(x float32) float64 { return 10*float64(x) + 3 }
		}
		var passes []Pass
		var naive []Example
		number := 0
		for range 6 {
			var p Pass
			for range 1 + rnd.IntN(9) {
				own := Example{Sample: 1000 - number}
				p.Index = append(p.Index, int32(own.Sample))
				number++
				switch plan.Kind {
				case Classes:
					row, label := make([]float32, 4), rnd.IntN(4)
					sum := 0.0
					for k := range row {
						row[k] = float32(rnd.IntN(5))
						sum += math.Exp(float64(row[k]))
					}
					own.Loss = -math.Log(math.Exp(float64(row[label])) / sum)
					best := slices.Index(row, slices.Max(row))
					own.Prediction, own.Truth = fmt.Sprint(best), fmt.Sprint(label)
					if p.Labels, p.Outputs = append(p.Labels, int32(label)), append(p.Outputs, row...); best == label {
						p.Correct++
					}
				case Numbers:
					y, x := float32(rnd.IntN(3)), float32(rnd.IntN(3))
					own.Prediction, own.Truth = 10*float64(x)+3, 10*float64(y)+3
					own.Loss = 100 * float64(x-y) * float64(x-y)
					p.Targets, p.Outputs = append(p.Targets, y), append(p.Outputs, x)
				case Clicks:
					x, event := float32(rnd.IntN(7)-3), rnd.IntN(2)
					chance := 1 / (1 + math.Exp(-float64(x)))
					own.Prediction, own.Truth = float64(float32(chance)), event
					own.Loss = -math.Log(math.Abs(float64(event-1) + chance))
					p.Labels, p.Outputs = append(p.Labels, int32(event)), append(p.Outputs, x)
				}
				naive = append(naive, own)
			}
			passes = append(passes, p)
		}
		r := division(plan, passes, 1, rnd)
		for ranks := 2; ranks <= 4; ranks++ {
			if other := division(plan, passes, ranks, rnd); !reflect.DeepEqual(other, r) {
				t.Fatalf("trial %d: %d ranks report %+v, one %+v", trial, ranks, other, r)
			}
		}
		mean := 0.0
		for _, e := range naive {
			mean += e.Loss / float64(len(naive))
		}
		closeTo(t, "mean loss", r.MeanLoss.Value, mean)
		slices.SortFunc(naive, func(a, b Example) int {
			if math.Abs(a.Loss-b.Loss) > 1e-9 {
				return int(math.Copysign(1, b.Loss-a.Loss))
			}
			return a.Sample - b.Sample
		})
		if len(r.Worst) != min(5, len(naive)) {
			t.Fatalf("trial %d: %d samples", trial, len(r.Worst))
		}
		for i, got := range r.Worst {
			want := naive[i]
			closeTo(t, "loss", got.Loss, want.Loss)
			if got.Loss = want.Loss; !reflect.DeepEqual(got, want) {
				t.Errorf("trial %d: sample %d is %+v, want %+v", trial, i, got, want)
			}
		}
	}
}

// TestJudgedLinesFitTerminal has lines of at most 80 columns, and the input with the largest rise
// first as given.
func TestJudgedLinesFitTerminal(t *testing.T) {
	r := Report{MeanLoss: known(1.25), Worst: []Example{{Place: "t.csv: line 7", Values: []string{strings.Repeat("long=", 40)}, Prediction: strings.Repeat("word", 9), Truth: 1.5, Loss: 2}, {Sample: 3, Prediction: 0.25, Truth: 1}},
		Importance: []Importance{{Input: strings.Repeat("column", 9), Rise: 0.5, SD: 0.125, Repeats: 1}}}
	text := strings.Join(r.Lines(), "\n")
	for _, want := range []string{"2 samples with the largest loss:", "wordwordwor…          1.5  t.csv: line 7", "        1  3\n", "rise of the loss, 1.25, if the values of one input are permuted, 1 time:", "0.5        0.125"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	for line := range strings.Lines(text) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}
