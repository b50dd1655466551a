package train

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/simd"
	"github.com/ringo-ml/ringo/nn"
)

const settingPrecision setting.Path = "training.precision"

// Values of Config.Precision.
const (
	fp32 = "fp32"
	bf16 = "bf16"
)

// kernels returns the kernels of the precision, or an error if this processor has none.
func (c Config) kernels() (*simd.Kernels, error) {
	if c.Precision != bf16 {
		return simd.Host(), nil
	}
	k, err := simd.BF16()
	if err != nil {
		return nil, setting.Errorf(settingPrecision, "bf16: %w: use fp32", err)
	}
	return k, nil
}

// sameBits reports whether two kinds of kernels compute the same bits. Checkpoints of earlier
// versions have no kind.
func sameBits(saved, now string) bool {
	fused := []string{"avx512", "avx2"}
	return saved == "" || saved == now || slices.Contains(fused, saved) && slices.Contains(fused, now)
}

func (c Config) validatePrecision(f *setting.Faults) {
	f.Add(!slices.Contains([]string{"", fp32, bf16}, c.Precision), settingPrecision, "%q: want fp32 or bf16", c.Precision)
	f.Add(c.Precision == bf16 && c.Heter.Count > 0, settingPrecision, "bf16: heter-trainers compute in fp32: use fp32")
}

// precision describes the layers with bfloat16 operands and the other layers with parameters, with
// a count of each kind. It is nil in fp32.
func (r *Replica) precision() []string {
	if r.kernels == r.kernels.Single() {
		return nil
	}
	nodes, err := nn.Trace(func(t *nn.Tape) { r.model.Pass(t, r.Spec.Sample(1)) })
	if err != nil { // an operation without a description
		return []string{"precision bf16: products, convolutions and attention; all other operations in fp32"}
	}
	var kinds []string
	count := map[string]int{}
	for _, n := range nodes {
		kind := n.Op
		switch {
		case n.Attrs["winograd"] == 1:
			kind = "conv2d by Winograd"
		case slices.Contains([]string{"dense", "conv2d", "lstm", "gru"}, kind), len(n.Params) == 0 && n.Table == nil:
			continue
		}
		if count[kind]++; count[kind] == 1 {
			kinds = append(kinds, kind)
		}
	}
	note := "precision bf16: operands of products, convolutions and attention"
	for i, kind := range kinds {
		kinds[i] = fmt.Sprintf("%s (%s)", kind, quantity.Count(count[kind], "layer"))
	}
	if len(kinds) > 0 {
		note += "; in fp32: " + strings.Join(kinds, ", ")
	}
	return []string{note}
}
