package train

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/randbatch"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/simd"
	"github.com/ringo-ml/ringo/nn"
)

const settingPrecision setting.Path = "training.precision"

// Values of Config.Precision.
const (
	fp32 = "fp32"
	bf16 = "bf16"
	auto = "auto"
)

// kernels returns the kernels of the precision, or an error if this processor has none. auto begins
// with those of fp32.
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

func (c Config) validatePrecision(f *setting.Faults) {
	f.Add(!slices.Contains([]string{"", fp32, bf16, auto}, c.Precision), settingPrecision, "%q: want fp32, bf16 or auto", c.Precision)
	other := c.Precision == bf16 || c.Precision == auto
	f.Add(other && c.Heter.Count > 0, settingPrecision, "%s: heter-trainers compute in fp32: use fp32", c.Precision)
	f.Add(c.Precision == auto && c.Servers.Consistency != "", settingPrecision, "auto: parameters on servers are not measured: use fp32 or bf16")
}

// precisionChoice is the precision that auto selects.
type precisionChoice struct {
	BF16 bool   `json:"bf16"`
	Note string `json:"note"`
}

// minPrecisionGain is the smallest ratio of times for which auto selects bf16.
const minPrecisionGain = 1.05

// choosePrecision makes auto's choice: fp32 unless all ranks have products of bfloat16, then that
// of the checkpoint, or else by rank 0's measurement. The call is collective.
func (r *Replica) choosePrecision(cfg Config) (err error) {
	if cfg.Precision != auto {
		return nil
	}
	k, missing := simd.BF16()
	able, own := make([]int64, r.job.Size()), int64(1)
	if missing != nil {
		own = 0
	}
	if err := collective.AllGather(r.job.Group(), able, []int64{own}); err != nil {
		return fmt.Errorf("comparing the ranks' processors: %w", err)
	}
	if rank := slices.Index(able, 0); rank >= 0 {
		r.choice.Note = fmt.Sprintf("precision auto: fp32; the processor of rank %d has no products of bfloat16", rank)
		return nil
	}
	if cfg.savedKernels != "" {
		r.choice = precisionChoice{BF16: simd.IsBF16(cfg.savedKernels)}
		r.choice.Note = fmt.Sprintf("precision auto: %s, as in the checkpoint", r.choice.name())
	} else {
		if r.job.Rank() == 0 {
			r.choice = r.timePrecisions(cfg, k)
		}
		if r.choice, err = broadcastJSON(r.job.Group(), r.choice); err != nil {
			return fmt.Errorf("broadcasting the choice of %s: %w", settingPrecision, err)
		}
	}
	if r.choice.BF16 {
		r.kernels = k
	}
	return nil
}

func (c precisionChoice) name() string {
	if c.BF16 {
		return bf16
	}
	return fp32
}

// timePrecisions times forward and backward passes of a random batch in fp32 and by k, alternating.
// The model stays as it was.
func (r *Replica) timePrecisions(cfg Config, k *simd.Kernels) precisionChoice {
	const rounds, most = 4, 4 * time.Second
	buffers, batch := slices.Clone(r.Params.Buffers()), r.Batch(randbatch.Batch(r.Spec, r.Params, cfg.Batch, 0))
	var best [2]time.Duration
	tapes := [2]*nn.Tape{}
	for i, kernels := range []*simd.Kernels{r.kernels, k} {
		tapes[i] = nn.NewTape(nn.TapeConfig{Kernels: kernels, Threads: cfg.threadsEach()})
		defer tapes[i].Close()
	}
	for round, start := 0, time.Now(); round < rounds && (round < 2 || time.Since(start) < most); round++ {
		for i, tape := range tapes {
			begun := time.Now()
			tape.Reset()
			tape.Backward(r.learner.Pass(tape, batch).Loss.Mean, func(int) {})
			if took := time.Since(begun); round == 1 || took < best[i] { // round 0 fills the memory
				best[i] = took
			}
		}
	}
	copy(r.Params.Buffers(), buffers)
	r.model.Reset()
	c := precisionChoice{BF16: float64(best[0]) >= minPrecisionGain*float64(best[1])}
	c.Note = fmt.Sprintf("precision auto: %s; a forward and backward pass took %s in bf16, %s in fp32", c.name(), quantity.Duration(best[1]), quantity.Duration(best[0]))
	return c
}

// precision describes the layers with bfloat16 operands and the other layers with parameters, with
// a count of each kind, after auto's choice. It is nil for the precision fp32.
func (r *Replica) precision() (notes []string) {
	if r.choice.Note != "" {
		notes = append(notes, r.choice.Note)
	}
	if r.kernels == r.kernels.Single() {
		return notes
	}
	if remark := r.kernels.Remark(); remark != "" {
		notes = append(notes, "precision bf16: "+remark)
	}
	nodes, err := nn.Trace(func(t *nn.Tape) { r.model.Pass(t, r.Spec.Sample(1)) })
	if err != nil { // an operation without a description
		return append(notes, "precision bf16: products, convolutions and attention; all other operations in fp32")
	}
	var kinds []string
	count := map[string]int{}
	for _, n := range nodes {
		kind := n.Op
		switch {
		case n.Attrs["winograd"] == 1:
			kind = "conv2d by Winograd"
		case n.Attrs["winograd"] == 2:
			kind = "results of conv2d by Winograd"
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
	return append(notes, note)
}
