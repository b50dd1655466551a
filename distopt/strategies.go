package distopt

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/spelling"
)

// Strategy selects the data that ranks exchange in a step; see Infos.
type Strategy string

const (
	// FP32 averages every gradient over the ranks in single precision while
	// backward still runs, then updates. The zero value means FP32.
	FP32 Strategy = "fp32"
	// FP16 sends values in half precision and adds in single precision.
	FP16 Strategy = "fp16"
	// BF16 sends values as bfloat16 and adds in single precision.
	BF16 Strategy = "bf16"
	// Int8 sends a byte per value and a scale per block. Rounding errors stay in the residual.
	Int8 Strategy = "int8"
	// PartialUpdate updates all parameters with the rank's own gradients, then averages one part of
	// the parameters, round-robin. Between averages the ranks' copies differ; Sync averages all
	// parameters.
	PartialUpdate Strategy = "partialUpdate"
	// SparseTopK sends the largest values of each bucket, by exact selections in all steps.
	SparseTopK Strategy = "sparseTopK"
	// SparseThreshold sends the values of at least a fixed magnitude.
	SparseThreshold Strategy = "sparseThreshold"
	// TopK selects once from the whole model, after backward.
	TopK Strategy = "topk"
	// LAGS selects exactly from each layer (Shi et al. 2020).
	LAGS Strategy = "lags"
	// DGC selects by a threshold estimated from a sample (Lin et al. 2018).
	DGC Strategy = "dgc"
	// DLGS selects from each bucket by a reused threshold (Ju et al. 2024).
	DLGS Strategy = "dlgs"
	// Custom is the strategy of a Config with a Chain.
	Custom Strategy = "custom"
)

// Granularity is the range of gradients of a selection or a message.
type Granularity string

// Granularities of the strategies.
const (
	PerBucket   Granularity = "bucket"
	ByLayer     Granularity = "layer"
	ByModel     Granularity = "model"
	ByPartition Granularity = "partition" // partition of the parameters
)

// Settings that only some strategies take.
const (
	SettingSpars        setting.Path = "exchange.spars"
	SettingEvery        setting.Path = "exchange.dlgs-every"
	pathRule            setting.Path = "exchange.dlgs-rule"
	pathPartitions      setting.Path = "exchange.partitions"
	pathClipValue       setting.Path = "exchange.clip-value"
	SettingMomentum     setting.Path = "exchange.momentum-correction"
	SettingWarmup       setting.Path = "exchange.warmup-density" // see train.Config
	pathLayerThresholds setting.Path = "exchange.layer-thresholds"
	pathLimitSum        setting.Path = "exchange.limit-sum"
)

// fieldAlgorithm represents Config.SparseAlgorithm, which is not a setting of a job.
const fieldAlgorithm setting.Path = "SparseAlgorithm"

// Info describes a strategy: a row of the table in docs/strategies.md.
type Info struct {
	Name  Strategy
	About string // a single line
	// Codec is the chain of package compress, with settings by name; clip and momentum are present
	// if set. Empty means no compression.
	Codec    string
	Scope    Granularity
	Exchange string
	// Plan is the only plan of the strategy; empty means any.
	Plan string
	// Takes lists the settings that have an effect under the strategy.
	Takes []setting.Path

	selects func(c Config) compress.Selector // nil: all values
	code    compress.Quantiser               // nil: float32
}

// Exchanges of the table.
const (
	byAllReduce = "allreduce in float32"
	byHalves    = "allreduce of values / N in 16 bits, added in float32"
	byBlocks    = "reduce-scatter and allgather of coded blocks"
	byEntries   = "of entries: allgather, tree or split, dense where that is cheaper"
	byMean      = "mean of the parameters by allreduce in float32"

	clipped   = "clip(clip-value) > "
	corrected = clipped + "momentum(momentum-correction) > "
)

