package evalmetrics

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// division computes a plan's report of passes that some counters share.
func division(p Plan, passes []Pass, counters int, rnd *rand.Rand) Report {
	all := make([]*Counter, counters)
	for i := range all {
		all[i] = p.NewCounter()
	}
	for _, i := range rnd.Perm(len(passes)) {
		all[rnd.IntN(counters)].Add(passes[i])
	}
	if counters > 1 && rnd.IntN(2) == 0 { // two threads of a rank
		all[0].Merge(all[1])
		all = append(all[:1], all[2:]...)
	}
	var words [][]uint64
	for _, c := range all {
		words = joined(words, c.Words())
	}
	return p.Report(words)
}

func joined(words, more [][]uint64) [][]uint64 {
	if words == nil {
		words = make([][]uint64, len(more))
	}
	for i, w := range more {
		words[i] = append(words[i], w...)
	}
	return words
}

// close reports values that differ by more than rounding.
func closeTo(t *testing.T, what string, got, want float64) {
	t.Helper()
	if !(math.Abs(got-want) <= 1e-9*max(1, math.Abs(want))) {
		t.Errorf("%s: %v, the naive twin has %v", what, got, want)
	}
}

// classPasses are random passes of a classifier with ties; a class in labels or predictions may be
// missing.
func classPasses(rnd *rand.Rand, classes int) (passes []Pass, logits [][]float32, labels []int32) {
	used := 1 + rnd.IntN(classes)
	for range 1 + rnd.IntN(6) {
		var p Pass
		for range 1 + rnd.IntN(20) {
			row := make([]float32, classes)
			for k := range row {
				row[k] = float32(rnd.IntN(9)) / 2
			}
			label := int32(rnd.IntN(used))
			if rnd.IntN(2) == 0 {
				row[label] += 2
			}
			if slices.Index(row, slices.Max(row)) == int(label) {
				p.Correct++
			}
			p.Outputs, p.Labels = append(p.Outputs, row...), append(p.Labels, label)
			logits, labels = append(logits, row), append(labels, label)
		}
		passes = append(passes, p)
	}
	return passes, logits, labels
}

// TestClassesEqualNaiveTwin compares each metric of classes with its definition, sample by sample,
// for any division.
func TestClassesEqualNaiveTwin(t *testing.T) {
	for trial := range 100 {
		rnd := rand.New(rand.NewPCG(2, uint64(trial)))
		plan := Plan{Kind: Classes, Classes: 2 + rnd.IntN(9), Samples: true, Scores: true}
		passes, logits, labels := classPasses(rnd, plan.Classes)
		r := division(plan, passes, 1, rnd)
		for ranks := 2; ranks <= 4; ranks++ {
			if other := division(plan, passes, ranks, rnd); !reflect.DeepEqual(other, r) {
				t.Fatalf("trial %d: %d ranks report %+v, one %+v", trial, ranks, other.Classes, r.Classes)
			}
		}
		checkClasses(t, r.Classes, plan.Classes, logits, labels)
	}
}

