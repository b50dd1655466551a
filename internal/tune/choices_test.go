package tune

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/setting"
)

func TestChoicesAsText(t *testing.T) {
	want := Choices{
		{Plan: "one", Ends: []int{15}},
		{Step: 12, Strategy: distopt.DLGS, Plan: "exact", Ends: []int{2, 6, 15}},
		{Step: 15, Reselect: true},
		{Step: 200, Strategy: distopt.TopK},
	}
	const text = "0:one=16; 12:dlgs/exact=3,4,9; 15:reselect; 200:topk"
	var got Choices
	if err := got.UnmarshalText([]byte(text)); err != nil || !reflect.DeepEqual(got, want) || want.String() != text {
		t.Errorf("%q is read as %+v, %v, and written as %q", text, got, err, want)
	}
	if err := got.UnmarshalText(nil); err != nil || got != nil {
		t.Errorf("no text is read as %+v, %v", got, err)
	}
}

func TestChoicesThatAreNone(t *testing.T) {
	for text, want := range map[string]string{
		"x":                         `"x": want a number of steps and a colon`,
		"-1:fp32":                   `"-1:fp32": want 0 steps or more`,
		"+1:fp32":                   "want a number of steps",
		"01:fp32":                   "want a number of steps",
		"1:":                        "want a strategy, a plan, both with a slash between them, or reselect",
		"1: fp32":                   `strategy " fp32" is none that auto chooses: want one of [fp32 fp16 bf16 dlgs topk]`,
		"1:partialUpdate":           `strategy "partialUpdate" is none that auto chooses`,
		"1:reselect/one=3":          `strategy "reselect" is none`,
		"1:exact":                   `strategy "exact" is none`,
		"1:exact=":                  `bucket 0 has "" layers: want a number from 1 to 1048576`,
		"1:exact=1,,2":              `bucket 1 has "" layers`,
		"1:exact=1,02":              `bucket 1 has "02" layers`,
		"1:exact=1,0":               "bucket 1 has 0 layers: want at least 1",
		"1:exact=1,1048576":         "bucket 1 has 1048576 layers: want at least 1, and at most 1048576 in all",
		"1:exct=1":                  `plan "exct" is not known`,
		"1:/exact=1":                "want a strategy before the slash",
		"1:fp32/":                   `bucket 0 has "" layers`,
		"1:fp32/=3":                 `plan "" has 1 buckets`,
		"1:topk/exact=1,2":          "strategy topk has a plan of its own",
		"1:topk; 2:exact=1,2":       `"2:exact=1,2": strategy topk has a plan of its own`,
		"2:fp32; 1:topk":            `"1:topk" after "2:fp32": want them in the order of steps`,
		"1:fp32;2:topk":             "is none that auto chooses",
		"1:fp32; ":                  `"": want a number of steps`,
		"1:fp32/exact=1\n":          `bucket 0 has "1\n" layers`,
		"99999999999999999999:fp32": "want a number of steps",
	} {
		before := Choices{{Reselect: true}}
		got := slices.Clone(before)
		if err := got.UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), want) || !reflect.DeepEqual(got, before) {
			t.Errorf("%q is read as %v, %v: want an error with %q", text, got, err, want)
		}
	}
	if err := (Choices{{Reselect: true, Strategy: distopt.FP32}}).validate(); err == nil || !strings.Contains(err.Error(), "want two choices") {
		t.Errorf("two in one: %v", err)
	}
}

// Parsed choices have the original text, and a setting's syntax.
func FuzzChoices(f *testing.F) {
	for _, text := range []string{"", "0:one=16; 12:dlgs/exact=3,4,9; 15:reselect; 200:topk", "0:fp16/saved=1,1", "1:fp32;", "5:reselect; 5:exact=1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var c Choices
		if c.UnmarshalText([]byte(text)) != nil {
			return
		}
		if c.String() != text || strings.ContainsAny(text, "\n\r\"'#") {
			t.Errorf("%q is written as %q", text, c)
		}
		var again Choices
		if v := setting.Textual(&again); v.Set(text) != nil || v.String() != text || !reflect.DeepEqual(again, c) {
			t.Errorf("%q as a setting is %+v", text, again)
		}
	})
}

