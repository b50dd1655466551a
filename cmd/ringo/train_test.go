package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/cli/commandtest"
	"github.com/ringo-ml/ringo/internal/data/images"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/models"
)

// small are the flags of a run of a moment.
const small = "--data synthetic --epochs 1 --batch 16 --train-limit 192 --eval-limit 33 --threads 1 --progress none "

// summary trains and returns the JSON of the end.
func summary(t *testing.T, line string) map[string]any {
	t.Helper()
	status, out, errs := command(t, line+" --json -")
	if status != 0 {
		t.Fatalf("ringo %s: status %d, stderr %s", line, status, errs)
	}
	return checkJSON(t, out, jobFields, runFields, epochFields, timelineFields, summaryFields)[4]
}

// The same command line has the same parameters in the end, however its ranks
// talk, and in another number of ranks it has others.
func TestTrain(t *testing.T) {
	t.Parallel()
	seen := map[any]string{}
	for _, c := range []struct{ np, model, again string }{
		{"1", "mnist", "--transport mem"},
		{"2", "mnist", "--transport tcp"},
		{"3 --collective-algorithm ring", "mnist", "--transport mem"}, // of three the order shows
		{"2", "mlp", "--collective-algorithm naive"},                  // with two ranks every sum has one order
	} {
		line := "train " + c.model + " " + small + "--np " + c.np + " "
		first, again := summary(t, line), summary(t, line+c.again)
		sha := first["params_sha256"]
		if len(sha.(string)) != 64 || sha != again["params_sha256"] {
			t.Errorf("ringo %s: sha256 %v, then %v with %q", line, sha, again["params_sha256"], c.again)
		}
		if other, ok := seen[sha]; ok {
			t.Errorf("ringo %s has the parameters of ringo %s", line, other)
		}
		seen[sha] = line
		if first["model"] != c.model || first["wall_s"].(float64) <= 0 || first["eval_accuracy"].(float64) > 1 {
			t.Errorf("ringo %s: %v", line, first)
		}
	}
}

// TestModelsTrainOnSyntheticData: each model of the zoo but din, whose samples have sequences of
// keys, trains on what the program draws.
func TestModelsTrainOnSyntheticData(t *testing.T) {
	t.Parallel()
	for _, name := range models.Names() {
		if name == "lstm-300m" || testing.Short() && (name == "resnet50" || name == "gpt" || name == "lstm") {
			continue // lstm-300m is lstm with other sizes, and takes most of a minute
		}
		status, out, errs := command(t, "train "+name+" --data synthetic --train-limit 4 --eval-limit 2 --epochs 1 --batch 2 --np 1 --threads 1 --lr 1e-5 --progress none")
		switch {
		case name == "din":
			if status == 0 || !strings.Contains(errs, "sequence of keys") {
				t.Errorf("din: status %d, %s", status, errs)
			}
		case status != 0 || !strings.Contains(out, "params sha256 "):
			t.Errorf("%s: status %d, %s", name, status, errs)
		}
	}
}

// What a person reads goes to stdout, or to stderr when JSON does not.
func TestTrainOutputs(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "run.jsonl")
	status, out, errs := command(t, "train mlp "+small+"--np 2 --transport tcp --json "+file)
	if status != 0 || errs != "" || strings.Count(out, "\n") != 12 {
		t.Errorf("status %d, stdout %q, stderr %q", status, out, errs)
	}
	checkHolds(t, "stdout", out, "model     mlp, 79,510 parameters\ndata      synthetic: 192 samples for training, 33 for evaluation\ntraining  sgd, learning rate 0.0025 (0.005 for a global batch of 64, scaled to\n",
		"batch 16 per rank, 6 steps per epoch; seed ", "\njob       2 ranks, 1 thread each\n", "\nepoch 1/1   ", "% after 1 epoch in ", "params sha256 ")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	sha := checkJSON(t, string(text), jobFields, runFields, epochFields, timelineFields, summaryFields)[4]["params_sha256"].(string)
	checkHolds(t, "stdout", out, sha)

	status, out, errs = command(t, "train mlp "+small+"--json -")
	checkJSON(t, out, jobFields, runFields, epochFields, timelineFields, summaryFields)
	if status != 0 || strings.Count(errs, "\n") != 12 || !strings.Contains(errs, "params sha256 ") {
		t.Errorf("status %d, stderr %q", status, errs)
	}
}

