package progress

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/cli/commandtest"
	"github.com/ringo-ml/ringo/internal/steptrace"
	"github.com/ringo-ml/ringo/internal/tune"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/train"
)

// scene is a run of two epochs of 40 + 5 steps as the Reporter is told it, one
// step every second.
func scene(t *testing.T, r *Reporter) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		r.Start(train.Info{
			Model: "mnist", Params: 431080, NP: 2, Threads: 1, Batch: 64, TrainSamples: 5120, EvalSamples: 640, Epochs: 2,
			StepsPerEpoch: 40, Strategy: "fp32", Plan: "fixed", PlanSHA256: "0123456789abcdef", Buckets: 3, Kernels: "avx2", Transport: "tcp", DataSet: "synthetic",
			Unit: "samples", PerSample: 1, Metrics: []model.Metric{model.Accuracy()}, Optimizer: "sgd", Schedule: "0.005", Seed: 7, LeftOut: []data.LeftOut{{Kind: data.BadSample, Count: 1, Names: []string{"a.png: byte 3: truncated"}}},
			DataNotes: []string{"evaluating on a, not on b", "held out: a share of 0.1"},
		})
		for epoch := 1; epoch <= 2; epoch++ {
			for _, phase := range []train.Progress{{Phase: "train", Total: 40, Loss: 1 / float64(epoch)}, {Phase: "evaluate", Total: 5}} {
				phase.Epoch, phase.Epochs, phase.Samples = epoch, 2, 128
				for phase.Done = 1; phase.Done <= phase.Total; phase.Done++ {
					time.Sleep(time.Second)
					r.Progress(phase)
				}
			}
			r.Epoch(train.Epoch{
				Event: "epoch", Epoch: epoch, TrainLoss: 0.5, EvalLoss: 0.25, Train: model.Metrics{"accuracy": 0.875}, Eval: model.Metrics{"accuracy": 1},
				SamplesPerS: 1234.5, StepMS: 12.34, BreakDown: train.BreakDown{ExposedCommMS: 0.56}, BytesSent: 10, WireBytes: 12,
			})
		}
		r.Summary(train.Summary{
			Event: "summary", Model: "mnist", Params: 431080, NP: 2, Strategy: "fp32", Plan: "fixed", Buckets: 3,
			Eval: model.Metrics{"accuracy": 1}, SamplesPerS: 1234.5, ParamsSHA256: "abc", WallS: 90.25, LeftOut: []data.LeftOut{{Kind: data.BadSample, Count: 3, Names: []string{"a.png: byte 3: truncated", "b.png: byte 0: empty file"}}},
		})
		if err := r.Finish(); err != nil {
			t.Error(err)
		}
	})
}

const sceneLines = `model     mnist, 431,080 parameters
data      synthetic: 5,120 samples for training, 640 for evaluation
training  sgd, learning rate 0.005; batch 64 per rank, 40 steps per epoch; seed
          7
job       2 ranks, 1 thread each
evaluating on a, not on b
held out: a share of 0.1
left out 1 bad sample: a.png: byte 3: truncated
             train     train      test
              loss  accuracy  accuracy  samples/s  ms/step
epoch 1/2   0.5000    87.50%   100.00%      1,234    12.34 *
epoch 2/2   0.5000    87.50%   100.00%      1,234    12.34
left out 3 bad samples: a.png: byte 3: truncated; b.png: byte 0: empty file; and 1 more
best test accuracy 100.00% in epoch 1 (*)
test accuracy 100.00% after 2 epochs in 1m30s
params sha256 abc
`

const scenePlain = `epoch 1/2 train: step 11 of 40, 128 samples/s, loss 1.0000, 1m9s left
epoch 1/2 train: step 21 of 40, 128 samples/s, loss 1.0000, 59s left
epoch 1/2 train: step 31 of 40, 128 samples/s, loss 1.0000, 49s left
epoch 2/2 train: step 11 of 40, 128 samples/s, loss 0.5000, 34s left
epoch 2/2 train: step 21 of 40, 128 samples/s, loss 0.5000, 24s left
epoch 2/2 train: step 31 of 40, 128 samples/s, loss 0.5000, 14s left
`

