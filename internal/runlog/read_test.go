package runlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

const jobLine = `{"event":"job","ringo":"0.1.0","started":"2026-01-02T03:04:05Z","settings":{"training.seed":"1","training.batch":"%d"},"machine":{"host":"a","system":"linux/amd64","cpu":"X","cpus":2,"memory_bytes":1024,"go":"go1"}}
`

func runLine(seed, done int) string {
	resumed := ""
	if done > 0 {
		resumed = "step-3.ringo"
	}
	return fmt.Sprintf(`{"event":"run","seed":%d,"model":"mlp","np":2,"metrics":[{"name":"accuracy","title":"accuracy","percent":true},{"name":"logloss","lower":true,"detail":true}],"resumed":%q,"done":%d}`+"\n", seed, resumed, done)
}

func epochLine(seed, epoch int, wall, accuracy float64) string {
	return fmt.Sprintf(`{"event":"epoch","seed":%d,"epoch":%d,"done":%d,"wall_s":%v,"train_loss":%v,"eval_loss":%v,"eval_accuracy":%v,"samples_per_s":100,"step_ms":10,"compute_ms":6,"data_wait_ms":1,"exposed_comm_ms":4,"bytes_sent":50}`+"\n",
		seed, epoch, 10*epoch, wall, 1-accuracy, 2-accuracy, accuracy)
}

func stepLine(seed, done int, wall float64) string {
	return fmt.Sprintf(`{"event":"step","seed":%d,"epoch":1,"step":%d,"done":%d,"wall_s":%v,"loss":%v}`+"\n", seed, done, done, wall, 1/float64(done))
}

func must(t *testing.T, source, text string) []*Run {
	t.Helper()
	l, err := Read(source, iotest.OneByteReader(strings.NewReader(text)))
	if err != nil {
		t.Fatal(err)
	}
	return l.Runs()
}

func TestRead(t *testing.T) {
	text := fmt.Sprintf(jobLine, 64) + runLine(1, 0) + stepLine(1, 5, 0.5) + `{"event":"remark","text":"x"}` + "\n" + epochLine(1, 1, 1, 0.5) + epochLine(1, 2, 2, 0.6) + `{"event":"summary"}` + "\n" +
		runLine(2, 0) + epochLine(2, 1, 1.5, 0.4) + `{"event":"epoch","seed":2,"epoch":2,"done":20,"wall_s":3,"eval_loss":1}`
	all := must(t, "a.jsonl", text)
	if len(all) != 2 || !all[0].Ended || all[1].Ended || all[0].Job.Settings["training.batch"] != "64" || all[1].Info.Seed != 2 || all[0].Info.NP != 2 {
		t.Fatalf("%+v", all)
	}
	a, b := all[0], all[1]
	if a.Steps.Len() != 1 || a.Steps.Column("loss")[0] != 0.2 || !slices.Equal(a.Epochs.Done, []int64{10, 20}) || !slices.Equal(a.Epochs.WallS, []float64{1, 2}) {
		t.Errorf("%+v, %+v", a.Steps, a.Epochs)
	}
	if c := b.Epochs.Column("eval_accuracy"); len(c) != 2 || c[0] != 0.4 || !math.IsNaN(c[1]) || b.Epochs.Column("zzz") != nil {
		t.Errorf("%v", c)
	}
}

// A run that goes on from a checkpoint is one: what it does again counts once, and its time goes on.
func TestReadOfARunThatWentOn(t *testing.T) {
	text := fmt.Sprintf(jobLine, 64) + runLine(1, 0) + epochLine(1, 1, 10, 0.5) + stepLine(1, 15, 14) + stepLine(1, 25, 24) + epochLine(1, 2, 20, 0.6) + `{"event":"epo` + "\n" +
		fmt.Sprintf(jobLine, 64) + runLine(1, 15) + stepLine(1, 25, 2) + epochLine(1, 2, 8, 0.61) + `{"event":"summary"}` + "\n"
	l, err := Read("a", strings.NewReader(text))
	if err != nil || l.Cut != 1 || len(l.Runs()) != 1 {
		t.Fatalf("%+v, %v", l, err)
	}
	r := l.Runs()[0]
	if !slices.Equal(r.Epochs.Done, []int64{10, 20}) || !slices.Equal(r.Epochs.WallS, []float64{10, 22}) || r.Epochs.Column("eval_accuracy")[1] != 0.61 {
		t.Errorf("epochs %+v", r.Epochs)
	}
	if !slices.Equal(r.Steps.Done, []int64{15, 25}) || !slices.Equal(r.Steps.WallS, []float64{14, 16}) || len(r.Steps.Column("loss")) != 2 || !r.Ended {
		t.Errorf("steps %+v", r.Steps)
	}
}