// The first record is what the job has resolved to, the second what is known before the first step; records of steps tell their parts.
func TestTrainRecords(t *testing.T) {
	status, out, errs := command(t, "train mlp "+small+"--np 2 --transport mem --log-every 3 --json -")
	if status != 0 {
		t.Fatal(errs)
	}
	got := checkJSON(t, out, jobFields, runFields, commandtest.StepFields, commandtest.StepFields, epochFields, timelineFields, summaryFields)
	settings, machine := got[0]["settings"].(map[string]any), got[0]["machine"].(map[string]any)
	for path, want := range map[string]string{"model": "mlp", "training.batch": "16", "training.lr": "0.005", "job.ranks": "2", "data.dir": "synthetic"} {
		if settings[path] != want {
			t.Errorf("%s is %v, want %s", path, settings[path], want)
		}
	}
	if machine["cpus"].(float64) < 1 || machine["system"] != runtime.GOOS+"/"+runtime.GOARCH {
		t.Errorf("%v", machine)
	}
	if m := got[1]["metrics"].([]any)[0].(map[string]any); m["name"] != "accuracy" || m["percent"] != true || m["lower"] != false || got[1]["steps_per_epoch"] != 6. {
		t.Errorf("%v", got[1])
	}
	before := 0.
	for i, s := range got[2:4] {
		parts := s["compute_ms"].(float64) + s["compress_ms"].(float64) + s["exposed_comm_ms"].(float64) + s["update_ms"].(float64)
		wall, step := s["wall_s"].(float64), s["step_ms"].(float64)
		if s["done"] != float64(3*i+3) || s["seed"] != 1. || parts > 1.05*step || wall <= before || s["samples_per_s"].(float64) < 31/step {
			t.Errorf("%v: parts of %v ms", s, parts)
		}
		before = wall
	}
	if e := got[4]; e["done"] != 6. || e["wall_s"].(float64) <= before || e["wall_s"].(float64) > got[6]["wall_s"].(float64) {
		t.Errorf("epoch %v, summary %v", e, got[6])
	}
}

// Faults found at run time are one line too.
func TestRunTimeFaults(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	nowhere := filepath.Join(dir, "nowhere")
	images := mnistFolder(t, dir)
	for _, c := range [][]string{
		{"train mnist --data " + nowhere, nowhere, "no folder", "ringo data mnist --out", "--data synthetic"},
		{"train mnist --np 2 --data " + nowhere, nowhere, "no folder"},
		{"train mnist --data " + images, images + " is not a folder: want one with the four IDX files"},
		{"train mnist --data " + dir, images, "byte 1000: truncated"},
		{"train mnist --np 2 --transport mem --data " + dir, images, "byte 1000: truncated"},
		{"train mlp " + small + "--json " + nowhere + "/run.jsonl", "--json", nowhere + "/run.jsonl", "no such file or directory"},
		{"train mlp " + small + "--np 2 --transport mem --json " + nowhere + "/run.jsonl", "--json", nowhere + "/run.jsonl"},
		{"bench allreduce --json " + nowhere + "/run.jsonl", "--json", nowhere},
		{"bench step mlp --json " + nowhere + "/run.jsonl", "--json", nowhere},
		{"train mlp " + small + "--trace " + nowhere + "/trace.json", "--trace", nowhere},
		{"train mlp " + small + "--batch 193", "training set", "192 samples", "193"},
		{"train mlp " + small + "--accumulate 20", "192", "fewer ranks or a smaller batch"},
		{"run --np 2 -- no-such-program-anywhere", `cannot start "no-such-program-anywhere": executable file not found`},
		{"run --np 2 -- " + images, "cannot start", images, "permission denied"},
		{"run --np 2 -- false", "is lost: exit status 1; ", "it wrote nothing"},
	} {
		checkRefused(t, exitFailed, c[0], c[1:]...)
	}
	status, _, errs := command(t, "train mlp "+small+"--lr 1e30")
	if status != exitFailed || strings.Count(errs, "\n") != 1 {
		t.Errorf("diverging: status %d, stderr %q", status, errs)
	}
	checkHolds(t, "stderr", errs, "epoch 1", "diverged", "lower the learning rate")
}

// A disk that is full ends what has nothing else to do than to write to it.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skipf("%s has no /dev/full", runtime.GOOS)
	}
	for _, line := range []string{"train mlp " + small, "bench allreduce --floats 1 --time 1ms", "bench step mlp --batch 1 --steps 1"} {
		status, _, errs := command(t, line+" --json /dev/full")
		if status != exitFailed || strings.Count(errs, "\n") != 1 {
			t.Errorf("ringo %s: status %d, stderr %q", line, status, errs)
		}
		checkHolds(t, "ringo "+line, errs, "--json", "/dev/full", "no space left on device")
	}
}

