package distopt

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/spelling"
)

// Strategy names what the ranks exchange in a step; see Infos.
type Strategy string

const (
	// FP32 averages every gradient over the ranks in single precision while
	// backward still runs, then updates. The zero value means FP32.
	FP32 Strategy = "fp32"
	// FP16 sends values in half precision; they are added in single precision.
	FP16 Strategy = "fp16"
	// BF16 sends values as bfloat16 likewise.
	BF16 Strategy = "bf16"
	// Int8 sends a byte for each value and a scale for each block, and keeps what
	// rounding lost.
	Int8 Strategy = "int8"
	// PartialUpdate updates all parameters with the rank's own gradients, then
	// averages one partition of the parameters, the next one each step.
	// Replicas differ between averages; Sync brings them together.
	PartialUpdate Strategy = "partialUpdate"
	// SparseTopK sends the largest values of each bucket, exactly selected in every
	// step.
	SparseTopK Strategy = "sparseTopK"
	// SparseThreshold sends the values of at least a fixed magnitude.
	SparseThreshold Strategy = "sparseThreshold"
	// TopK selects once from the whole model, after backward.
	TopK Strategy = "topk"
	// LAGS selects exactly from each layer (Shi et al. 2020).
	LAGS Strategy = "lags"
	// DGC selects by a threshold that is estimated from a sample (Lin et al. 2018).
	DGC Strategy = "dgc"
	// DLGS selects from each bucket by a threshold that is reused (Ju et al. 2024).
	DLGS Strategy = "dlgs"
	// Custom is what a Config with a Chain of its own has.
	Custom Strategy = "custom"
)

// Scope is what one selection or one message is of.
type Scope string

// The scopes of the table.
const (
	ByBucket    Scope = "bucket"
	ByLayer     Scope = "layer"
	ByModel     Scope = "model"
	ByPartition Scope = "partition" // of the parameters
)

// Settings that only some strategies take, by the names of their flags.
const (
	SettingSpars      = "spars"
	SettingEvery      = "dlgs-every"
	SettingRule       = "dlgs-rule"
	SettingPartitions = "partitions"
	SettingClipValue  = "clip-value"
	SettingMomentum   = "momentum-correction"
	SettingWarmup     = "warmup-density" // of train.Config
	SettingThresholds = "layer-thresholds"
	SettingAlgorithm  = "sparse-algorithm"
	SettingBound      = "bound-sum"
	SettingUpdate     = "update"
)

// Info is a strategy's row of the table.
type Info struct {
	Name  Strategy
	About string // one line
	// Codec is the chain of compress, settings by their names; clip and momentum are
	// there where they are set. Empty: values are sent as they are.
	Codec    string
	Scope    Scope
	Exchange string
	// Plan is the only plan that the strategy has; empty: any.
	Plan string
	// Takes are the settings that have an effect.
	Takes []string

	selects func(c Config) compress.Selector // nil: it sends all
	code    compress.Quantiser               // nil: as they are
}

// What carries gradients, for the table.
const (
	byAllReduce = "allreduce in float32"
	byHalves    = "allreduce of values / N in 16 bits, added in float32"
	byBlocks    = "reduce-scatter and allgather of coded blocks"
	byEntries   = "of entries: allgather, tree or split, dense where that is cheaper"
	byMean      = "mean of the parameters by allreduce in float32"

	clipped   = "clip(clip-value) > "
	corrected = clipped + "momentum(momentum-correction) > "
)

