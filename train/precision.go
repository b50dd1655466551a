package train

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/randbatch"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/simd"
	"github.com/ringo-ml/ringo/model"
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
}

// precisionChoice is what a rank or all ranks choose for Precision "auto".
type precisionChoice struct {
	BF16    bool   `json:"bf16"`
	Note    string `json:"note"`
	Missing string `json:"missing"` // obstacle to bf16 on this rank; "" if none
}

// minPrecisionGain is the smallest ratio of the times in fp32 and bf16 at which auto takes bf16.
const minPrecisionGain = 1.05

// choosePrecision chooses for Precision "auto": fp32 unless all ranks can multiply bfloat16; then
// the checkpoint's precision, or else by a measurement of rank 0. missing is an obstacle other than
// the processor, or "". All ranks call it. A rank's replicas all use its first choice.
func (r *Replica) choosePrecision(cfg Config, missing string, measure func(k *simd.Kernels) precisionChoice) error {
	if r.choice.Note != "" {
		return nil
	}
	k, err := simd.BF16()
	own := precisionChoice{Missing: missing}
	switch {
	case missing != "":
	case err != nil:
		own.Missing = fmt.Sprintf("the processor of rank %d has no products of bfloat16", r.job.Rank())
	case cfg.savedKernels != "":
		own.BF16 = simd.IsBF16(cfg.savedKernels)
		own.Note = fmt.Sprintf("precision auto: %s, as in the checkpoint", own.name())
	case r.job.Rank() == 0:
		own = measure(k)
	}
	return r.agreePrecision(own)
}

// agreePrecision sets the choice of rank 0 on all ranks, or fp32 if any rank has an obstacle. All
// ranks call it.
func (r *Replica) agreePrecision(own precisionChoice) error {
	text, err := json.Marshal(own)
	if err != nil {
		return err
	}
	peers := peersOf(r.job)
	if s, ok := r.params.(interface{ communicator() communicator }); ok {
		peers = s.communicator()
	}
	all, err := peers.gather(text)
	if err != nil {
		return fmt.Errorf("comparing the choices of %s: %w", settingPrecision, err)
	}
	for rank, text := range all {
		var c precisionChoice
		if text == nil {
			continue // lost
		}
		if err := json.Unmarshal(text, &c); err != nil {
			return fmt.Errorf("the choice of %s of rank %d: %w", settingPrecision, rank, err)
		}
		if c.Missing != "" {
			r.choice = precisionChoice{Note: "precision auto: fp32; " + c.Missing}
			return nil
		}
		if rank == 0 {
			r.choice = c
		}
	}
	if r.choice.BF16 {
		r.kernels, err = simd.BF16()
	}
	return err
}

func (c precisionChoice) name() string {
	if c.BF16 {
		return bf16
	}
	return fp32
}

// timePrecisions times forward and backward passes of a random batch, alternately in fp32 and with
// k. It does not change the model.
func (r *Replica) timePrecisions(cfg Config, k *simd.Kernels) precisionChoice {
	buffers, batch := slices.Clone(r.Params.Buffers()), r.Batch(randbatch.Batch(r.Spec, r.Params, cfg.Batch, 0))
	if _, ok := r.params.(*serverParams); ok {
		batch = holdAny(r.Params.Tables(), batch)
	}
	tapes := [2]*nn.Tape{}
	for i, kernels := range []*simd.Kernels{r.kernels, k} {
		tapes[i] = nn.NewTape(nn.TapeConfig{Kernels: kernels, Threads: cfg.threadsEach()})
		defer tapes[i].Close()
	}
	best := alternate(func(i int) {
		tapes[i].Reset()
		tapes[i].Backward(r.learner.Pass(tapes[i], batch).Loss.Mean, func(int) {})
	})
	copy(r.Params.Buffers(), buffers)
	r.model.Reset()
	return choiceOf(best, "a forward and backward pass took %s in bf16, %s in fp32")
}

// alternate returns the shortest times of do(0), fp32, and do(1), bf16, of 2 to 4 alternating
// calls.
func alternate(do func(i int)) (best [2]time.Duration) {
	const rounds, most = 4, 4 * time.Second
	for round, start := 0, time.Now(); round < rounds && (round < 2 || time.Since(start) < most); round++ {
		for i := range best {
			begun := time.Now()
			do(i)
			if took := time.Since(begun); round == 1 || took < best[i] { // round 0 fills the memory
				best[i] = took
			}
		}
	}
	return best
}

// choiceOf returns the choice by the times in fp32 and in bf16. format describes both.
func choiceOf(best [2]time.Duration, format string) precisionChoice {
	c := precisionChoice{BF16: float64(best[0]) >= minPrecisionGain*float64(best[1])}
	c.Note = fmt.Sprintf("precision auto: %s; "+format, c.name(), quantity.Duration(best[1]), quantity.Duration(best[0]))
	return c
}

// holdAny gives tables with rows on servers a row for each lookup of a random batch, and returns
// the batch with rows instead of ids.
func holdAny(tables []*nn.Table, b model.Batch) model.Batch {
	at := make([]int32, max(len(b.IDs), len(b.Bags.Keys)))
	for i := range at {
		at[i] = int32(i)
	}
	for _, t := range tables {
		n := len(b.Bags.Keys)
		if t.Slots == nil {
			n = len(b.IDs)
		}
		rows := make([]float32, n*t.Dim)
		for i := range rows {
			rows[i] = 0.01 * float32(i%7-3)
		}
		if t.Slots != nil {
			t.Hold(rows, at[:n])
		} else {
			t.Hold(rows, nil)
			b.IDs = at[:n]
		}
	}
	return b
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