func checkClasses(t *testing.T, r *ClassReport, classes int, logits [][]float32, labels []int32) {
	t.Helper()
	predicted := make([]int32, len(labels))
	right, top5 := 0.0, 0.0
	for i, row := range logits {
		predicted[i] = int32(slices.Index(row, slices.Max(row)))
		if predicted[i] == labels[i] {
			right++
		}
		order := make([]int, classes)
		for k := range order {
			order[k] = k
		}
		slices.SortStableFunc(order, func(a, b int) int { return int(math.Copysign(1, float64(row[b]-row[a]))) * oneIf(row[a] != row[b]) })
		if slices.Index(order, int(labels[i])) < 5 {
			top5++
		}
	}
	n := float64(len(labels))
	closeTo(t, "accuracy", r.Accuracy, right/n)
	if (r.Top5 != nil) != (classes > 5) {
		t.Errorf("top-5 accuracy of %d classes: %v", classes, r.Top5)
	} else if r.Top5 != nil {
		closeTo(t, "top-5", *r.Top5, top5/n)
	}
	var macro, weighted, area, areas, present float64
	for k := range classes {
		c := r.Classes[k]
		support, found, both := 0.0, 0.0, 0.0
		scores, positive := make([]float32, len(labels)), make([]bool, len(labels))
		for i := range labels {
			support += float64(oneIf(labels[i] == int32(k)))
			found += float64(oneIf(predicted[i] == int32(k)))
			both += float64(oneIf(labels[i] == int32(k) && predicted[i] == int32(k)))
			scores[i], positive[i] = float32(Softmax(nil, logits[i], 1)[k]), labels[i] == int32(k)
		}
		checkValue(t, fmt.Sprint("precision of ", k), c.Precision, both, found)
		checkValue(t, fmt.Sprint("recall of ", k), c.Recall, both, support)
		checkValue(t, fmt.Sprint("F1 of ", k), c.F1, 2*both, support+found)
		if c.AUC.Known != (support > 0 && support < n) {
			t.Errorf("class %d of %v in %v samples: AUC %v", k, support, n, c.AUC)
		} else if c.AUC.Known {
			closeTo(t, "AUC", c.AUC.Value, naiveAUC(scores, positive))
			area, areas = area+c.AUC.Value, areas+1
		}
		if support+found > 0 {
			present++
			macro += c.F1.or(0)
			weighted += c.F1.or(0) * support
		}
	}
	closeTo(t, "macro F1", r.Macro.F1.Value, macro/present)
	closeTo(t, "weighted F1", r.Weighted.F1.Value, weighted/n)
	checkValue(t, "macro AUC", r.MacroAUC, area, areas)
}

func checkValue(t *testing.T, what string, got Value, a, b float64) {
	t.Helper()
	if got.Known != (b > 0) {
		t.Errorf("%s: %v of %v/%v", what, got, a, b)
	} else if got.Known {
		closeTo(t, what, got.Value, a/b)
	}
}