// Threads of a rank may tell of steps in another order.
func TestReadPassesOverSteps(t *testing.T) {
	l, err := Read("a", strings.NewReader(runLine(1, 0)+stepLine(1, 5, 1)+stepLine(1, 15, 1)+stepLine(1, 10, 1)+stepLine(1, 15, 1)+stepLine(1, 20, 2)))
	if err != nil || l.Passed != 2 || !slices.Equal(l.Runs()[0].Steps.Done, []int64{5, 15, 20}) {
		t.Errorf("%+v, %v", l, err)
	}
}

// Files of before there were records of runs are read, too.
func TestReadOfOlderFiles(t *testing.T) {
	old := `{"event":"epoch","epoch":1,"seed":3,"eval_auc":0.5}` + "\n" + `{"event":"epoch","epoch":2,"seed":3,"eval_auc":0.6}` + "\n"
	all := must(t, "a", old+`{"event":"summary"}`+"\n"+strings.ReplaceAll(old, `"seed":3`, `"seed":4`)+old)
	if len(all) != 3 || all[1].Info.Seed != 4 || all[2].Info.Seed != 3 || !math.IsNaN(all[0].Epochs.WallS[0]) {
		t.Fatalf("%d runs", len(all))
	}
	if m := Metrics(GroupsOf(all)); len(m) != 2 || m[0].Name != "auc" || m[0].Lower || m[1].Name != "loss" {
		t.Errorf("%+v", m)
	}
}

// TestReadOfEvaluation: a file of `ringo eval` has a run with the values of one epoch.
func TestReadOfEvaluation(t *testing.T) {
	line := `{"event":"evaluation","model":"mlp","step":700,"epoch":10,"wall_s":0.5,"eval_accuracy":0.75,"classes":{},"worst":[{}]}`
	all := must(t, "a", line+"\n")
	if len(all) != 1 || !all[0].Ended || all[0].Info.Model != "mlp" || string(all[0].Evaluation) != line || !slices.Equal(all[0].Epochs.Column("eval_accuracy"), []float64{0.75}) {
		t.Errorf("%+v", all)
	}
	reached := RunSet{Runs: all}.Reach(Metric{Name: "accuracy"}, 0.5)
	if reached.Of != 0 || reached.Runs != 0 || !slices.Equal(all[0].Epochs.Done, []int64{700}) {
		t.Errorf("an evaluation counts as training: %+v, steps %v", reached, all[0].Epochs.Done)
	}
}

func TestReadRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"\n{]\n":                      "a:2: want a line of",
		"[1]\n":                       "a:1: want a line of",
		"hello\n":                     "a:1: want a line of",
		`{"event":"job","ringo":1}`:   "a:1: json",
		`{"event":"run","seed":-1}`:   "a:1: json",
		strings.Repeat("x", 17<<20):   "too large: a line",
		epochLine(1, 1, 1, 1) + `{"x`: "",
		fmt.Sprintf(jobLine, 1) + runLine(1, 0) + epochLine(1, 2, 1, 1) + epochLine(1, 1, 1, 1): "a:4: the epoch after 10 steps stands behind",
	} {
		_, err := Read("a", strings.NewReader(text))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
	var wide strings.Builder
	for i := range maxColumns + 1 {
		fmt.Fprintf(&wide, `,"f%d":1`, i)
	}
	if _, err := Read("a", strings.NewReader(`{"event":"epoch","epoch":1`+wide.String()+"}")); !errors.Is(err, ErrLarge) {
		t.Errorf("%v", err)
	}
	if _, err := Read("a", strings.NewReader(strings.Repeat(runLine(1, 0), maxRuns+1))); !errors.Is(err, ErrLarge) {
		t.Errorf("%v", err)
	}
	broken := errors.New("a broken disk")
	if _, err := Read("a", io.MultiReader(strings.NewReader(runLine(1, 0)+"{}"), iotest.ErrReader(broken))); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}