// Infos is every strategy with its codec, scope and exchange: the same table as
// in docs/strategies.md. "auto" is no row of it: what it does is to choose one of
// these.
func Infos() []Info {
	least := []string{SettingSpars, SettingClipValue, SettingMomentum, SettingAlgorithm}
	ratio := append(slices.Clone(least), SettingBound, SettingWarmup)
	topk := func(c Config) compress.Selector { return compress.TopK{Ratio: c.spars()} }
	grouped := append(slices.Clone(ratio), SettingThresholds)
	return []Info{
		{Name: FP32, About: "all values in single precision", Scope: ByBucket, Exchange: byAllReduce},
		{Name: FP16, About: "all values in half precision", Scope: ByBucket, Exchange: byHalves,
			Codec: clipped + "fp16", Takes: []string{SettingClipValue}, code: compress.FP16{}},
		{Name: BF16, About: "all values in bfloat16", Scope: ByBucket, Exchange: byHalves,
			Codec: clipped + "bf16", Takes: []string{SettingClipValue}, code: compress.BF16{}},
		{Name: Int8, About: "all values in a byte each, what rounding loses is kept", Scope: ByBucket, Exchange: byBlocks,
			Codec: clipped + "int8", Takes: []string{SettingClipValue}, code: compress.Int8{}},
		{Name: PartialUpdate, About: "own updates, then the mean of one partition of the parameters", Scope: ByPartition, Exchange: byMean,
			Takes: []string{SettingPartitions}},
		{Name: SparseTopK, About: "the largest of each bucket", Scope: ByBucket, Exchange: byEntries,
			Codec: corrected + "topk(spars) > fp32", Takes: grouped, selects: topk},
		{Name: SparseThreshold, About: "all of at least a magnitude, spars", Scope: ByBucket, Exchange: byEntries,
			Codec: corrected + "threshold(spars) > fp32", Takes: least,
			selects: func(c Config) compress.Selector {
				return compress.Threshold{Least: c.spars() * float64(max(1, c.Accumulation))}
			}},
		{Name: TopK, About: "the largest of the whole model, after backward", Scope: ByModel, Exchange: byEntries, Plan: PlanOne,
			Codec: corrected + "topk(spars) > fp32", Takes: ratio, selects: topk},
		{Name: LAGS, About: "the largest of each layer", Scope: ByLayer, Exchange: byEntries, Plan: PlanPerLayer,
			Codec: corrected + "topk(spars) > fp32", Takes: ratio, selects: topk},
		{Name: DGC, About: "the largest of each bucket, by a sampled threshold", Scope: ByBucket, Exchange: byEntries,
			Codec: corrected + "sampled(spars) > fp32", Takes: grouped,
			selects: func(c Config) compress.Selector { return compress.Sampled{Ratio: c.spars()} }},
		{Name: DLGS, About: "the largest of each bucket, by a threshold that is reused", Scope: ByBucket, Exchange: byEntries,
			Codec: corrected + "dlgs(spars, every dlgs-every, dlgs-rule) > fp32", Takes: append(slices.Clone(grouped), SettingEvery, SettingRule),
			selects: func(c Config) compress.Selector {
				return compress.DLGS{Ratio: c.spars(), Every: c.Every, Rule: c.Rule}
			}},
	}
}

// Strategies are the names that SetStrategy and Config accept.
func Strategies() []Strategy {
	var names []Strategy
	for _, i := range Infos() {
		names = append(names, i.Name)
	}
	return names
}

// Lookup returns the strategy's row of the table; the empty name is FP32.
// Custom has one that is not in the table.
func Lookup(s Strategy) (Info, error) {
	if s == "" {
		s = FP32
	}
	if s == Custom {
		return Info{Name: Custom, About: "a chain of one's own", Scope: ByBucket, Exchange: "as the chain needs",
			Takes: []string{SettingThresholds, SettingAlgorithm}}, nil
	}
	var known []string
	for _, i := range Infos() {
		if i.Name == s {
			return i, nil
		}
		known = append(known, string(i.Name))
	}
	return Info{}, fmt.Errorf("strategy %q is not known%s: use one of %s", s, spelling.Hint(string(s), known...), strings.Join(known, ", "))
}

// ParseStrategy returns the strategy of that name; the empty name is FP32.
func ParseStrategy(name string) (Strategy, error) {
	i, err := Lookup(Strategy(name))
	return i.Name, err
}

// Selects tells whether the strategy sends only some entries.
func (i Info) Selects() bool { return i.selects != nil }

