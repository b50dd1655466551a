package train

import (
	"strings"
	"testing"

	"github.com/ringo-ml/ringo"
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
	cfg := small()
	cfg.Precision, cfg.Servers.Consistency = auto, "bsp"
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "parameters on servers are not measured") {
		t.Errorf("with parameter servers: %v", err)
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
