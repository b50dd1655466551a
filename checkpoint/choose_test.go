package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/setting"
)

// compared is a small state of a run with a monitored metric, whose best epoch has a step.
func compared(step, best int64, monitor string) State {
	s := small(step)
	s.Keep = 0
	s.Header.Settings = setting.Values{"training.monitor": monitor}
	s.Header.More = map[string]string{"past": fmt.Sprintf(`{"best":{"metric":"auc","value":0.75,"epoch":2,"step":%d}}`, best)}
	return s
}

// TestChooseTakesTheBest: a folder means its best checkpoint where epochs are compared, else the
// last one, and both have names.
func TestChooseTakesTheBest(t *testing.T) {
	best, plain, other, same := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	for _, step := range []int64{10, 20, 30} {
		save(t, best, compared(step, min(step, 20), "auc:patience=3"))
		save(t, plain, compared(step, 20, ""))
		save(t, other, compared(step, 20, "loss"))
		save(t, same, compared(step, step, "auc"))
	}
	lost := t.TempDir()
	save(t, lost, compared(30, 20, "auc"))
	taken := t.TempDir()
	save(t, taken, compared(30, 30, "auc"))
	save(t, filepath.Join(taken, "best"), compared(7, 7, ""))
	const auc = "the best one by auc, 0.75 of epoch 2"
	for _, c := range []struct{ path, file, why string }{
		{best, PathOf(best, 20), auc},
		{best + "/best", PathOf(best, 20), auc},
		{best + "/last", PathOf(best, 30), "the last one"},
		{best + "/last/", PathOf(best, 30), "the last one"},
		{PathOf(best, 10), PathOf(best, 10), ""},
		{plain, PathOf(plain, 30), "the last one"},
		{other, PathOf(other, 30), "the last one"},
		{plain + "/last", PathOf(plain, 30), "the last one"},
		{same, PathOf(same, 30), auc + ", and the last one"},
		{lost, PathOf(lost, 30), "the last one: " + auc + ", is missing (step-000000020.ringo)"},
		{taken + "/best", PathOf(filepath.Join(taken, "best"), 7), "the last one"},
	} {
		if file, why, err := Choose(c.path); file != c.file || why != c.why || err != nil {
			t.Errorf("%s: %s, %q, %v, want %s, %q", c.path, file, why, err, c.file, c.why)
		}
	}
}

// TestChooseReportsErrors: no checkpoint, no comparison, a missing best file and a damaged last
// file are errors.
func TestChooseReportsErrors(t *testing.T) {
	dir, empty := t.TempDir(), t.TempDir()
	save(t, dir, compared(30, 20, "auc"))
	plain := t.TempDir()
	save(t, plain, compared(30, 20, ""))
	for path, want := range map[string]string{
		empty:              "no checkpoint",
		empty + "/best":    "no checkpoint",
		empty + "/none":    "no checkpoint",
		plain + "/best":    "the run compares no epochs (training.monitor): take " + plain + "/last",
		dir + "/best":      "is the best one by auc, 0.75 of epoch 2, step-000000020.ringo: stat ",
		dir + "/best/last": "no checkpoint",
	} {
		_, _, err := Choose(path)
		if err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, ErrNone) != (want == "no checkpoint") {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
	if err := os.Truncate(PathOf(dir, 30), 40); err != nil {
		t.Fatal(err)
	}
	damage := new(DamageError)
	if _, _, err := Choose(dir); !errors.As(err, &damage) {
		t.Errorf("%v", err)
	}
}

// FuzzBestStep: any text of a header's entry gives a step with a description, or none.
func FuzzBestStep(f *testing.F) {
	for _, s := range []string{`{"best":{"metric":"auc","value":1,"step":3}}`, `{"best":null}`, `{"best":[]}`, ``, `{"best":{"step":1e99}}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		h := Header{More: map[string]string{"past": text}, Settings: setting.Values{"training.monitor": "auc"}}
		if step, why := h.BestStep(); (why == "") && step != 0 {
			t.Errorf("%q: step %d without a description", text, step)
		}
	})
}