// The same choices after the same steps give the same bits without measuring, from the beginning
// and from a checkpoint in between.
func TestChoicesReplay(t *testing.T) {
	dlgs := func(plan string, rule compress.Rule) Config {
		return Config{Exchange: distopt.Config{Strategy: distopt.DLGS, Spars: 0.01, Every: 5, Rule: rule, Plan: plan}, Measure: true}
	}
	paper := auto(0.02)
	paper.Exchange.Rule, paper.Exchange.Plan = compress.RulePaper, "per-layer"
	apart := dlgs("mgwfbp", "")
	apart.Exchange.LayerThresholds, apart.Exchange.Accumulation = true, 2
	moved := func(step int, backward []time.Duration, c *channel) {
		if step == 100 {
			c.perByte = 4 * time.Microsecond
		}
		if step == 250 {
			backward[1] *= 20
		}
	}
	for name, c := range map[string]struct {
		j     job
		steps int
		least int // choices
	}{
		"auto":    {small(slow, auto(0.01)), 40, 3},
		"anew":    {job{change: moved, cfg: auto(0.01), link: fast}, 440, 5},
		"paper":   {small(slow, paper), 60, 3},
		"exact":   {small(slow, Config{Exchange: distopt.Config{Plan: "exact"}, Measure: true}), 30, 2},
		"dlgs":    {small(slow, dlgs("dlgs-scan", "")), 70, 3},
		"apart":   {small(slow, apart), 60, 3},
		"warm-up": {job{cfg: Config{Exchange: distopt.Config{Strategy: distopt.SparseTopK, Spars: 0.01, Plan: "exact"}, Measure: true}, link: slow, spars: func(step int) float64 { return max(0.01, 0.5-0.01*float64(step/10)) }}, 120, 2},
		"early":   {small(slow, auto(0.01)), 5, 1},
	} {
		t.Run(name, func(t *testing.T) {
			j := small(c.j.link, c.j.cfg)
			j.ranks, j.varied, j.change, j.spars = 3, true, c.j.change, c.j.spars
			first := j.run(t, c.steps)
			made := first.saved[0].tuned.Made
			if len(made) < c.least {
				t.Fatalf("made %s: want at least %d", made, c.least)
			}
			j.cfg.Measure, j.cfg.Choices, j.change = false, made, nil
			same := func(what string, got outcome) {
				t.Helper()
				for r, s := range got.saved {
					want := first.saved[r]
					if !slices.Equal(s.params, want.params) || !reflect.DeepEqual(s.state, want.state) || !reflect.DeepEqual(s.setup, want.setup) || s.tuned.Made.String() != made.String() {
						t.Errorf("%s: rank %d has other bits, or %+v with %s: want %+v with %s", what, r, s.setup, s.tuned.Made, want.setup, made)
					}
				}
				if len(got.reports) > 0 && got.reports[0].Measured != nil || got.known {
					t.Errorf("%s: it was measured: %+v", what, got.reports)
				}
			}
			same("again", j.run(t, c.steps))
			j.cfg.MayKeep, j.resumed = true, &State{}
			same("without a checkpoint to resume", j.run(t, c.steps))
			for _, at := range made {
				for _, stop := range []int64{at.Step, at.Step + 1} {
					if stop == 0 || stop > int64(c.steps) {
						continue
					}
					j.cfg.MayKeep, j.resumed, j.from = false, nil, nil
					from := j.run(t, int(stop)).saved
					j.cfg.MayKeep, j.from = true, from
					same("resumed", j.run(t, c.steps))
				}
			}
		})
	}
}

// A run resumed from a checkpoint, with new measurements or the old choice, has choices since step
// 0.
func TestChoicesOfAResumedRun(t *testing.T) {
	for _, measure := range []bool{false, true} {
		j := small(slow, auto(0.01))
		j.varied = true
		half := j.run(t, 40).saved
		j.from, j.cfg.MayKeep, j.cfg.Measure = half, true, measure
		whole := j.run(t, 90).saved
		made := whole[0].tuned.Made
		if n := len(half[0].tuned.Made); len(made) < n || (len(made) > n) != measure || made[:n].String() != half[0].tuned.Made.String() {
			t.Errorf("measure %v: %s, before the checkpoint %s", measure, made, half[0].tuned.Made)
		}
		again := small(slow, Config{Exchange: j.cfg.Exchange, Choices: made})
		again.varied = true
		for r, s := range again.run(t, 90).saved {
			if !slices.Equal(s.params, whole[r].params) || !reflect.DeepEqual(s.state, whole[r].state) {
				t.Errorf("measure %v: rank %d has other bits by %s", measure, r, made)
			}
		}
	}
}

