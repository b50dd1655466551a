package train

import (
	"strings"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/simd"
	"github.com/ringo-ml/ringo/model"
)

// TestPrecisionAuto checks that a run with auto prints its choice, and has the bits of the
// precision that it chose: the measurement leaves the model as it was.
func TestPrecisionAuto(t *testing.T) {
	for _, model := range []model.Spec{tinyNorm(), tinyLSTM(), tinyClick(), tinyBags(), zoo("mnist")} {
		cfg, name := custom(model), model.Name
		cfg.TrainLimit, cfg.EvalLimit, cfg.Precision = 32, 16, auto
		cfg.Momentum, cfg.WeightDecay = 0, 0
		got, rec := onRanks(t, 2, cfg)
		notes := strings.Join(rec.info.Parameters, "\n")
		cfg.Precision = fp32
		if strings.Contains(notes, "precision auto: bf16; ") {
			cfg.Precision = bf16
		} else if !strings.Contains(notes, "precision auto: fp32; ") {
			t.Errorf("%s: notes %q, want the choice", name, notes)
		}
		if _, err := simd.BF16(); err == nil && !strings.Contains(notes, "a forward and backward pass took ") {
			t.Errorf("%s: notes %q, want the measurement", name, notes)
		}
		if want, _ := onRanks(t, 2, cfg); got.ParamsSHA256 != want.ParamsSHA256 {
			t.Errorf("%s: sha256 %s, with the chosen precision %s", name, got.ParamsSHA256, want.ParamsSHA256)
		}
	}
}

// TestPrecisionAutoOnServers is TestPrecisionAuto with parameters on servers: rows by ids and by
// keys, several threads of a rank with one choice, and a resume that keeps the choice.
func TestPrecisionAutoOnServers(t *testing.T) {
	k, err := simd.BF16()
	if err != nil {
		t.Skip(err)
	}
	set, keys := keyedSet(t)
	byKeys, byIDs := keyedConfig(keys), small()
	byKeys.Epochs, byIDs.Model, byIDs.TrainLimit, byIDs.EvalLimit = 1, zoo("lstm"), 32, 16
	byIDs.Batch, byIDs.Epochs, byIDs.Momentum, byIDs.WeightDecay = 4, 1, 0, 0
	for name, c := range map[string]struct {
		cfg     Config
		set     *data.Dataset
		mode    string
		threads int
	}{"ids": {byIDs, nil, "bsp", 1}, "keys": {byKeys, set, "bsp", 1}, "threads": {byKeys, set, "ssp", 2}} {
		cfg := c.cfg
		cfg.Servers.Consistency, cfg.Servers.Threads, cfg.Precision = c.mode, c.threads, auto
		got, rec, _ := onServers(t, 2, 2, cfg, c.set, nil)
		notes := strings.Join(rec.info.Parameters, "\n")
		if !strings.Contains(notes, "a forward and backward pass took ") {
			t.Errorf("%s: notes %q, want the measurement", name, notes)
		}
		if c.threads > 1 {
			continue // the order of the threads' pushes differs each time
		}
		cfg.Precision = map[bool]string{true: bf16, false: fp32}[rec.info.Kernels == k.Name()]
		if want, _, _ := onServers(t, 2, 2, cfg, c.set, nil); got.ParamsSHA256 != want.ParamsSHA256 {
			t.Errorf("%s: sha256 %s, with %s %s", name, got.ParamsSHA256, cfg.Precision, want.ParamsSHA256)
		}
	}
	cfg := keptConfig(t, keys, "adagrad", 16)
	cfg.Heter, cfg.Precision = Heter{}, bf16
	want, _, _ := onServers(t, 1, 2, cfg, set, begun(t, cfg.Checkpoint.Dir, 1))
	cfg.Checkpoint.Resume, cfg.Servers.Start, cfg.Precision = true, 2, auto
	dropAfter(t, cfg.Checkpoint.Dir, 16)
	got, rec, _ := onServers(t, 1, 2, cfg, set, begun(t, cfg.Checkpoint.Dir, 2))
	if notes := strings.Join(rec.info.Parameters, "\n"); got.ParamsSHA256 != want.ParamsSHA256 || !strings.Contains(notes, "precision auto: bf16, as in the checkpoint") {
		t.Errorf("resumed: sha256 %s, want %s; notes %q", got.ParamsSHA256, want.ParamsSHA256, notes)
	}
}

// TestPrecisionOfEvaluation checks that an evaluation with auto has the precision of the
// checkpoint, without a measurement.
func TestPrecisionOfEvaluation(t *testing.T) {
	if _, err := simd.BF16(); err != nil {
		t.Skip(err)
	}
	for _, precision := range []string{fp32, bf16} {
		cfg := small()
		cfg.TrainLimit, cfg.Epochs, cfg.Precision = 64, 1, precision
		cfg.Checkpoint = Checkpoint{Dir: t.TempDir()}
		onRanks(t, 1, cfg)
		var losses [2]float64
		for i, p := range []string{auto, precision} {
			cfg.Precision = p
			err := ringo.Local(t.Context(), 1, ringo.Config{}, func(job *ringo.Job) error {
				e, err := Evaluate(t.Context(), job, cfg.Model, nil, cfg)
				losses[i] = e.EvalLoss
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if losses[0] != losses[1] {
			t.Errorf("%s: loss %v with auto, want %v", precision, losses[0], losses[1])
		}
	}
}