// Of any bytes records are read, of which everything that reports ask can be told, or they are refused.
func FuzzRead(f *testing.F) {
	f.Add([]byte(fmt.Sprintf(jobLine, 64) + runLine(1, 0) + epochLine(1, 1, 1, 0.5) + runLine(1, 15) + epochLine(1, 2, 2, 0.6) + runLine(2, 0) + stepLine(2, 5, 1)))
	f.Add([]byte(`{"event":"epoch","epoch":1,"eval_auc":1e308}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		l, err := Read("a", bytes.NewReader(text))
		if err != nil {
			return
		}
		groups := GroupsOf(l.Runs())
		n := 0
		for _, g := range groups {
			n += len(g.Runs)
			for _, p := range Thin(g.Curve(OfEpochs, "eval_loss"), 3) {
				if !(p.Low <= p.High) {
					t.Fatalf("%+v", p)
				}
			}
			for _, r := range g.Runs {
				for _, table := range []*Table{&r.Epochs, &r.Steps} {
					for _, name := range table.Names() {
						if len(table.Column(name)) != table.Len() || len(table.WallS) != table.Len() || len(table.Epoch) != table.Len() {
							t.Fatalf("%s has %d values of %d records", name, len(table.Column(name)), table.Len())
						}
					}
				}
			}
			g.Parts()
		}
		if n != len(l.Runs()) {
			t.Fatalf("%d runs in groups, of %d", n, len(l.Runs()))
		}
		for _, m := range Metrics(groups) {
			if c := Common(groups, m); !math.IsNaN(c) {
				for _, g := range groups {
					if r := g.Reach(m, c); r.Runs != r.Of {
						t.Fatalf("%d of %d runs reach %v, which all do", r.Runs, r.Of, c)
					}
				}
			}
		}
	})
}

// A log that keeps so many records keeps the whole run, thinner: where it ends, when, and the means.
func TestMost(t *testing.T) {
	for _, steps := range []int{1, 7, 8, 9, 100, 5000} {
		l := NewLog("job")
		l.Most = 8
		sum := 0.
		for i := range steps {
			line := fmt.Sprintf(`{"event":"step","done":%d,"epoch":1,"wall_s":%d,"loss":%d}`, i+1, i, i%2)
			if err := l.Add([]byte(line)); err != nil {
				t.Fatal(err)
			}
			sum += float64(i % 2)
		}
		s := &l.Runs()[0].Steps
		n := s.Len()
		if n > l.Most || n < min(steps, l.Most/2) || len(s.WallS) != n || len(s.Epoch) != n || len(s.Column("loss")) != n {
			t.Fatalf("%d steps: %d records", steps, n)
		}
		if s.Done[n-1] != int64(steps) || s.WallS[n-1] != float64(steps-1) || !slices.IsSorted(s.Done) {
			t.Errorf("%d steps: the last is %d, after %v s", steps, s.Done[n-1], s.WallS[n-1])
		}
		if mean := SpreadOf(s.Column("loss")).Mean; steps == 5000 && math.Abs(mean-sum/5000) > 0.2 {
			t.Errorf("the mean is %v", mean)
		}
	}
	l := NewLog("job")
	l.Most = 80
	for seed := range 3 {
		if err := l.Add([]byte(runLine(seed, 0))); err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			if err := l.Add([]byte(stepLine(seed, i+1, float64(i)))); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range 100 {
		if err := l.Add([]byte(fmt.Sprintf(`{"event":"epoch","seed":2,"epoch":%d,"done":%d,"wall_s":%d,"bytes_sent":10}`, i+1, i+1, i))); err != nil {
			t.Fatal(err)
		}
	}
	if sum := (RunSet{Runs: l.Runs()}).Total("bytes_sent").Mean; sum != 1000 {
		t.Errorf("%v bytes of 100 epochs of 10", sum)
	}
	if all := l.Runs(); len(all) != 3 || all[0].Steps.Len() > 10 || all[1].Steps.Len() > 10 || all[2].Steps.Len() < 40 {
		t.Errorf("%d runs", len(all))
	}
}