func TestReportLines(t *testing.T) {
	for style, want := range map[string]string{"plain": scenePlain, "none": ""} {
		var lines, status bytes.Buffer
		scene(t, &Reporter{out: cli.Output{Lines: &lines}, status: &status, style: style})
		if lines.String() != sceneLines {
			t.Errorf("%s: lines\n%swant\n%s", style, &lines, sceneLines)
		}
		if status.String() != want {
			t.Errorf("%s: progress\n%swant\n%s", style, &status, want)
		}
	}
}

// Of dlgs the first lines say by what layers are merged, where it is not by measurements.
func TestReportOfMergedLayers(t *testing.T) {
	for _, c := range []struct{ strategy, plan, want string }{
		{"dlgs", "fixed", "strategy dlgs (codec), plan fixed (layers merged by size into 4 buckets, unless --plan says otherwise, sha256 01234567)"},
		{"dlgs", "exact", "strategy dlgs (codec), plan exact (4 buckets, sha256 01234567)"},
		{"dgc", "fixed", "strategy dgc (codec), plan fixed (4 buckets, sha256 01234567)"},
	} {
		var lines strings.Builder
		r := &Reporter{out: cli.Output{Lines: &lines}, verbose: true}
		r.Start(train.Info{Strategy: c.strategy, Codec: "codec", Plan: c.plan, PlanSHA256: "0123456789abcdef", Buckets: 4})
		commandtest.Holds(t, c.strategy, strings.Join(strings.Fields(lines.String()), " "), c.want)
	}
}

// The bar keeps to one line however narrow the terminal is, and only the lines
// stay on the terminal.
func TestReportBar(t *testing.T) {
	for _, columns := range []int{0, 1, 20, 40, 60, 80, 120, 300} {
		var lines bytes.Buffer
		term := &commandtest.Terminal{}
		scene(t, &Reporter{out: cli.Output{Lines: io.MultiWriter(&lines, term)}, status: term, style: "bar", columns: columns})
		if lines.String() != sceneLines {
			t.Errorf("%d columns: lines\n%s", columns, &lines)
		}
		if left := term.Text(); left != sceneLines {
			t.Errorf("%d columns: on the terminal stays\n%q, want\n%q", columns, left, sceneLines)
		}
		limit := columns
		if columns == 0 {
			limit = 80
		}
		if want := 2 * (38 + 3 + 2); columns != 1 && len(term.Drawn) != want { // the first batch starts it, the last ends it
			t.Errorf("%d columns: the bar was drawn %d times, want %d", columns, len(term.Drawn), want)
		}
		for _, drawn := range term.Drawn {
			if len([]rune(drawn)) >= limit {
				t.Errorf("%d columns: a bar of %d: %q", columns, len([]rune(drawn)), drawn)
			}
		}
		if columns == 0 || columns >= 80 {
			half := slices.IndexFunc(term.Drawn, func(s string) bool { return strings.Contains(s, " 51% |") })
			commandtest.Holds(t, fmt.Sprint("half an epoch at ", columns), term.Drawn[max(0, half)], "epoch 1/2 train, 58s left  51% |██████████", "| (128 samples/s)")
		}
	}
}

func TestReportJSON(t *testing.T) {
	var out bytes.Buffer
	scene(t, &Reporter{out: cli.Output{Lines: io.Discard, JSON: &out}, status: io.Discard, style: "none"})
	got := commandtest.JSON(t, out.String(), commandtest.RunFields+" notes left_out", commandtest.EpochFields, commandtest.EpochFields, commandtest.LeftOutFields)
	want := []map[string]any{
		{"event": "run", "model": "mnist", "seed": 7., "np": 2., "steps_per_epoch": 40., "unit": "samples", "schedule": "0.005"},
		{
			"event": "epoch", "epoch": 1., "train_loss": 0.5, "train_accuracy": 0.875, "eval_loss": 0.25, "eval_accuracy": 1.,
			"samples_per_s": 1234.5, "step_ms": 12.34, "exposed_comm_ms": 0.56, "bytes_sent": 10., "wire_bytes": 12.,
		},
		{"event": "epoch", "epoch": 2.},
		{
			"event": "summary", "model": "mnist", "np": 2., "strategy": "fp32", "plan": "fixed", "eval_accuracy": 1.,
			"samples_per_s": 1234.5, "params_sha256": "abc", "wall_s": 90.25, "params": 431080., "buckets": 3.,
		},
	}
	for i := range want {
		for name, v := range want[i] {
			if got[i][name] != v {
				t.Errorf("line %d: %s is %v, want %v", i, name, got[i][name], v)
			}
		}
	}
}

