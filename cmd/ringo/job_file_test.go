package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/pflag"
)

// mostFlags is the largest number of flags of train: other settings are given by their paths. A
// flag is for what somebody types who begins with other weights, files or images (--init-from,
// --partition, --image-size, --layout), who watches a job (--tensorboard, --http, --log-dir,
// --verbose), who starts one on several hosts, of several kinds of processes or on a changing
// number of ranks (--hosts, --heter, --workers, --min-np), who chooses the arithmetic
// (--precision), or who asks how good a model is (--folds).
const mostFlags = 69

// Every flag of train is a setting, but for those that say where settings are, and how much to
// print; they stay few.
func TestFlagsOfTrainAreSettings(t *testing.T) {
	cmd, n := newTrain(), 0
	cmd.InitDefaultHelpFlag()
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		s, is := f.Value.(*settingFlag)
		if !is && !oneOf(f.Name, "job", "set", "write-job", "verbose", "help") {
			t.Errorf("--%s is no setting", f.Name)
		}
		if !is || s.former == "" {
			n++
		}
	})
	if n > mostFlags {
		t.Errorf("%d flags: want at most %d: give new settings a path alone", n, mostFlags)
	}
	for _, r := range usualTable().Rows() {
		if f := cmd.Flags().Lookup(r.Flag); r.Flag != "" && f == nil {
			t.Errorf("%s has no flag --%s", r.Path, r.Flag)
		}
	}
}

// jobFile writes a job file and returns its name.
func jobFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "job.yaml")
	if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return name
}

// A job file trains what flags do, ranks of other processes included; flags win over --set, and that over the file.
func TestJobFile(t *testing.T) {
	file := jobFile(t, `model: mlp
data: {dir: synthetic, train-limit: 192, eval-limit: 33}
training:
  epochs: 1
  batch: 16
  threads: 1
  lr: 0.5 # flags win
output:
  progress: none
exchange: {strategy: fp16}
job: {ranks: 1}
`)
	want := runSummary(t, "train mlp "+small+"--np 2 --lr 0.01 --strategy int8")
	for _, line := range []string{
		"train --job " + file + " --np 2 --lr 0.01 --set exchange.strategy=int8",
		"train mlp --job " + file + " --strategy int8 --set training.lr=0.01 --set job.ranks=2",
		"train --job " + file + " --set model=mlp --set training.lr=1 --lr 0.01 --set exchange.strategy=int8 --set job.ranks=2 --set job.transport=tcp",
	} {
		got := runSummary(t, line)
		for _, field := range []string{"params_sha256", "np", "strategy", "model"} {
			if got[field] != want[field] {
				t.Errorf("%s: %s %v, want %v", line, field, got[field], want[field])
			}
		}
	}
}

func TestJobFileFaults(t *testing.T) {
	for text, want := range map[string]string{
		"training:\n  bacth: 32\n":                     `job.yaml:2: training.bacth is no setting (did you mean "training.batch"?)`,
		"training:\n  batch: many\n":                   "job.yaml:2: training.batch many: want a whole number",
		"training:\n  batch: 3.5\n":                    "job.yaml:2: training.batch 3.5: want a whole number",
		"job:\n  timeout: 30\n":                        "job.yaml:2: job.timeout 30: want a time with its unit, such as 30s",
		"ps:\n  memory: 4giga\n":                       "job.yaml:2: ps.memory 4giga: ",
		"training: {accumulate: maybe}\n":              "job.yaml:1: training.accumulate maybe: want a whole number",
		"training:\n  batch: 1\n  batch: 2\n":          "job.yaml:3: training.batch is given twice: first on line 2",
		"training:\n  batch: x\ndata:\n  dri: y\n":     `job.yaml:4: data.dri is no setting (did you mean "data.dir"?)`,
		"model: [mnist\n":                              "job.yaml: ",
		"model: mnits\n":                               `unknown model "mnits" (did you mean "mnist"?)`,
		"training: {batch: 0}\ndata: {dir: synthetic}": "batch 0: want at least 1",
		"data: {dir: synthetic}\nps:\n  staleness: 3":  "job.yaml:3: ps.staleness has no effect: it needs --sync ssp",
	} {
		name := jobFile(t, text)
		words := ""
		if !strings.Contains(text, "model") {
			words = "mlp "
		}
		checkRefused(t, exitUsage, "train "+words+"--job "+name, want)
	}
	checkRefused(t, exitUsage, "train mlp --job /nowhere/job.yaml", "--job: open /nowhere/job.yaml: no such file")
	checkRefused(t, exitUsage, "train mlp --set batch", `--set "batch": want PATH=VALUE, such as training.batch=32`)
	checkRefused(t, exitUsage, "train mlp --set batch=3", `--set batch is no setting`)
	checkRefused(t, exitUsage, "train --data synthetic", "`ringo train` needs a model")
}

// The first help fits a small terminal; the rest is told by groups, all flags in one of them.
func TestHelpOnTrain(t *testing.T) {
	for _, line := range []string{"train --help", "help train"} {
		status, out, errs := command(t, line)
		if n := strings.Count(out, "\n"); status != 0 || errs != "" || n > 24 {
			t.Errorf("%s: status %d, %d lines, stderr %q", line, status, n, errs)
		}
		for text := range strings.Lines(out) {
			if utf8.RuneCountInString(text) > 81 { // with its end
				t.Errorf("%s: more than 80 columns: %s", line, text)
			}
		}
		checkHolds(t, line, out, groupNames()...)
	}
	_, all, _ := command(t, "help train all")
	for _, topic := range trainTopics() {
		status, out, errs := command(t, "help train "+topic)
		if status != 0 || errs != "" || out == "" {
			t.Errorf("help train %s: status %d, stderr %q", topic, status, errs)
		}
		if topic != "models" {
			checkHolds(t, "help train all", all, out)
		}
	}
	_, models, _ := command(t, "help train models")
	checkHolds(t, "help train models", models, "mnist-cnn, mnist (431,080 parameters)", "data mnist, batch 64, 10 epochs")
	for _, r := range usualTable().Rows() {
		if r.Flag != "" {
			checkHolds(t, "help train all", all, "--"+r.Flag+" ")
		} else {
			checkHolds(t, "help train all", all, string(r.Path))
		}
	}
	checkRefused(t, exitUsage, "help train exchagne", `"exchagne" is no topic of `+"`ringo help train`"+` (did you mean "exchange"?); there are models, all, training`)
	checkRefused(t, exitUsage, "help trian", "is not a command of `ringo`")
	if status, out, _ := command(t, "help bench allreduce"); status != 0 || !strings.Contains(out, "--floats") {
		t.Errorf("help bench allreduce: %s", out)
	}
	for _, f := range defaults { // each is a flag
		name, _, _ := strings.Cut(f[0], " ")
		if newTrain().Flags().Lookup(name) == nil {
			t.Errorf("--%s is no flag", name)
		}
	}
}