func oneIf(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestNumbersEqualNaiveTwin compares errors in the target's unit with their definitions, for any
// division.
func TestNumbersEqualNaiveTwin(t *testing.T) {
	for trial := range 100 {
		rnd := rand.New(rand.NewPCG(3, uint64(trial)))
		plan := Plan{Kind: Numbers, Samples: true, Value: func(x float32) float64 { return 10*float64(x) - 3 }}
		var passes []Pass
		var errs, ys []float64
		for range 1 + rnd.IntN(5) {
			var p Pass
			for range 1 + rnd.IntN(30) {
				y, z := float32(rnd.NormFloat64()), float32(rnd.NormFloat64())
				p.Targets, p.Outputs = append(p.Targets, y), append(p.Outputs, z)
				ys, errs = append(ys, 10*float64(y)-3), append(errs, 10*(float64(z)-float64(y)))
			}
			passes = append(passes, p)
		}
		r := division(plan, passes, 1, rnd)
		if other := division(plan, passes, 3, rnd); !reflect.DeepEqual(other, r) {
			t.Fatalf("trial %d: 3 ranks report %+v, one %+v", trial, other.Numbers, r.Numbers)
		}
		n, mean, squares, absolute, spread := float64(len(ys)), 0.0, 0.0, 0.0, 0.0
		for i := range ys {
			mean += ys[i] / n
			squares += errs[i] * errs[i] / n
			absolute += math.Abs(errs[i]) / n
			errs[i] = math.Abs(errs[i])
		}
		for _, y := range ys {
			spread += (y - mean) * (y - mean) / n
		}
		slices.Sort(errs)
		closeTo(t, "RMSE", r.Numbers.RMSE, math.Sqrt(squares))
		closeTo(t, "MAE", r.Numbers.MAE, absolute)
		if len(ys) > 1 {
			closeTo(t, "R2", r.Numbers.R2.Value, 1-squares/spread)
		}
		below := 0
		for _, e := range errs {
			below += oneIf(e <= r.Numbers.ErrorQuantiles.P90)
		}
		if want := int(0.9*(n-1)) + 1; below != want {
			t.Errorf("%d of %v errors are up to the quantile of 90 %%, want %d", below, n, want)
		}
	}
}

// TestClicksEqualNaiveTwin compares metrics of clicks with their definitions, for logits of one and
// of two columns.
func TestClicksEqualNaiveTwin(t *testing.T) {
	for trial := range 100 {
		rnd := rand.New(rand.NewPCG(4, uint64(trial)))
		plan := Plan{Kind: Clicks, Samples: true}
		var passes []Pass
		var scores []float32
		var events []bool
		loss, expected, happened := 0.0, 0.0, 0.0
		for range 1 + rnd.IntN(5) {
			var p Pass
			for range 1 + rnd.IntN(60) {
				x := float32(rnd.IntN(41)-25) / 8
				event := rnd.IntN(3) == 0
				if trial%2 == 0 {
					p.Outputs = append(p.Outputs, x)
				} else {
					p.Outputs = append(p.Outputs, 1, 1+x)
				}
				p.Labels = append(p.Labels, int32(oneIf(event)))
				chance := 1 / (1 + math.Exp(-float64(x)))
				scores, events = append(scores, float32(chance)), append(events, event)
				expected, happened = expected+float64(float32(chance)), happened+float64(oneIf(event))
				if event {
					loss -= math.Log(chance)
				} else {
					loss -= math.Log(1 - chance)
				}
			}
			passes = append(passes, p)
		}
		r := division(plan, passes, 1, rnd)
		if other := division(plan, passes, 3, rnd); !reflect.DeepEqual(other, r) {
			t.Fatalf("trial %d: 3 ranks report %+v, one %+v", trial, other.Clicks, r.Clicks)
		}
		c := r.Clicks
		closeTo(t, "log-loss", c.LogLoss, loss/float64(len(scores)))
		if c.AUC.Known {
			closeTo(t, "AUC", c.AUC.Value, naiveAUC(scores, events))
			checkValue(t, "calibration", c.Calibration, expected, happened)
		}
		samples, below := int64(0), 0.0
		for _, d := range c.Reliability {
			if d.Samples == 0 || !(d.Max >= below) || d.Max < d.Predicted-1e-12 || d.Predicted < below {
				t.Errorf("trial %d: deciles %+v", trial, c.Reliability)
			}
			samples, below = samples+d.Samples, d.Max
		}
		if samples != c.Samples {
			t.Errorf("trial %d: deciles have %d of %d samples", trial, samples, c.Samples)
		}
	}
}

// TestClickWordsKeepLogits encodes logits with either label, and gets the logits, in order.
func TestClickWordsKeepLogits(t *testing.T) {
	var last uint64
	for _, x := range []float32{-math.MaxFloat32, -20, -1.0000001, -1, -1e-40, 0, 1e-40, 1, 1.0000001, 20, math.MaxFloat32} {
		for _, event := range []bool{false, true} {
			w := clickWord(float64(x), event)
			if got, is := clickOf(w); got != float64(x) || is != event || w <= last {
				t.Errorf("%v, %v: %v, %v, word %x after %x", x, event, got, is, w, last)
			}
			last = w
		}
	}
}

// TestUndefinedMetrics are null in JSON, "-" in text, and explained there.
func TestUndefinedMetrics(t *testing.T) {
	one := func(p Plan, pass Pass) Report {
		c := p.NewCounter()
		c.Add(pass)
		return p.Report(c.Words())
	}
	for name, c := range map[string]struct {
		plan       Plan
		pass       Pass
		json, text string
	}{
		"no predictions of a class": {Plan{Kind: Classes, Classes: 2, Samples: true, Scores: true}, Pass{Outputs: []float32{1, 0, 2, 0}, Labels: []int32{0, 1}, Correct: 1},
			`"precision":null,"recall":0`, "without predictions: 1 class"},
		"a single class":           {Plan{Kind: Classes, Classes: 2, Samples: true, Scores: true}, Pass{Outputs: []float32{1, 0}, Labels: []int32{0}, Correct: 1}, `"macro_auc":null`, "AUC is undefined (-): all samples have the same class"},
		"a class without samples":  {Plan{Kind: Classes, Classes: 3, Samples: true, Scores: true}, Pass{Outputs: []float32{1, 0, 0, 0, 1, 0}, Labels: []int32{0, 1}, Correct: 2}, `"recall":null`, "without samples: 1 class"},
		"too many samples":         {Plan{Kind: Classes, Classes: 2, Samples: true}, Pass{Outputs: []float32{1, 0, 0, 1}, Labels: []int32{0, 1}, Correct: 2}, `"macro_auc":null`, "AUC is not computed (-)"},
		"a constant target":        {Plan{Kind: Numbers, Samples: true}, Pass{Outputs: []float32{1, 2}, Targets: []float32{0.1, 0.1}}, `"r2":null`, "R² is undefined (-): all values are equal"},
		"clicks of one label":      {Plan{Kind: Clicks, Samples: true}, Pass{Outputs: []float32{1, 2}, Labels: []int32{0, 0}}, `"calibration":null`, "AUC is undefined (-)"},
		"a saturated prediction":   {Plan{Kind: Clicks, Samples: true}, Pass{Outputs: []float32{-800, 900}, Labels: []int32{1, 0}}, `"logloss":850`, "log-loss 850.0000"},
		"a class with a long name": {Plan{Kind: Classes, Classes: 2, Samples: true, Scores: true, Names: []string{strings.Repeat("ü", 90), "a\x1b[31m"}}, Pass{Outputs: []float32{1, 0, 0, 1}, Labels: []int32{0, 1}, Correct: 2}, `"f1":1`, "a?[31m"},
	} {
		r := one(c.plan, c.pass)
		text, err := json.Marshal(r)
		if err != nil || !strings.Contains(string(text), c.json) {
			t.Errorf("%s: JSON %s, %v, want %s", name, text, err, c.json)
		}
		if lines := strings.Join(append(r.Lines(), r.Brief()...), "\n"); !strings.Contains(lines, c.text) || strings.Contains(lines, "NaN") || strings.ContainsAny(lines, "\x1b\r") {
			t.Errorf("%s: text\n%s\nwant %s", name, lines, c.text)
		}
	}
}

// TestForeignOutputsHaveNoTables leaves out tables of outputs that are no scores of the classes, or
// of another shape.
func TestForeignOutputsHaveNoTables(t *testing.T) {
	for _, c := range []struct {
		plan Plan
		pass Pass
	}{
		{Plan{Kind: Classes, Classes: 2, Samples: true, Scores: true}, Pass{Outputs: []float32{1, 0}, Labels: []int32{0}}}, // the loss counts another prediction
		{Plan{Kind: Classes, Classes: 3, Samples: true, Scores: true}, Pass{Outputs: []float32{1, 0}, Labels: []int32{0}, Correct: 1}},
		{Plan{Kind: Classes, Classes: 2, Samples: true, Scores: true}, Pass{Outputs: []float32{1, 0}, Labels: []int32{2}}},
		{Plan{Kind: Numbers, Samples: true}, Pass{Outputs: []float32{1, 0, 3}, Targets: []float32{1}}},
		{Plan{Kind: Clicks, Samples: true}, Pass{Outputs: []float32{1, 0, 3}, Labels: []int32{1}}},
		{Plan{Kind: Clicks}, Pass{Outputs: []float32{1}, Labels: []int32{1}}},
		{Plan{}, Pass{Outputs: []float32{1}, Labels: []int32{1}}},
		{Plan{Kind: Numbers, Samples: true}, Pass{}},
		{Plan{Kind: Classes, Classes: 2}, Pass{}},
	} {
		counter := c.plan.NewCounter()
		counter.Add(c.pass)
		if r := c.plan.Report(counter.Words()); !reflect.DeepEqual(r, Report{}) || r.Lines() != nil || r.Brief() != nil {
			t.Errorf("%+v: %+v", c, r)
		}
	}
}

// TestLinesFitTerminal prints tables of few and of many classes, and of numbers and clicks, within
// 80 columns.
func TestLinesFitTerminal(t *testing.T) {
	for _, classes := range []int{2, 6, 7, 20, 21, 300} {
		rnd := rand.New(rand.NewPCG(5, uint64(classes)))
		plan := Plan{Kind: Classes, Classes: classes, Samples: true, Scores: true}
		for k := range classes {
			plan.Names = append(plan.Names, strings.Repeat("x", k%40)+fmt.Sprint(k))
		}
		c := plan.NewCounter()
		passes, _, _ := classPasses(rnd, classes)
		for _, p := range passes {
			c.Add(p)
		}
		r := plan.Report(c.Words())
		for i := range r.Classes.Confusion { // as of many samples
			r.Classes.Confusion[i][2] += 1_000_000
			r.Classes.Classes[r.Classes.Confusion[i][0]].Support += 1_000_000
			r.Classes.Classes[r.Classes.Confusion[i][1]].Predicted += 1_000_000
			r.Classes.Samples += 1_000_000
		}
		lines := append(r.Lines(), r.Brief()...)
		for _, line := range lines {
			if n := utf8.RuneCountInString(line); n > 80 {
				t.Errorf("%d classes: %d columns: %s", classes, n, line)
			}
		}
		if rest := fmt.Sprintf("and %d class", classes-maxRows); classes > maxRows != strings.Contains(strings.Join(lines, "\n"), rest) || len(lines) > 50 {
			t.Errorf("%d classes: %d lines\n%s", classes, len(lines), strings.Join(lines, "\n"))
		}
	}
	for _, p := range []Plan{{Kind: Numbers, Samples: true, Unit: strings.Repeat("column ", 20)}, {Kind: Clicks, Samples: true}} {
		c := p.NewCounter()
		pass := Pass{}
		for i := range 1000 {
			x := float32(i)*1e-7 - 12
			pass.Outputs, pass.Targets, pass.Labels = append(pass.Outputs, x), append(pass.Targets, -x*1e12), append(pass.Labels, int32(i%2))
		}
		c.Add(pass)
		for _, line := range append(p.Report(c.Words()).Lines(), p.Report(c.Words()).Brief()...) {
			if n := utf8.RuneCountInString(line); n > 80 {
				t.Errorf("%d columns: %s", n, line)
			}
		}
	}
}

// TestJointCountsTargetsAndPredictions: each sample is in the bins of its target and prediction,
// predictions outside the targets' range and no numbers are in the outer bins, and equal targets
// have no counts.
func TestJointCountsTargetsAndPredictions(t *testing.T) {
	word := func(target, prediction float32) uint64 {
		return uint64(math.Float32bits(target))<<32 | uint64(math.Float32bits(prediction))
	}
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	words := []uint64{word(-3, -3), word(-3, nan), word(17, 17), word(17, 99), word(17, inf), word(2.5, -50)}
	double := func(x float32) float64 { return 2 * float64(x) }
	j := joint(words, double)
	want := map[[2]int]int64{{0, 0}: 2, {19, 19}: 3, {5, 0}: 1}
	if j == nil || j.Min != -6 || j.Width != 2 {
		t.Fatalf("got %+v", j)
	}
	for i, row := range j.Counts {
		for k, n := range row {
			if n != want[[2]int{i, k}] {
				t.Errorf("bin %d, %d: %d", i, k, n)
			}
		}
	}
	if j := joint([]uint64{word(1, 2), word(1, 3)}, double); j != nil {
		t.Errorf("of equal targets: %+v", j)
	}
}