// mnistFolder writes a small MNIST whose training images end early, and returns
// their file.
func mnistFolder(t *testing.T, dir string) (truncated string) {
	t.Helper()
	train, test := images.SyntheticMNIST(1, 64, 16)
	idx := func(content []byte, dims ...byte) []byte {
		out := []byte{0, 0, 8, byte(len(dims))}
		for _, d := range dims {
			out = append(out, 0, 0, 0, d)
		}
		return append(out, content...)
	}
	names := []string{images.TrainImages, images.TrainLabels, images.TestImages, images.TestLabels}
	for i, content := range [][]byte{
		idx(train.Pixels, 64, 28, 28)[:1000], idx(train.Labels, 64), idx(test.Pixels, 16, 28, 28), idx(test.Labels, 16),
	} {
		if err := os.WriteFile(filepath.Join(dir, names[i]), content, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, names[0])
}

// Programs find their place in the variables.
func TestRunSetsVariables(t *testing.T) {
	status, out, errs := command(t, "run --np 2 -- env")
	if status != 0 || !strings.HasPrefix(errs, "ringo: ranks are ") || strings.Count(errs, "\n") != 1 {
		t.Fatalf("status %d, stderr %q", status, errs)
	}
	for _, line := range []string{
		launch.RankVar + "=0", launch.WorldSizeVar + "=2", launch.LocalRankVar + "=0", launch.RendezvousVar + "=127.0.0.1:", launch.TicketVar + "=",
		"[rank 1] " + launch.RankVar + "=1", "[rank 1] " + launch.WorldSizeVar + "=2", "[rank 1] " + launch.LocalRankVar + "=1",
	} {
		if !strings.Contains("\n"+out, "\n"+line) {
			t.Errorf("no line begins with %q in\n%s", line, out)
		}
	}
}

const seedsFields = "event model np seeds train_loss eval_loss eval_accuracy samples_per_s wall_s tables"

// Several seeds are as many runs, each as if it were alone, and then their mean
// and spread.
func TestTrainSeeds(t *testing.T) {
	line := "train mlp " + small + "--np 2 --seed 4 "
	status, out, errs := command(t, line+"--set training.seeds=2 --json -")
	if status != 0 || !strings.Contains(errs, "mean and standard deviation of 2 seeds: test accuracy ") {
		t.Fatalf("status %d, stderr %s", status, errs)
	}
	got := checkJSON(t, out, jobFields, runFields, epochFields, timelineFields, summaryFields, runFields, epochFields, timelineFields, summaryFields, seedsFields)
	mean := 0.0
	for i, seed := range []string{"4", "5"} {
		run, alone := got[4*i+4], summary(t, "train mlp "+small+"--np 2 --seed "+seed)
		if run["params_sha256"] != alone["params_sha256"] || fmt.Sprint(run["seed"]) != seed {
			t.Errorf("seed %s: %v, alone %v", seed, run, alone)
		}
		mean += run["eval_loss"].(float64) / 2
	}
	loss := got[9]["eval_loss"].(map[string]any)
	d := got[4]["eval_loss"].(float64) - mean
	if got[9]["event"] != "seeds" || math.Abs(loss["mean"].(float64)-mean) > 1e-12 || math.Abs(loss["sd"].(float64)-math.Abs(d)*math.Sqrt2) > 1e-12 {
		t.Errorf("%v, want a mean of %v and a deviation of %v", loss, mean, math.Abs(d)*math.Sqrt2)
	}
}

// The folds of a numeric target differ in the unit of losses, which a line says, and JSON has the
// units.
func TestTrainFoldsOfNumbers(t *testing.T) {
	t.Parallel()
	file, text := filepath.Join(t.TempDir(), "t.csv"), "x,y\n"
	for i := range 200 {
		text += fmt.Sprintf("%d,%d.5\n", i%97, 3*(i%97))
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	const line = "each fold has its own deviation, of its training rows: compare folds by rmse and mae"
	for _, c := range []struct {
		set  string
		want bool
	}{{"training.folds=2", true}, {"training.seeds=2", false}} {
		status, out, errs := command(t, "train mlp --data "+file+" --set data.target=y --epochs 1 --json "+file+".jsonl --set "+c.set)
		if status != 0 || strings.Contains(out, line) != c.want || !strings.Contains(out, "of the tables: mae ") {
			t.Errorf("%s: status %d, %s, %s", c.set, status, out, errs)
		}
		records, err := os.ReadFile(file + ".jsonl")
		const units = `"units":{"eval_loss":"squared deviations of y","eval_mae":"deviations of y","tables.mae":"y","tables.rmse":"y","train_loss":"squared deviations of y"}`
		if err != nil || strings.Count(string(records), units) != 1 {
			t.Errorf("%s: %v, no units in %s", c.set, err, records)
		}
	}
}

// A cross-validation evaluates each row of a table in one fold, on any number of ranks, and reports
// mean and spread of the runs; TensorBoard has a folder per fold.
func TestTrainFolds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := "x,z,y\n"
	for i := range 300 {
		text += fmt.Sprintf("%d,%d,%d\n", i%17, i%5, (i%17+i%5)/8)
	}
	file := filepath.Join(dir, "t.csv")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var sizes [3][]any
	for np := 1; np <= 3; np++ {
		board := filepath.Join(dir, fmt.Sprint("board-", np))
		status, out, errs := command(t, fmt.Sprintf("train mlp --data %s --epochs 2 --np %d --set training.folds=3 --tensorboard %s --json -", file, np, board))
		if status != 0 || !strings.Contains(errs, "mean and standard deviation of 3 folds: test accuracy ") || !strings.Contains(errs, "of the tables: macro_auc ") || !strings.Contains(errs, "(fold 3 of 3)") {
			t.Fatalf("status %d, stderr %s", status, errs)
		}
		rows, mean, fold := 0., 0., 0.
		for line := range strings.Lines(out) {
			var r map[string]any
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatal(err)
			}
			switch r["event"] {
			case "run":
				fold++
				rows += r["eval_samples"].(float64)
				sizes[np-1] = append(sizes[np-1], r["eval_samples"])
				if r["fold"] != fold || r["eval_samples"].(float64)+r["train_samples"].(float64) != 300 {
					t.Errorf("run %v", r)
				}
			case "summary":
				mean += r["classes"].(map[string]any)["macro"].(map[string]any)["f1"].(float64) / 3
			case "folds":
				if got := r["tables"].(map[string]any)["macro_f1"].(map[string]any)["mean"].(float64); math.Abs(got-mean) > 1e-12 {
					t.Errorf("mean F1 %v, want %v", got, mean)
				}
			}
		}
		if rows != 300 || fold != 3 || !reflect.DeepEqual(sizes[np-1], sizes[0]) {
			t.Errorf("%d ranks: %v folds with %v evaluated rows: %v, on one rank %v", np, fold, rows, sizes[np-1], sizes[0])
		}
		if files, err := filepath.Glob(filepath.Join(board, "fold-*", "events.out.tfevents.*")); err != nil || len(files) != 3 {
			t.Errorf("event files %q, %v", files, err)
		}
	}
}