func TestChoicesByProfile(t *testing.T) {
	f := small(slow, auto(0.01)).run(t, 30).profile
	for _, plan := range []string{"", SavedPlan} {
		cfg := auto(0.01)
		cfg.Exchange.Plan, cfg.Profile = plan, &f
		j := small(slow, cfg)
		j.varied = true
		want := j.run(t, 20)
		j.cfg.Profile, j.cfg.Choices = nil, want.saved[0].tuned.Made
		if got := j.run(t, 20); len(j.cfg.Choices) != 1 || !reflect.DeepEqual(got.saved[0].params, want.saved[0].params) || got.opt.Plan().SHA256() != want.opt.Plan().SHA256() {
			t.Errorf("plan %q: other bits by %s", plan, j.cfg.Choices)
		}
	}
}

func TestChoicesRefused(t *testing.T) {
	f := &bucket.Profile{Model: "m", Ranks: 1, Layers: []bucket.LayerProfile{{Name: "a", Values: 1}}}
	one := Choices{{Plan: "one", Ends: []int{3}}}
	strategy := Choices{{Strategy: distopt.TopK}}
	for _, c := range []struct {
		cfg  Config
		want string // "": valid
	}{
		{Config{Exchange: distopt.Config{Strategy: Auto}, Choices: strategy}, ""},
		{Config{Exchange: distopt.Config{Strategy: Auto, Plan: SavedPlan}, Choices: one}, ""},
		{Config{Exchange: distopt.Config{Plan: SavedPlan}, Choices: one}, ""},
		{Config{Exchange: distopt.Config{Plan: "exact"}, Choices: one}, ""},
		{Config{Exchange: distopt.Config{Plan: "exact"}, Choices: one, Measure: true}, "tuning.choices 0:one=4 and tuning.tune both set the exchange"},
		{Config{Exchange: distopt.Config{Plan: "exact"}, Choices: one, Profile: f}, "tuning.choices 0:one=4 and tuning.profile, of model m, both set the exchange"},
		{Config{Choices: one}, `tuning.choices 0:one=4 has no effect: exchange.strategy is fp32 and exchange.plan ""`},
		{Config{Exchange: distopt.Config{Strategy: distopt.FP16, Plan: "exact"}, Choices: strategy}, "tuning.choices 0:topk: 0:topk sets a strategy, but exchange.strategy is fp16"},
		{Config{Exchange: distopt.Config{Strategy: Auto}, Choices: Choices{{}}}, "tuning.choices 0:: "},
	} {
		if err := c.cfg.Validate(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want %q", c.cfg, err, c.want)
		}
	}
	j := small(fast, Config{Exchange: distopt.Config{Plan: "exact"}, Choices: Choices{{Plan: "one", Ends: []int{1, 4}}}})
	checkFails(t, j, "tuning.choices 0:one=2,3: plan one is of 5 layers, and the model has 4")
	j.cfg.Choices, j.cfg.MayKeep = one, true
	for _, made := range []string{"0:exact=2,2", "0:one=4; 2:reselect", ""} {
		if err := j.cfg.Choices.UnmarshalText([]byte("0:one=4; 3:exact=2,2")); err != nil {
			t.Fatal(err)
		}
		j.from = make([]saved, 2)
		for r, s := range small(fast, Config{}).run(t, 5).saved {
			if err := s.tuned.Made.UnmarshalText([]byte(made)); err != nil {
				t.Fatal(err)
			}
			j.from[r] = s
		}
		checkFails(t, j, "tuning.choices 0:one=4; 3:exact=2,2 are not those of the checkpoint, whose run chose "+made+" in its 5 steps")
	}
}

func checkFails(t *testing.T, j job, want string) {
	t.Helper()
	onRanks(t, 2, func(g *collective.Group) error {
		if err := j.rank(g, 8, new(outcome)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		return nil
	})
}
