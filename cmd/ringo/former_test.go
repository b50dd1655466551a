package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/setting"
)

// Every name of an earlier version leads to a setting of today or was removed with a remedy, its flag is accepted and
// hidden, and no document and no message uses it.
func TestFormerNamesAreAcceptedAndUnused(t *testing.T) {
	flags := newTrain().Flags()
	var names []string
	for path, gone := range setting.Formers() {
		now, _, exists, _ := setting.Current(setting.Assignment{Path: path, Text: "true"})
		if _, known := usualTable().Row(now.Path); known != exists {
			t.Errorf("%s is %s, which exists: %t, known: %t", path, now.Path, exists, known)
		}
		if now.Path != path || !exists {
			names = append(names, regexp.QuoteMeta(string(path)))
		}
		for _, flag := range gone {
			if f := flags.Lookup(flag); f == nil || !f.Hidden {
				t.Errorf("--%s of %s is not a hidden flag", flag, path)
			}
			if flag != "algorithm" { // which ringo plan has
				names = append(names, "--"+flag)
			}
		}
	}
	former := regexp.MustCompile("(?m)(^|[^\\w.-])(" + strings.Join(names, "|") + ")($|[^\\w-])")
	for file, texts := range mentions(t) {
		if strings.HasSuffix(file, "setting/former.go") {
			continue
		}
		for _, text := range texts {
			if m := former.FindString(text); m != "" && len(text) > 3 {
				t.Errorf("%s has the name %q of an earlier version", file, m)
			}
		}
	}
}

// Former flags and paths work as the ones of today, with one line that names these.
func TestFormerNamesPrintOneLine(t *testing.T) {
	status, _, errs := command(t, "train mlp --data synthetic --np 1 --train-limit 64 --eval-limit 16 --epochs 1 --progress none --dead-after 9s --set job.heartbeat=1s --set job.slice=100us --lr-cosine --sync sum")
	want := "ringo: names of earlier versions, accepted until 1.0: --dead-after is --heartbeat-timeout; --lr-cosine is --lr-schedule; --sync sum is --sync aggregate; job.heartbeat was removed: leave it out: it is a tenth of job.heartbeat-timeout, and 1s at most; job.slice was removed: leave it out: slices are 100µs\n"
	if status != 0 || strings.Count(errs, "accepted until 1.0") != 1 || !strings.Contains(errs, want) {
		t.Errorf("status %d, stderr %q, want %q", status, errs, want)
	}
}
