package distopt

import (
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/setting"
)

// Settings returns the rows of c's user settings. Conditions follow the table of strategies
// (Infos); the setting "sync" belongs to another package.
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