// fullDisk takes some writes and then no more.
type fullDisk struct {
	room   int
	closed bool
}

var errFull = errors.New("no space left")

func (d *fullDisk) Write(p []byte) (int, error) {
	if d.room == 0 {
		return 0, errFull
	}
	d.room--
	return len(p), nil
}

func (d *fullDisk) Close() error {
	d.closed = true
	return nil
}

// JSON that cannot be written is an error at the end; training goes on to tell
// in lines. A run that failed has no summary.
func TestReportFaults(t *testing.T) {
	var lines bytes.Buffer
	disk := &fullDisk{room: 1}
	r := &Reporter{out: cli.Output{Lines: &lines, JSON: disk, File: disk}, status: io.Discard, style: "none"}
	r.Epoch(train.Epoch{Epoch: 1})
	r.Epoch(train.Epoch{Epoch: 2})
	err := r.Finish()
	if !errors.Is(err, errFull) || !strings.Contains(err.Error(), "--json") || !disk.closed {
		t.Errorf("error %v, closed %v", err, disk.closed)
	}
	if strings.Count(lines.String(), "\n") != 2 || strings.Contains(lines.String(), "sha256") {
		t.Errorf("after a failed run: %q", &lines)
	}
	var out bytes.Buffer
	r = &Reporter{out: cli.Output{Lines: io.Discard, JSON: &out}, status: io.Discard, style: "none"}
	if err := r.Finish(); err != nil || out.Len() > 0 {
		t.Errorf("after a failed run: error %v, JSON %q", err, &out)
	}
}

// The numbers of steps and epochs, by their names in the records, are what TensorBoard draws.
func TestTensorBoard(t *testing.T) {
	for seeds, folder := range map[bool]string{false: "", true: "seed-7"} {
		dir := t.TempDir()
		r := &Reporter{out: cli.Output{Lines: io.Discard}, status: io.Discard, style: "none"}
		r.TensorBoard(dir, seeds)
		scene(t, r)
		files, err := filepath.Glob(filepath.Join(dir, folder, "events.out.tfevents.*"))
		if err != nil || len(files) != 1 {
			t.Fatalf("several seeds %v: files %q, %v, want 1", seeds, files, err)
		}
		text, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]int{"epoch/train_loss": 2, "epoch/eval_accuracy": 2, "epoch/exposed_comm_ms": 2, "wall_s": 0, "epoch/epoch": 0, "epoch/seed": 0} {
			if got := strings.Count(string(text), name); got != want {
				t.Errorf("%q is there %d times, want %d", name, got, want)
			}
		}
	}
}

// What cannot be written ends nothing, the records of --json neither, and is told at the end.
func TestTensorBoardWithoutFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	var records bytes.Buffer
	r := &Reporter{out: cli.Output{Lines: io.Discard, JSON: &records}, status: io.Discard, style: "none"}
	r.TensorBoard(file, false)
	r.Start(train.Info{Seed: 1})
	r.Epoch(train.Epoch{Event: "epoch", Epoch: 1})
	if err := r.Finish(); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("%v, want a fault that names %s", err, file)
	}
	if n := strings.Count(records.String(), "\n"); n != 2 {
		t.Errorf("%d records, want 2:\n%s", n, &records)
	}
}

// A step that is seen is told after each epoch.
func TestSeenStep(t *testing.T) {
	var records bytes.Buffer
	r := &Reporter{out: cli.Output{Lines: io.Discard, JSON: &records}, status: io.Discard, style: "none"}
	steps := []steptrace.Step{{Event: "timeline", Done: 7, Bars: []steptrace.Bar{{Phase: "forward", EndMS: 2}}}}
	r.SetStepSource(func() (s steptrace.Step, ok bool) {
		if ok = len(steps) > 0; ok {
			s, steps = steps[0], steps[1:]
		}
		return s, ok
	})
	r.Epoch(train.Epoch{Event: "epoch", Epoch: 1})
	r.Epoch(train.Epoch{Event: "epoch", Epoch: 2})
	if lines := strings.Split(records.String(), "\n"); len(lines) != 4 || lines[1] != `{"event":"timeline","rank":0,"done":7,"bars":[{"phase":"forward","start_ms":0,"end_ms":2}]}` {
		t.Errorf("%q", lines)
	}
}