// Infos returns every strategy with its codec, granularity and exchange: the table of
// docs/strategies.md. "auto" is not a row, because it chooses a row.
func Infos() []Info {
	least := []setting.Path{SettingSpars, pathClipValue, SettingMomentum, fieldAlgorithm}
	ratio := append(slices.Clone(least), pathLimitSum, SettingWarmup)
	topk := func(c Config) compress.Selector { return compress.TopK{Ratio: c.spars()} }
	grouped := append(slices.Clone(ratio), pathLayerThresholds)
	return []Info{
		{Name: FP32, About: "all values in single precision", Scope: PerBucket, Exchange: byAllReduce},
		{Name: FP16, About: "all values in half precision", Scope: PerBucket, Exchange: byHalves,
			Codec: clipped + "fp16", Takes: []setting.Path{pathClipValue}, code: compress.FP16{}},
		{Name: BF16, About: "all values in bfloat16", Scope: PerBucket, Exchange: byHalves,
			Codec: clipped + "bf16", Takes: []setting.Path{pathClipValue}, code: compress.BF16{}},
		{Name: Int8, About: "all values, a byte each, with error feedback for the rounding", Scope: PerBucket, Exchange: byBlocks,
			Codec: clipped + "int8", Takes: []setting.Path{pathClipValue}, code: compress.Int8{}},
		{Name: PartialUpdate, About: "own updates, then the mean of one partition of the parameters", Scope: ByPartition, Exchange: byMean,
			Takes: []setting.Path{pathPartitions}},
		{Name: SparseTopK, About: "the largest of each bucket", Scope: PerBucket, Exchange: byEntries,
			Codec: corrected + "topk(spars) > fp32", Takes: grouped, selects: topk},
		{Name: SparseThreshold, About: "all of at least a magnitude, spars", Scope: PerBucket, Exchange: byEntries,
			Codec: corrected + "threshold(spars) > fp32", Takes: least,
			selects: func(c Config) compress.Selector {
				return compress.Threshold{Least: c.spars() * float64(max(1, c.Accumulation))}
			}},
		{Name: TopK, About: "the largest of the whole model, after backward", Scope: ByModel, Exchange: byEntries, Plan: PlanOne,
			Codec: corrected + "topk(spars) > fp32", Takes: ratio, selects: topk},
		{Name: LAGS, About: "the largest of each layer", Scope: ByLayer, Exchange: byEntries, Plan: PlanPerLayer,
			Codec: corrected + "topk(spars) > fp32", Takes: ratio, selects: topk},
		{Name: DGC, About: "the largest of each bucket, by a sampled threshold", Scope: PerBucket, Exchange: byEntries,
			Codec: corrected + "sampled(spars) > fp32", Takes: grouped,
			selects: func(c Config) compress.Selector { return compress.Sampled{Ratio: c.spars()} }},
		{Name: DLGS, About: "the largest of each bucket, by a threshold that is reused", Scope: PerBucket, Exchange: byEntries,
			Codec: corrected + "dlgs(spars, every dlgs-every, dlgs-rule) > fp32", Takes: append(slices.Clone(grouped), SettingEvery, pathRule),
			selects: func(c Config) compress.Selector {
				return compress.DLGS{Ratio: c.spars(), Every: c.Every, Rule: c.Rule}
			}},
	}
}

// Strategies returns the names that SetStrategy and Config accept.
func Strategies() []Strategy {
	var names []Strategy
	for _, i := range Infos() {
		names = append(names, i.Name)
	}
	return names
}

// Lookup returns the strategy's row of the table; the empty name is FP32. Custom has a row outside
// the table.
func Lookup(s Strategy) (Info, error) {
	if s == "" {
		s = FP32
	}
	if s == Custom {
		return Info{Name: Custom, About: "a chain of one's own", Scope: PerBucket, Exchange: "as the chain needs",
			Takes: []setting.Path{pathLayerThresholds, fieldAlgorithm}}, nil
	}
	var known []string
	for _, i := range Infos() {
		if i.Name == s {
			return i, nil
		}
		known = append(known, string(i.Name))
	}
	return Info{}, setting.Errorf("exchange.strategy", "%q is not known%s: use one of %s", s, spelling.Hint(string(s), known...), strings.Join(known, ", "))
}

func parseStrategy(name string) (Strategy, error) {
	i, err := Lookup(Strategy(name))
	return i.Name, err
}

// Selects reports whether the strategy sends selected entries only.
func (i Info) Selects() bool { return i.selects != nil }

// HasEffect reports whether the strategy takes a setting.
func (i Info) HasEffect(p setting.Path) bool { return slices.Contains(i.Takes, p) }

// DefaultSpars is the share, or the threshold, of strategies that select, if Config.Spars is 0.
const DefaultSpars = 0.05

func (c Config) spars() float64 {
	if c.Spars == 0 {
		return DefaultSpars
	}
	return c.Spars
}

