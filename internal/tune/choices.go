package tune

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/setting"
)

const pathChoices setting.Path = "tuning.choices"

// Choice is a Tuner's change to its Optimizer between two steps.
type Choice struct {
	// Step is the number of finished steps of the run.
	Step int64
	// Strategy is the strategy of the next steps; empty: unchanged.
	Strategy distopt.Strategy
	// Plan is the plan's name for the next steps; empty: unchanged.
	Plan string
	// Ends are the indices of the last layers of the plan's buckets. The text has the number of
	// layers of each bucket.
	Ends []int
	// Reselect makes the next selections exact. A choice with Reselect has no other field.
	Reselect bool
}

// Choices are a run's choices in order. Only through them do measured times affect a run's results.
//
// The text of a choice is the number of finished steps, a colon, and the change, such as
//
//	0:fp32/one=16; 12:dlgs/exact=3,4,9; 15:reselect
//
// a strategy, a plan with the layers of its buckets, or both with a slash between.
type Choices []Choice

// Parts of a choice's text.
const (
	between      = "; "
	wordReselect = "reselect"
	maxLayers    = 1 << 20 // bound of a plan's layers
)

// String is the text of MarshalText.
func (c Choices) String() string {
	words := make([]string, len(c))
	for i, one := range c {
		words[i] = one.text()
	}
	return strings.Join(words, between)
}

// MarshalText writes one line.
func (c Choices) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

func (c Choice) text() string {
	what := string(c.Strategy)
	if c.Reselect {
		what = wordReselect
	}
	if c.Plan != "" {
		counts := make([]string, len(c.Ends))
		before := -1
		for i, end := range c.Ends {
			counts[i], before = strconv.Itoa(end-before), end
		}
		if what != "" {
			what += "/"
		}
		what += c.Plan + "=" + strings.Join(counts, ",")
	}
	return strconv.FormatInt(c.Step, 10) + ":" + what
}

// UnmarshalText reads exactly the texts of MarshalText.
func (c *Choices) UnmarshalText(text []byte) error {
	var out Choices
	if len(text) > 0 {
		for _, word := range strings.Split(string(text), between) {
			one, err := parseChoice(word)
			if err != nil {
				return fmt.Errorf("%q: %w", word, err)
			}
			out = append(out, one)
		}
	}
	if err := out.validate(); err != nil {
		return err
	}
	*c = out
	return nil
}

func parseChoice(text string) (c Choice, err error) {
	steps, what, _ := strings.Cut(text, ":")
	step, err := count(steps)
	if err != nil {
		return c, fmt.Errorf("want a number of steps and a colon before what was done then, such as 12:fp32/exact=3,4")
	}
	if c.Step = int64(step); what == wordReselect {
		c.Reselect = true
		return c, nil
	}
	strategy, plan, two := strings.Cut(what, "/")
	if !two && strings.Contains(what, "=") {
		strategy, plan = "", what
	}
	c.Strategy = distopt.Strategy(strategy)
	if plan == "" && !two {
		return c, nil
	}
	name, counts, _ := strings.Cut(plan, "=")
	c.Plan = name
	end := -1
	for i, word := range strings.Split(counts, ",") {
		n, err := count(word)
		if err != nil || n > maxLayers {
			return c, fmt.Errorf("bucket %d has %q layers: want a number from 1 to %d", i, word, maxLayers)
		}
		end += n
		c.Ends = append(c.Ends, end)
	}
	if two && strategy == "" {
		return c, errors.New("want a strategy before the slash")
	}
	return c, nil
}

// count reads a number in canonical form.
func count(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || strconv.Itoa(n) != text {
		return 0, strconv.ErrSyntax
	}
	return n, nil
}

// validate reports the first error, of choices for any model.
func (c Choices) validate() error {
	var strategy distopt.Strategy
	for i, one := range c {
		if err := one.validate(); err != nil {
			return fmt.Errorf("%q: %w", one.text(), err)
		}
		if i > 0 && one.Step < c[i-1].Step {
			return fmt.Errorf("%q after %q: want them in the order of steps", one.text(), c[i-1].text())
		}
		if one.Strategy != "" {
			strategy = one.Strategy
		}
		if !canPlan(strategy) && one.Plan != "" {
			return fmt.Errorf("%q: strategy %s has a plan of its own", one.text(), strategy)
		}
	}
	return nil
}

