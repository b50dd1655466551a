package plan

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/randbatch"
	"github.com/ringo-ml/ringo/internal/spelling"
	"github.com/ringo-ml/ringo/internal/tune"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/train"
)

// mostRanks limits the ranks of a described cluster.
const mostRanks = 1 << 20

// check returns all errors of the command line, and reads the named files.
func (c *command) check(spec model.Spec) error {
	var faults cli.Faults
	c.checkCluster(&faults)
	c.checkCompute(&faults)
	c.checkStrategy(&faults)
	if c.profile != "" {
		var err error
		if c.loaded, err = plannerPart(c.profile); err != nil {
			faults.Add("--cost-profile: %w", err)
		} else if c.loaded.Model != spec.Name {
			faults.Add("--cost-profile %s is of model %q, not of %s", c.profile, c.loaded.Model, spec.Name)
		}
	}
	faults.If(c.plan == savedPlan && c.loaded.Plan == nil,
		"--plan %s: no plan was saved: name a file with one with --cost-profile", savedPlan)
	return faults.Usage()
}

func plannerPart(path string) (bucket.Profile, error) {
	p, err := tune.Load(path)
	if err == nil && p.Planner == nil {
		err = fmt.Errorf("%s has rules of collectives alone: nothing to plan from", path)
	}
	if err != nil {
		return bucket.Profile{}, err
	}
	return *p.Planner, nil
}

func (c *command) checkCluster(faults *cli.Faults) {
	faults.Range("np", c.np, 1, mostRanks)
	faults.If(c.ranks.sized, "--np %v: processors have no effect without --heter", &c.ranks)
	faults.If(c.changed("servers"), "--servers has no effect without --heter: leave it out")
	faults.If(c.hosts < 1 || c.hosts > c.np, "--hosts %d: want 1 to %d, the number of ranks", c.hosts, c.np)
	rate := func(flag, text string) float64 {
		r, err := parseRate(text)
		faults.If(err != nil, "--%s %w", flag, err)
		return r
	}
	c.cluster = cluster{np: c.np, hosts: c.hosts, inter: rate("inter", c.inter), intra: rate("intra", c.intra), latency: c.latency.Seconds()}
	c.memoryRate = rate("memory", c.memory)
	faults.If(c.latency < 0, "--latency %v: want 0 or more", c.latency)
	faults.If(c.hosts == 1 && c.changed("inter"),
		"--inter %s has no effect on one host: leave it out, or say --hosts", c.inter)
	faults.If(c.hosts == c.np && c.np > 1 && c.changed("intra"),
		"--intra %s has no effect with one rank on each host: leave it out", c.intra)
}

func (c *command) checkCompute(faults *cli.Faults) {
	sources := 0
	for _, given := range []bool{c.changed("compute-ms"), c.measure, c.profile != ""} {
		if given {
			sources++
		}
	}
	faults.If(sources != 1, "want one of --compute-ms MS, --measure and --cost-profile FILE, got %d", sources)
	faults.If(c.changed("compute-ms") && (!(c.computeMS > 0) || math.IsInf(c.computeMS, 0)),
		"--compute-ms %s: want a positive number", quantity.Exact(c.computeMS))
	faults.If(c.changed("batch") && c.profile != "",
		"--batch has no effect with --cost-profile, which is of its own batch: leave it out")
	c.checkMeasure(faults)
}

// checkMeasure checks the threads and the batch.
func (c *command) checkMeasure(faults *cli.Faults) {
	faults.If(c.changed("threads") && !c.measure, "--threads belongs to --measure")
	faults.Range("threads", c.threads, 0, train.MaxThreads)
	if c.changed("batch") {
		faults.Range("batch", c.batch, 1, randbatch.MostSamples)
	}
}

func (c *command) checkStrategy(faults *cli.Faults) {
	all := strategyCosts()
	at := slices.IndexFunc(all, func(s strategyCost) bool { return s.name == c.strategy })
	if at < 0 {
		faults.Add("--strategy %q is not known here%s: use one of %s", c.strategy, spelling.Hint(c.strategy, strategyNames()...), strings.Join(strategyNames(), ", "))
		return
	}
	s := all[at]
	c.chosen = s
	faults.If(!(c.spars > 0 && c.spars <= 1), "--spars %s: want more than 0 and at most 1", quantity.Exact(c.spars))
	faults.If(c.every < 1, "--dlgs-every %d: want at least 1", c.every)
	faults.Known("dlgs-rule", c.rule, string(compress.RuleCorrected), string(compress.RulePaper))
	for flag, idle := range map[string]bool{"spars": !s.sparse, "dlgs-every": s.reuse == 0, "dlgs-rule": s.reuse == 0, "memory": s.exact == 0} {
		faults.If(idle && c.changed(flag), "--%s has no effect on strategy %s: leave it out", flag, s.name)
	}
	c.checkPlan(faults)
	faults.If(s.algorithm != "" && c.changed("algorithm") && c.algorithm != s.algorithm,
		"--algorithm %s: strategy %s has only %s", c.algorithm, s.name, s.algorithm)
	if s.algorithm != "" {
		c.algorithm = s.algorithm
	}
	if len(*faults) > 0 {
		return
	}
	if len(pick(c.described(), c.algorithm)) == 0 {
		known := names(c.described(), func(w way) string { return w.Name })
		faults.Add("--algorithm %q is not known for strategy %s on %s%s: use auto or one of %s", c.algorithm, s.name, c.cluster, spelling.Hint(c.algorithm, append(known, auto)...), strings.Join(known, ", "))
	}
}

func (c *command) checkPlan(faults *cli.Faults) {
	s := c.chosen
	if c.plan == "" {
		if c.plan = "exact"; s.plan != "" {
			c.plan = s.plan
		}
	}
	faults.If(s.plan != "" && c.plan != s.plan,
		"--plan %s: strategy %s selects %s and has plan %s alone", c.plan, s.name, s.about, s.plan)
	switch p, err := bucket.LookupPlanner(c.plan); {
	case c.plan == allPlans:
		c.planners = bucket.Planners()
	case c.plan == savedPlan:
		c.planners = []bucket.Named{{Name: savedPlan, Plan: func(bucket.Step) bucket.Plan { return c.loaded.SavedPlan() }}}
	case err != nil:
		faults.Add("--%w, all or saved", err)
	default:
		c.planners = []bucket.Named{p}
	}
	if c.bucketBytes != 0 && (c.bucketBytes < 4 || c.plan != "fixed") {
		faults.Add("--bucket-bytes %d: want at least 4, with --plan fixed", c.bucketBytes)
	} else if c.bucketBytes != 0 {
		c.planners[0].Plan = bucket.FixedOf(c.bucketBytes)
	}
	faults.If(c.save != "" && c.plan == allPlans, "--save keeps one plan: name it with --plan")
}

// names returns the names of all.
func names[T any](all []T, name func(T) string) (out []string) {
	for _, x := range all {
		out = append(out, name(x))
	}
	return out
}

func strategyNames() []string {
	return names(strategyCosts(), func(s strategyCost) string { return s.name })
}