// What was predicted of a step is told with the choice, in ms.
func TestPredictedTimeline(t *testing.T) {
	step := bucket.Timeline{
		Layers: []bucket.Interval{{Start: 0.002, End: 0.003}, {Start: 0.003, End: 0.004}}, Compute: 0.004, Total: 0.007,
		Buckets: []bucket.BucketTimes{{Select: bucket.Interval{Start: 0.003, End: 0.0035}, Send: bucket.Interval{Start: 0.0035, End: 0.006}}},
	}
	e := newChoiceEvent(tune.Report{Chosen: tune.Prediction{Timeline: step}})
	text, err := json.Marshal(e.Timeline)
	if err != nil || string(text) != `{"forward_ms":2,"compute_end_ms":4,"step_ms":7,"buckets":[{"bucket":0,"select_start_ms":3,"select_end_ms":3.5,"send_start_ms":3.5,"send_end_ms":6}]}` {
		t.Errorf("%s, %v", text, err)
	}
	if e := newChoiceEvent(tune.Report{}); e.Timeline != nil {
		t.Errorf("nothing was predicted: %+v", e.Timeline)
	}
}

// The last samples of a click model stand in the plain line, the bar's title, the step's line and the epoch's, and in --json by their names.
func TestReportProgressive(t *testing.T) {
	last := &train.Progressive{Samples: 1000, AUC: train.OptionalFloat{Value: 0.71236, Known: true}, LogLoss: 0.5, Calibration: 1.25}
	p := train.Progress{Phase: "train", Epoch: 1, Epochs: 1, Done: 3, Total: 4, Progressive: last}
	if got := title(p); got != "epoch 1/1 train, AUC 0.7124" {
		t.Errorf("the bar's title is %q", got)
	}
	var lines, json bytes.Buffer
	r := New(cli.Output{Lines: &lines, JSON: &json}, "none", io.Discard, 80)
	r.Start(train.Info{Epochs: 1, StepsPerEpoch: 4, PlanSHA256: "0123456789", Unit: "samples", Metrics: []model.Metric{{Name: "auc", Detail: true, Score: func(model.Pass, int) float32 { return 0 }}}})
	lines.Reset()
	r.Step(train.Step{Event: "step", Epoch: 1, Step: 3, Progressive: last})
	r.Epoch(train.Epoch{Event: "epoch", Epoch: 1, Progressive: &train.Progressive{Samples: 1}})
	for _, says := range []string{" 0 ms, last 1,000 samples: AUC 0.7124, log-loss 0.5000, calibration 1.250\n", "progressive\n", "  AUC  samples/s  ms/step\n", "   unknown "} {
		if !strings.Contains(lines.String(), says) {
			t.Errorf("%q is not in %q", says, lines.String())
		}
	}
	if says := `"progressive_samples":1000,"progressive_auc":0.71236,"progressive_logloss":0.5,"progressive_calibration":1.25`; !strings.Contains(json.String(), says) {
		t.Errorf("%s lacks %s", json.String(), says)
	}
}

// TestTimeLeftOfAResumedEpoch: the part of an epoch that a resumed run does predicts whole ones.
func TestTimeLeftOfAResumedEpoch(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		r := New(cli.Output{Lines: io.Discard}, "none", nil, 0)
		r.Start(train.Info{Epochs: 3, StepsPerEpoch: 100, PerSample: 1, Resumed: "a checkpoint"})
		for epoch, done := 1, 91; epoch <= 2; epoch, done = epoch+1, 1 { // 90 steps of the first epoch were done before
			for ; done <= 100; done++ {
				time.Sleep(time.Second)
				p := train.Progress{Phase: "train", Epoch: epoch, Epochs: 3, Done: done, Total: 100, Samples: 1}
				r.Progress(p)
				if want := time.Duration(100-done+100*(3-epoch)) * time.Second; done%5 == 0 && r.left(p) != want {
					t.Errorf("epoch %d, step %d: %v left, want %v", epoch, done, r.left(p), want)
				}
			}
			r.Epoch(train.Epoch{Epoch: epoch})
		}
	})
}
