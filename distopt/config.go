package distopt

import (
	"math"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/exchange"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/spelling"
)

// Plan kinds accepted by Config.Plan.
const (
	PlanOne      = "one"
	PlanPerLayer = "per-layer"
	PlanFixed    = "fixed"
)

// Plans returns the names that Config.Plan accepts.
func Plans() []string { return []string{PlanOne, PlanPerLayer, PlanFixed} }

// Config selects how ranks agree on a step's gradients. The zero value means fp32 in buckets of the
// default size. A setting that has no effect under the strategy is an error.
type Config struct {
	// Strategy is FP32 if empty, or Custom with a Chain.
	Strategy Strategy
	// Chain replaces the chain of a named strategy. Its input is the sum of the gradients of all
	// backward passes of a step, bucket by bucket.
	Chain *compress.Chain `json:"-"`
	// Reducer sums gradients over the ranks; the caller closes it. nil means that New makes a
	// reducer over the group, and Close closes it.
	Reducer exchange.Reducer `json:"-"`
	// Plan is the rule that merges layers into buckets: "one", "per-layer" or "fixed". Empty means
	// the strategy's only plan, if it has one, or "fixed".
	Plan string
	// BucketBytes is the size of a bucket under "fixed"; 0 means bucket.DefaultBytes. With another
	// plan it is an error.
	BucketBytes int
	// ClipNorm limits the Euclidean norm of the whole mean gradient; 0 means no limit.
	ClipNorm float64
	// NonFinite selects the consequence of a gradient that is not finite on any rank. With "end" or
	// "" Step fails. With "skip" no rank applies the step, and StepTimes.Skipped has the reason;
	// updates then begin after the last sum, and strategies that keep residuals, clip values or
	// average parameters exchange after backward instead of during backward.
	NonFinite string
	// Accumulation is the number of backward passes per step, which are averaged. 0 means 1.
	Accumulation int
	// Partitions is the number of parts of the parameters under PartialUpdate, which averages one
	// part per step. 0 means 4.
	Partitions int
	// Spars is the share of values that a selection sends, above 0 and at most 1, or the least
	// magnitude under SparseThreshold; 0 means DefaultSpars. A bucket of n values without padding
	// sends ceil(Spars*n).
	Spars float64
	// Every is the number of steps between exact selections of DLGS; 0 means compress.DefaultEvery.
	Every int
	// Rule is the rule of DLGS between two exact selections; empty means compress.RuleCorrected.
	Rule compress.Rule
	// ClipValue limits each value of this rank's gradient to [-ClipValue, ClipValue] before
	// selection or cast; 0 is off.
	ClipValue float64
	// Momentum is the factor of DGC's momentum correction, for any strategy with a selection; 0
	// means none. With a factor, the wrapped optimizer should have no momentum.
	Momentum float64
	// SparseAlgorithm is the algorithm for selected entries, one of exchange.Algorithms. Empty
	// means exchange.Choose. It applies to the reducer of New only.
	SparseAlgorithm string
	// LimitSum limits the sum of sparse gradients to the largest entries, as many as one rank
	// sends. Traffic then does not grow with the number of ranks (Ok-Topk; Li and Hoefler, PPoPP
	// 2022). Excluded entries stay in the residual. It requires exchange.Split.
	LimitSum bool
	// LayerThresholds gives each layer of a bucket a separate selection and threshold. The layers
	// still travel as one message.
	LayerThresholds bool
	// Update selects which ranks update the parameters. Empty means UpdateSharded under FP32 if all
	// ranks can, else UpdateWhole. Both give the same bits.
	Update Update
	// Pool is the thread pool of selections; nil means the caller's thread. The result does not
	// depend on Pool.
	Pool compress.Pool `json:"-"`
	// Workers are the job's virtual workers, parts of a run with separate samples. A step then has
	// a backward pass with GradReady for each of this rank's workers. The mean is over all workers,
	// with the same bits for any number of ranks. nil means that each rank is one worker.
	Workers *exchange.Workers `json:"-"`
}

// Validate reports every error of c together.
func (c Config) Validate() error {
	var f setting.Faults
	f.Add(c.Plan != "" && !slices.Contains(Plans(), c.Plan), "exchange.plan", "%q is not known%s: use one of %s", c.Plan, spelling.Hint(c.Plan, Plans()...), strings.Join(Plans(), ", "))
	f.Add(c.BucketBytes < 0 || c.BucketBytes > 0 && c.BucketBytes < 4, "exchange.bucket-bytes", "%d: want at least 4, or 0 for the default", c.BucketBytes)
	f.Add(!(c.ClipNorm >= 0) || math.IsInf(c.ClipNorm, 0), "training.clip-norm", "%s: want 0 (off) or a positive number", quantity.Exact(c.ClipNorm))
	f.Add(!slices.Contains([]string{"", nonFiniteEnd, nonFiniteSkip}, c.NonFinite), "training.non-finite", "%q is not known: use %s or %s", c.NonFinite, nonFiniteEnd, nonFiniteSkip)
	f.Add(c.Accumulation < 0, "training.accumulate", "%d: want at least 1 batch in a step, or 0 for 1", c.Accumulation)
	updates := []Update{"", UpdateWhole, UpdateSharded}
	f.Add(!slices.Contains(updates, c.Update), "Config.Update", "%q is not known%s: use %s or %s", c.Update, spelling.Hint(string(c.Update), string(UpdateWhole), string(UpdateSharded)), UpdateWhole, UpdateSharded)
	f.Add(c.Update == UpdateSharded && (c.name() != FP32 || c.ClipValue != 0), "Config.Update", "%s is for %v %s without %v: leave it out", c.Update, setting.Path("exchange.strategy"), FP32, pathClipValue)
	c.checkStrategy(&f)
	return f.Err()
}

