package runlog

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// scene is four runs: two seeds with a batch of 64, one with 128, and one of another machine.
func scene(t *testing.T) []*Run {
	t.Helper()
	one := func(batch, seed int, accuracy ...float64) string {
		text := fmt.Sprintf(jobLine, batch) + runLine(seed, 0)
		for i, a := range accuracy {
			text += epochLine(seed, i+1, float64(10*(i+1)+seed), a)
		}
		return text
	}
	var all []*Run
	for source, text := range map[string]string{
		"a": one(64, 1, 0.5, 0.7, 0.8) + one(64, 2, 0.6, 0.6, 0.9), "b": one(128, 1, 0.4, 0.75), "c": strings.ReplaceAll(one(64, 1, 0.3, 0.85), `"cpu":"X"`, `"cpu":"Y"`),
	} {
		all = append(all, must(t, source, text)...)
	}
	slices.SortStableFunc(all, func(x, y *Run) int { return strings.Compare(x.Source, y.Source) })
	return all
}

func TestGroups(t *testing.T) {
	all := GroupsOf(scene(t))
	if len(all) != 3 || len(all[0].Runs) != 2 || all[0].Label != "batch=64" || all[1].Label != "batch=128" || all[2].Label != "batch=64 (2)" {
		t.Fatalf("%+v", all)
	}
	d := Differences(all)
	if len(d) != 1 || d[0].Name != "training.batch" || !slices.Equal(d[0].Values, []string{"64", "128", "64"}) {
		t.Errorf("%+v", d)
	}
	found := 0
	for _, r := range Machines(all) {
		if want := map[string]string{"processor": "X X Y", "ranks": "2 2 2", "memory": "1 KiB 1 KiB 1 KiB"}[r.Name]; want != "" {
			found++
			if got := strings.Join(r.Values, " "); got != want {
				t.Errorf("%s: %s, want %s", r.Name, got, want)
			}
		}
	}
	if found != 3 {
		t.Errorf("%d rows of the machine", found)
	}
}

func TestCurve(t *testing.T) {
	g := GroupsOf(scene(t))[0]
	c := g.Curve(OfEpochs, "eval_accuracy")
	want := []Point{{10, 1, 11.5, SpreadOf([]float64{0.5, 0.6})}, {20, 2, 21.5, SpreadOf([]float64{0.7, 0.6})}, {30, 3, 31.5, SpreadOf([]float64{0.8, 0.9})}}
	if !slices.Equal(c, want) {
		t.Errorf("%+v, want %+v", c, want)
	}
	if len(g.Curve(OfSteps, "loss")) != 0 {
		t.Error("a curve of nothing")
	}
}

// Fewer points have the same mean and the whole spread of what they stand for.
func TestThin(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 27))
	for range 500 {
		points := make([]Point, 1+r.IntN(50))
		for i := range points {
			v := r.Float64()
			points[i] = Point{Done: int64(i), Spread: Spread{Mean: v, Low: v - r.Float64(), High: v + r.Float64(), N: 2}}
		}
		n := 1 + r.IntN(20)
		got := Thin(points, n)
		if len(got) != min(n, len(points)) || got[len(got)-1].Done != int64(len(points)-1) {
			t.Fatalf("%d points of %d, want %d", len(got), len(points), n)
		}
		before := 0
		for _, p := range got {
			some := points[before : p.Done+1]
			before = int(p.Done) + 1
			mean, low, high := 0., math.Inf(1), math.Inf(-1)
			for _, s := range some {
				mean, low, high = mean+s.Mean, min(low, s.Low), max(high, s.High)
			}
			if math.Abs(p.Mean-mean/float64(len(some))) > 1e-12 || p.Low != low || p.High != high {
				t.Fatalf("%+v of %+v", p, some)
			}
		}
	}
}

func TestSpreadOf(t *testing.T) {
	s := SpreadOf([]float64{1, math.NaN(), 3})
	if s != (Spread{Mean: 2, SD: math.Sqrt2, Low: 1, High: 3, N: 2}) {
		t.Errorf("%+v", s)
	}
	if s := SpreadOf([]float64{math.NaN()}); s.N != 0 || !math.IsNaN(s.Mean) {
		t.Errorf("%+v", s)
	}
}

func TestReach(t *testing.T) {
	all := GroupsOf(scene(t))
	accuracy := Metrics(all)[0]
	if accuracy.Name != "accuracy" || len(Metrics(all)) != 2 {
		t.Fatalf("%+v", Metrics(all))
	}
	if c := Common(all, accuracy); c != 0.75 {
		t.Errorf("all reach %v", c)
	}
	r := all[0].Reach(accuracy, 0.75)
	if r.Runs != 2 || r.WallS.Mean != 31.5 || r.Epoch.Mean != 3 || r.Done.Low != 30 {
		t.Errorf("%+v", r)
	}
	if r := all[0].Reach(accuracy, 0.7); r.Runs != 2 || r.Epoch.Low != 2 || r.Epoch.High != 3 {
		t.Errorf("%+v", r)
	}
	if r := all[0].Reach(accuracy, 0.85); r.Runs != 1 || r.Of != 2 {
		t.Errorf("%+v", r)
	}
	loss := Metrics(all)[1]
	if c := Common(all, loss); math.Abs(c-1.25) > 1e-12 || !loss.Lower {
		t.Errorf("all reach a loss of %v", c)
	}
	if r := all[1].Reach(loss, 1.3); r.Runs != 1 || r.Epoch.Mean != 2 {
		t.Errorf("%+v", r)
	}
}

func TestFigures(t *testing.T) {
	g := GroupsOf(scene(t))[0]
	if s := g.Last(OfEpochs, "eval_accuracy"); math.Abs(s.Mean-0.85) > 1e-12 || s.N != 2 {
		t.Errorf("%+v", s)
	}
	if s := g.Steady("eval_accuracy"); math.Abs(s.Mean-0.75) > 1e-12 {
		t.Errorf("%+v", s)
	}
	if s := g.Total("bytes_sent"); s.Mean != 150 || g.Total("zzz").N != 0 {
		t.Errorf("%+v", s)
	}
	sum := 0.
	for _, p := range g.Parts() {
		if p.MS.N > 0 {
			sum += p.MS.Mean
		}
	}
	if p := g.Parts(); sum != 10 || p[0].MS.Mean != 5 || p[1].MS.Mean != 1 {
		t.Errorf("%+v", p)
	}
}
