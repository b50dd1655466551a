package train

import (
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/simd"
)

// TestPrecisionAuto checks that a run with auto prints its choice, and has the bits of the precision
// that it chose: the measurement leaves the model as it was.
func TestPrecisionAuto(t *testing.T) {
	cfg := small()
	cfg.Model, cfg.TrainLimit, cfg.EvalLimit = zoo("cifar-resnet20"), 32, 16
	cfg.Precision = auto
	got, rec := onRanks(t, 2, cfg)
	notes := strings.Join(rec.info.Parameters, "\n")
	cfg.Precision = fp32
	if strings.Contains(notes, "precision auto: bf16; ") {
		cfg.Precision = bf16
	} else if !strings.Contains(notes, "precision auto: fp32; ") {
		t.Errorf("notes %q, want the choice", notes)
	}
	if _, err := simd.BF16(); err == nil && !strings.Contains(notes, "a forward and backward pass took ") {
		t.Errorf("notes %q, want the measurement", notes)
	}
	if want, _ := onRanks(t, 2, cfg); got.ParamsSHA256 != want.ParamsSHA256 {
		t.Errorf("sha256 %s, with the chosen precision %s", got.ParamsSHA256, want.ParamsSHA256)
	}
	cfg.Precision, cfg.Servers.Consistency = auto, "bsp"
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "parameters on servers are not measured") {
		t.Errorf("with parameter servers: %v", err)
	}
}