// What is given replaces the model's default, and another optimizer has its own
// defaults, whatever the order of the flags.
func TestModelDefaults(t *testing.T) {
	t.Parallel()
	for flags, want := range map[string]string{
		"":                                "sgd, learning rate 0.00125 (0.005 for a global batch of 64, scaled to 16);",
		"--batch 32 --np 2":               "sgd, learning rate 0.005 (usual for a global batch of 64);",
		"--lr 0.5":                        "sgd, learning rate 0.5;",
		"--optimizer adamw":               "adamw, learning rate 0.001;",
		"--lr 0.02 --optimizer adamw":     "adamw, learning rate 0.02;",
		"--optimizer adam":                "adam, learning rate 0.001;",
		"--optimizer ftrl":                "ftrl, learning rate 0.5;",
		"--optimizer sgd":                 "sgd, learning rate 0.00125 (0.005 for a global batch of 64, scaled to 16);",
		"--lr-schedule 1:0.01,3:0.002":    "learning rate 0.00125, 0.01 from epoch 1, 0.002 from epoch 3 (0.005 for",
		"--batch 32 --np 4":               "sgd, learning rate 0.01, warm-up 0.1 epochs (0.005 for a global batch of 64, scaled to 128);",
		"--batch 32 --np 4 --warmup 0":    "sgd, learning rate 0.01, warm-up 1 step (0.005 for a global batch of 64, scaled to 128);",
		"--lr-schedule cosine --warmup 3": "learning rate 0.00125, cosine to 0, warm-up 3 steps (0.005 for",
	} {
		status, out, errs := command(t, "train mlp "+small+flags)
		if status != 0 || !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
			t.Errorf("%s: status %d, stderr %q, stdout %s", flags, status, errs, out)
		}
	}
}

// What is streamed is told with the other faults of a run.
func TestTrainStreamRefuses(t *testing.T) {
	checkRefused(t, cli.Failed, "train ctr-dnn --data /nowhere --stream", "/nowhere")
}

// Ranks that share memory send no byte of a gradient, and records say so.
func TestNoBytesInSharedMemory(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"fp32", "topk"} {
		status, out, errs := command(t, "train mlp "+small+"--np 2 --transport shm --progress none --json - --strategy "+strategy)
		if status != 0 {
			t.Fatal(errs)
		}
		for line := range strings.Lines(out) {
			var o map[string]any
			if err := json.Unmarshal([]byte(line), &o); err != nil {
				t.Fatal(err)
			}
			if o["event"] == "epoch" && (o["bytes_sent"] != 0. || o["step_bytes_sent"] != 0.) {
				t.Errorf("%s: %v bytes sent, %v in a step", strategy, o["bytes_sent"], o["step_bytes_sent"])
			}
		}
	}
}