// HasEffect tells whether a setting, one of those above, does anything under the
// strategy.
func (i Info) HasEffect(setting string) bool { return slices.Contains(i.Takes, setting) }

// DefaultSpars is the share, or the threshold, of strategies that select where
// none is given.
const DefaultSpars = 0.05

func (c Config) spars() float64 {
	if c.Spars == 0 {
		return DefaultSpars
	}
	return c.Spars
}

// chain is what the strategy's gradients go through; nil: nothing. Gradients are
// sums over the backwards of a step, and limits are meant for their mean.
func (c Config) chain() (*compress.Chain, error) {
	if c.Chain != nil {
		return c.Chain, nil
	}
	i, err := Lookup(c.Strategy)
	if err != nil || i.code == nil && i.selects == nil {
		return nil, err
	}
	var stages []compress.Stage
	if c.ClipValue > 0 && i.HasEffect(SettingClipValue) {
		stages = append(stages, compress.Clip{Max: c.ClipValue * float64(max(1, c.Accumulation))})
	}
	if c.Momentum > 0 && i.HasEffect(SettingMomentum) {
		stages = append(stages, compress.Momentum{Factor: c.Momentum})
	}
	if i.selects != nil {
		stages = append(stages, i.selects(c))
	}
	if i.code != nil {
		stages = append(stages, i.code)
	}
	return compress.NewChain(stages...)
}

// checkSettings reports settings of the strategy that are wrong, or do nothing.
func (c Config) checkSettings(i Info) (errs []error) {
	for _, s := range []struct {
		name  string
		value any
		given bool
	}{
		{SettingSpars, c.Spars, c.Spars != 0},
		{SettingEvery, c.Every, c.Every != 0},
		{SettingRule, c.Rule, c.Rule != ""},
		{SettingPartitions, c.Partitions, c.Partitions != 0},
		{SettingClipValue, c.ClipValue, c.ClipValue != 0},
		{SettingMomentum, c.Momentum, c.Momentum != 0},
		{SettingThresholds, c.LayerThresholds, c.LayerThresholds},
		{SettingAlgorithm, c.SparseAlgorithm, c.SparseAlgorithm != ""},
		{SettingBound, c.BoundSum, c.BoundSum},
	} {
		if s.given && !i.HasEffect(s.name) {
			errs = append(errs, fmt.Errorf("%s %v has no effect on strategy %s: leave it out, or use one of %s", s.name, s.value, i.Name, strings.Join(Takers(s.name), ", ")))
		}
	}
	limit := func(name string, value, below float64) {
		if math.IsNaN(value) || value < 0 || value >= below {
			errs = append(errs, fmt.Errorf("%s %v: want 0 (off) to below %v", name, value, below))
		}
	}
	limit(SettingClipValue, c.ClipValue, math.Inf(1))
	limit(SettingMomentum, c.Momentum, 1)
	switch {
	case c.Partitions < 0:
		errs = append(errs, fmt.Errorf("partitions %d: want 0 (default) or more", c.Partitions))
	case c.Every < 0:
		errs = append(errs, fmt.Errorf("dlgs-every %d: want 1 or more steps, or 0 for %d", c.Every, compress.DefaultEvery))
	case i.Name == SparseThreshold && !(c.Spars >= 0 && c.Spars <= math.MaxFloat32):
		errs = append(errs, fmt.Errorf("spars %v: want a magnitude above 0, or 0 for %v", c.Spars, DefaultSpars))
	case math.IsNaN(c.Spars) || c.Spars < 0 || c.Spars > 1 && i.Name != SparseThreshold:
		errs = append(errs, fmt.Errorf("spars %v: want more than 0 and at most 1, or 0 for %v", c.Spars, DefaultSpars))
	case len(errs) == 0 && i.Scope != "":
		if _, err := c.chain(); err != nil {
			errs = append(errs, fmt.Errorf("strategy %s: %w", i.Name, err))
		}
	}
	return errs
}