// checkStrategy reports errors in the strategy and settings that do not fit it.
func (c Config) checkStrategy(f *setting.Faults) {
	f.Add(c.Chain != nil && c.Strategy != "" && c.Strategy != Custom, "exchange.strategy", "%s with a custom chain (%v): remove one of the two", c.Strategy, c.Chain)
	f.Add(c.Chain == nil && c.Strategy == Custom, "exchange.strategy", "%s needs a chain (Config.Chain)", Custom)
	i, err := Lookup(c.name())
	f.Join(err)
	f.Add(i.Plan != "" && c.Plan != "" && c.Plan != i.Plan && slices.Contains(Plans(), c.Plan), "exchange.plan",
		"%s has no effect on %v %s, which selects by %s and has plan %s alone: leave it out", c.Plan, setting.Path("exchange.strategy"), i.Name, i.Scope, i.Plan)
	plan := c.planName(i)
	f.Add(c.BucketBytes > 0 && plan != PlanFixed, "exchange.bucket-bytes", "%d has no effect on %v %s: use %s or leave it out", c.BucketBytes, setting.Path("exchange.plan"), plan, PlanFixed)
	f.Add(c.SparseAlgorithm != "" && c.Reducer != nil, fieldAlgorithm, "%s has no effect on a reducer of one's own: leave it out", c.SparseAlgorithm)
	f.Add(c.SparseAlgorithm != "" && i.Name != "" && !i.HasEffect(fieldAlgorithm), fieldAlgorithm, "has no effect: it needs %v %s", setting.Path("exchange.strategy"), strings.Join(Takers(fieldAlgorithm), " or "))
	if err := c.sparse().Validate(); c.Reducer == nil && err != nil {
		f.Add(true, fieldAlgorithm, "%w", err)
	}
	f.Add(c.LimitSum && c.SparseAlgorithm != "" && c.SparseAlgorithm != exchange.Split, pathLimitSum,
		"has no effect with %v %s: it bounds sums that are met in parts, by %s", fieldAlgorithm, c.SparseAlgorithm, exchange.Split)
	c.checkSettings(i, f)
}

// maxEntries returns the maximum number of entries that the sum of sparse gradients of bucket g may
// have; 0 means no limit.
func (c Config) maxEntries(l *compress.Layout, g compress.Bucket) (n int) {
	if !c.LimitSum {
		return 0
	}
	lo := g.Lo
	for _, hi := range append(slices.Clone(g.Parts), g.Hi) {
		n += compress.Entries(c.spars(), l.Values(lo, hi))
		lo = hi
	}
	return n
}

func (c Config) sparse() exchange.Config {
	return exchange.Config{Algorithm: c.SparseAlgorithm, Workers: c.Workers}
}

// Values of Config.NonFinite.
const (
	nonFiniteEnd  = "end"
	nonFiniteSkip = "skip"
)

func (c Config) skips() bool { return c.NonFinite == nonFiniteSkip }

func (c Config) name() Strategy {
	switch {
	case c.Chain != nil:
		return Custom
	case c.Strategy == "":
		return FP32
	}
	return c.Strategy
}

// Resolved returns c with zero values replaced by the defaults in effect under its strategy.
func (c Config) Resolved() Config {
	c.Strategy = c.name()
	i, err := Lookup(c.Strategy)
	if err != nil {
		return c
	}
	c.Plan, c.Accumulation = c.planName(i), max(1, c.Accumulation)
	if i.HasEffect(SettingSpars) {
		c.Spars = c.spars()
	}
	if i.HasEffect(SettingEvery) && c.Every == 0 {
		c.Every = compress.DefaultEvery
	}
	if i.HasEffect(pathRule) && c.Rule == "" {
		c.Rule = compress.RuleCorrected
	}
	if i.HasEffect(pathPartitions) {
		c.Partitions = c.partitions()
	}
	return c
}

const defaultPartitions = 4

func (c Config) partitions() int {
	if c.Partitions == 0 {
		return defaultPartitions
	}
	return c.Partitions
}

func (c Config) planName(i Info) string {
	switch {
	case i.Plan != "":
		return i.Plan
	case c.Plan == "":
		return PlanFixed
	}
	return c.Plan
}

func (c Config) plan(layers []bucket.Param, name string) bucket.Plan {
	switch name {
	case PlanOne:
		return bucket.One(layers)
	case PlanPerLayer:
		return bucket.PerLayer(layers)
	default:
		return bucket.Fixed(layers, c.BucketBytes)
	}
}
