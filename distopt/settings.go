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
			About: "scale the whole gradient down where its norm is above this; 0: never"},
		{Path: "training.non-finite", Scope: setting.JobMutable, Value: setting.Choice(&c.NonFinite, nonFiniteEnd, nonFiniteSkip, ""),
			About: "the consequence of a loss or a gradient that is not finite: end ends the run; skip leaves the step out on all ranks, and counts it"},
		{Path: "training.accumulate", Commands: setting.BenchStep, Flag: "accumulate", Unit: "batches", Value: setting.Int(&c.Accumulation),
			About: "batches of each rank whose gradients make one step"},
		{Path: "exchange.strategy", Commands: setting.BenchStep, Flag: "strategy", Value: setting.Choice(&c.Strategy, append(Strategies(), "")...),
			About: "what the ranks exchange of their gradients; empty: fp32"},
		{Path: SettingSpars, Commands: setting.BenchStep, Flag: "spars", Unit: "share", Needs: takers(SettingSpars), Value: setting.Float(&c.Spars),
			About: fmt.Sprintf("share of the values that is sent, or under sparseThreshold the least magnitude that is; 0: %s", quantity.Exact(DefaultSpars))},
		{Path: "exchange.plan", Commands: setting.BenchStep, Flag: "plan", Value: setting.Choice(&c.Plan, append(Plans(), "")...),
			About: "how layers are merged into buckets; empty: as the strategy has it, most of them fixed"},
		{Path: "exchange.bucket-bytes", Commands: setting.BenchStep, Flag: "bucket-bytes", Unit: "bytes", Value: setting.Int(&c.BucketBytes),
			About: "size of a bucket under plan fixed; 0: 8 MiB, halved until the model has four buckets"},
		{Path: SettingEvery, Commands: setting.BenchStep, Unit: "steps", Needs: takers(SettingEvery), Value: setting.Int(&c.Every),
			About: fmt.Sprintf("after how many steps dlgs selects exactly again; 0: %d", compress.DefaultEvery)},
		{Path: pathRule, Commands: setting.BenchStep, Needs: takers(pathRule), Value: setting.Choice(&c.Rule, append(compress.Rules(), "")...),
			About: "dlgs's threshold between two exact selections: paper keeps it as it is, corrected adjusts it to what was sent; empty: corrected"},
		{Path: pathLayerThresholds, Commands: setting.BenchStep, Needs: takers(pathLayerThresholds), Value: setting.Bool(&c.LayerThresholds),
			About: "select from each layer of a bucket by itself"},
		{Path: SettingMomentum, Commands: setting.BenchStep, Unit: "factor", Needs: takers(SettingMomentum), Value: setting.Float(&c.Momentum),
			About: "factor of DGC's momentum correction, which takes the place of the optimizer's momentum; 0: none"},
		{Path: pathClipValue, Commands: setting.BenchStep, Unit: "magnitude", Needs: takers(pathClipValue), Value: setting.Float(&c.ClipValue),
			About: "limit each value of a rank's gradient to this magnitude before it is compressed; 0: no limit"},
		{Path: pathPartitions, Commands: setting.BenchStep, Unit: "parts", Needs: takers(pathPartitions), Value: setting.Int(&c.Partitions),
			About: "into how many parts partialUpdate cuts the parameters, which it averages in turn; 0: 4"},
		{Path: pathLimitSum, Commands: setting.BenchStep, Needs: setting.All(takers(pathLimitSum), ranks), Value: setting.Bool(&c.LimitSum),
			About: "keep at most as many values of a sum as one rank sends, as Ok-Topk does, so that traffic does not grow with the ranks"},
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