func (c Choice) validate() error {
	names := append(distopt.Plans(), Plans()...)
	before := -1
	for i, end := range c.Ends {
		if end <= before || end >= maxLayers {
			return fmt.Errorf("bucket %d has %d layers: want at least 1, and at most %d in all", i, end-before, maxLayers)
		}
		before = end
	}
	switch {
	case c.Step < 0:
		return fmt.Errorf("want 0 steps or more")
	case c.Reselect && (c.Strategy != "" || c.Plan != ""):
		return fmt.Errorf("a strategy or a plan with %s: want two choices", wordReselect)
	case !c.Reselect && c.Strategy == "" && c.Plan == "":
		return fmt.Errorf("want a strategy, a plan, both with a slash between them, or %s", wordReselect)
	case c.Strategy != "" && !slices.Contains(AutoStrategies(), c.Strategy):
		return fmt.Errorf("strategy %q is none that %s chooses: want one of %v", c.Strategy, Auto, AutoStrategies())
	case c.Plan != "" && !slices.Contains(names, c.Plan):
		return fmt.Errorf("plan %q is not known: want one of %s", c.Plan, strings.Join(names, ", "))
	case (c.Plan == "") != (len(c.Ends) == 0):
		return fmt.Errorf("plan %q has %d buckets: want a plan with its buckets, or neither", c.Plan, len(c.Ends))
	}
	return nil
}

// validateChoices reports invalid choices, choices that are given next to Measure or Profile, and
// choices without a strategy or plan to choose.
func (c Config) validateChoices(auto, measured bool) (errs []error) {
	if len(c.Choices) == 0 {
		return nil
	}
	strategy := cmp.Or(c.Exchange.Strategy, distopt.FP32)
	fault := func(format string, args ...any) {
		errs = append(errs, setting.Errorf(pathChoices, format, append([]any{c.Choices}, args...)...))
	}
	if err := c.Choices.validate(); err != nil {
		fault("%s: %w", err)
	}
	if c.Measure {
		fault("%s and %v both set the exchange: remove one of the two", setting.Path("tuning.tune"))
	}
	if c.Profile != nil {
		fault("%s and %v, of model %s, both set the exchange: remove one of the two", setting.Path("tuning.profile"), c.Profile.Model)
	}
	if !auto && !measured {
		fault("%s has no effect: %v is %s and %v %q, neither of which is chosen", setting.Path("exchange.strategy"), strategy, setting.Path("exchange.plan"), c.Exchange.Plan)
	}
	if i := slices.IndexFunc(c.Choices, func(one Choice) bool { return one.Strategy != "" }); i >= 0 && measured && !auto {
		fault("%s: %s sets a strategy, but %v is %s", c.Choices[i].text(), setting.Path("exchange.strategy"), strategy)
	}
	return errs
}

// fit reports plans for other layers.
func (c Choices) fit(layers []bucket.Param) error {
	for _, one := range c {
		if one.Plan == "" {
			continue
		}
		if n := one.Ends[len(one.Ends)-1] + 1; n != len(layers) {
			return setting.Errorf(pathChoices, "%s: plan %s is of %d layers, and the model has %d: were they made for another model?", one.text(), one.Plan, n, len(layers))
		}
	}
	return nil
}

// make applies c to the optimizer, on every rank, and records a change.
func (t *Tuner) make(c Choice) error {
	changed, err := t.apply(c)
	if err != nil || !changed {
		return err
	}
	if c.Step = t.opt.Steps(); c.Plan != "" {
		c.Ends = t.opt.Plan().Ends() // rank 0's
	}
	t.applied = append(t.applied, c)
	return nil
}

func (t *Tuner) apply(c Choice) (changed bool, err error) {
	if c.Reselect {
		return true, t.opt.Reselect()
	}
	if s := c.Strategy; s != "" {
		changed = s != t.opt.Strategy()
		if err := t.opt.SetStrategy(s); err != nil {
			return changed, err
		}
	}
	if c.Plan == "" {
		return changed, nil
	}
	plan, err := bucket.Cut(t.layers, c.Ends)
	if err != nil {
		return changed, fmt.Errorf("tune: plan %s: %w", c.Plan, err)
	}
	changed = changed || c.Plan != t.opt.PlanName() || !slices.Equal(plan, t.opt.Plan())
	return changed, t.opt.SetPlan(c.Plan, plan)
}

// due makes the due choices.
func (t *Tuner) due() error {
	for !t.waiting && len(t.replay) > 0 && t.replay[0].Step <= t.opt.Steps() {
		c := t.replay[0]
		if _, err := t.apply(c); err != nil {
			return setting.Errorf(pathChoices, "%s: %w", c.text(), err)
		}
		t.replay, t.applied = t.replay[1:], append(t.applied, c)
		if !c.Reselect {
			t.report(Report{Reason: "as " + string(pathChoices) + " says"})
		}
	}
	return nil
}

// goOn continues the given choices after the checkpoint's choices; other choices in the checkpoint
// are an error.
func (t *Tuner) goOn(made Choices) error {
	all, done, n := t.cfg.Choices, t.opt.Steps(), len(made)
	other := func(a, b Choice) bool { return a.text() == b.text() }
	if n > len(all) || !slices.EqualFunc(made, all[:n], other) || n < len(all) && all[n].Step < done {
		return setting.Errorf(pathChoices, "%s are not those of the checkpoint, whose run chose %s in its %d steps: leave them out to go on with its choice", all, made, done)
	}
	t.waiting, t.replay, t.applied = false, all[n:], slices.Clone(made)
	return t.due()
}