// chain returns the compression of the strategy's gradients; nil means none. Gradients are sums
// over the backward passes of a step, but limits of values apply to their mean.
func (c Config) chain() (*compress.Chain, error) {
	if c.Chain != nil {
		return c.Chain, nil
	}
	i, err := Lookup(c.Strategy)
	if err != nil || i.code == nil && i.selects == nil {
		return nil, err
	}
	var stages []compress.Stage
	if c.ClipValue > 0 && i.HasEffect(pathClipValue) {
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

// checkSettings reports invalid settings of the strategy, and settings without effect.
func (c Config) checkSettings(i Info, f *setting.Faults) {
	before := len(*f)
	if i.Name != "" { // i is a known strategy
		c.Strategy = i.Name
		idle, err := setting.Unused(c.Settings(), new(Config).Settings())
		f.Join(idle.Err(), err)
	}
	limit := func(p setting.Path, value, below float64) {
		f.Add(!(value >= 0 && value < below), p, "%s: want 0 (off) to below %s", quantity.Exact(value), quantity.Exact(below))
	}
	limit(pathClipValue, c.ClipValue, math.Inf(1))
	limit(SettingMomentum, c.Momentum, 1)
	f.Add(c.Partitions < 0, pathPartitions, "%d: want 1 or more, or 0 for %d", c.Partitions, defaultPartitions)
	f.Add(c.Every < 0, SettingEvery, "%d: want 1 or more steps, or 0 for %d", c.Every, compress.DefaultEvery)
	most, what := 1., "share above 0 and at most 1"
	if i.Name == SparseThreshold {
		most, what = math.MaxFloat32, "magnitude above 0"
	}
	f.Add(!(c.Spars >= 0 && c.Spars <= most), SettingSpars, "%s: want a %s, or 0 for %s", quantity.Exact(c.Spars), what, quantity.Exact(DefaultSpars))
	if (*f)[before:].Err() == nil {
		_, err := c.chain()
		f.Add(err != nil, "exchange.strategy", "%s: %w", i.Name, err)
	}
}

// Settings returns the rows of c's settings for users. The rows say under which strategies a
// setting has an effect (Infos); the setting "sync" belongs to another package.
func (c *Config) Settings() []setting.Row {
	ranks := setting.Equals("sync", "allreduce") // because parameter servers use an exchange of their own and keep all entries
	takers := func(p setting.Path) setting.Condition {
		names := Takers(p)
		if own, _ := Lookup(Custom); c.Chain != nil && own.HasEffect(p) {
			names = append(names, string(Custom))
		}
		return setting.Equals("exchange.strategy", names...)
	}
	return []setting.Row{
		{Path: "training.clip-norm", Commands: setting.BenchStep, Flag: "clip-norm", Value: setting.Float(&c.ClipNorm),
			About: "maximum norm of the whole gradient, scaled down to it; 0: no limit"},
		{Path: "training.non-finite", Scope: setting.JobMutable, Value: setting.Choice(&c.NonFinite, nonFiniteEnd, nonFiniteSkip, ""),
			About: "effect of a loss or a gradient that is not finite: end (the run ends) or skip (all ranks skip the step and count it)"},
		{Path: "training.accumulate", Commands: setting.BenchStep, Flag: "accumulate", Unit: "batches", Value: setting.Int(&c.Accumulation),
			About: "number of batches per rank in one step's gradient"},
		{Path: "exchange.strategy", Commands: setting.BenchStep, Flag: "strategy", Value: setting.Choice(&c.Strategy, append(Strategies(), "")...),
			About: "strategy of the gradient exchange between ranks; empty: fp32"},
		{Path: SettingSpars, Commands: setting.BenchStep, Flag: "spars", Unit: "share", Needs: takers(SettingSpars), Value: setting.Float(&c.Spars),
			About: fmt.Sprintf("share of the values to send, or with sparseThreshold the minimum magnitude to send; 0: %s", quantity.Exact(DefaultSpars))},
		{Path: "exchange.plan", Commands: setting.BenchStep, Flag: "plan", Value: setting.Choice(&c.Plan, append(Plans(), "")...),
			About: "plan that merges layers into buckets; empty: the strategy's own plan, fixed for most"},
		{Path: "exchange.bucket-bytes", Commands: setting.BenchStep, Flag: "bucket-bytes", Unit: "bytes", Value: setting.Int(&c.BucketBytes),
			About: "bucket size of plan fixed, in bytes; 0: 8 MiB, halved until the model has four buckets"},
		{Path: SettingEvery, Commands: setting.BenchStep, Unit: "steps", Needs: takers(SettingEvery), Value: setting.Int(&c.Every),
			About: fmt.Sprintf("interval of dlgs's exact selections, in steps; 0: %d", compress.DefaultEvery)},
		{Path: pathRule, Commands: setting.BenchStep, Needs: takers(pathRule), Value: setting.Choice(&c.Rule, append(compress.Rules(), "")...),
			About: "rule for dlgs's threshold between two exact selections: paper (unchanged) or corrected (adjusted to the values sent); empty: corrected"},
		{Path: pathLayerThresholds, Commands: setting.BenchStep, Needs: takers(pathLayerThresholds), Value: setting.Bool(&c.LayerThresholds),
			About: "separate selection from each layer of a bucket"},
		{Path: SettingMomentum, Commands: setting.BenchStep, Unit: "factor", Needs: takers(SettingMomentum), Value: setting.Float(&c.Momentum),
			About: "factor of DGC's momentum correction, which replaces the optimizer's momentum; 0: none"},
		{Path: pathClipValue, Commands: setting.BenchStep, Unit: "magnitude", Needs: takers(pathClipValue), Value: setting.Float(&c.ClipValue),
			About: "maximum magnitude of each value of a rank's gradient before compression, larger values are clipped; 0: no limit"},
		{Path: pathPartitions, Commands: setting.BenchStep, Unit: "parts", Needs: takers(pathPartitions), Value: setting.Int(&c.Partitions),
			About: "number of parts of the parameters that partialUpdate averages round-robin; 0: 4"},
		{Path: pathLimitSum, Commands: setting.BenchStep, Needs: setting.All(takers(pathLimitSum), ranks), Value: setting.Bool(&c.LimitSum),
			About: "limit of a sum's values to the number that one rank sends, as in Ok-Topk, so that traffic does not grow with the ranks"},
	}
}

// Takers returns the names of the strategies that take a setting.
func Takers(p setting.Path) []string {
	var names []string
	for _, i := range Infos() {
		if i.HasEffect(p) {
			names = append(names, string(i.Name))
		}
	}
	return slices.Clip(names)
}
