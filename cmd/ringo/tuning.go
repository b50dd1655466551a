package main

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/tune"
)

// tuning says by what a job chooses algorithms of collectives, plans and strategies:
// by fixed rules, by what is measured at its start, or by what an earlier job saved.
type tuning struct {
	tune    bool
	save    string
	profile string

	loaded tune.Profile // of profile
	found  tune.Profile // so far, of this job
}

func (t *tuning) register(fs *pflag.FlagSet) {
	fs.BoolVar(&t.tune, "tune", false, "measure the links and, for a plan that needs it, the first steps, and choose by that; results then depend on what was measured")
	fs.StringVar(&t.save, "save-profile", "", "write what was measured to `FILE`")
	fs.StringVar(&t.profile, "profile", "", "choose by what --save-profile wrote to `FILE`, with the same results each time; every rank reads it")
}

// check reads the profile and reports every fault.
func (t *tuning) check(faults *faultList) {
	if t.save != "" && !t.tune {
		faults.add("--save-profile %s has nothing to save without --tune", t.save)
	}
	if t.tune && t.profile != "" {
		faults.add("--tune and --profile %s are two sources for one choice: choose one", t.profile)
	}
	if t.profile == "" {
		return
	}
	var err error
	if t.loaded, err = tune.Load(t.profile); err != nil {
		faults.add("--profile: %w", err)
	} else if t.loaded.Collectives == nil {
		faults.add("--profile %s has no table of collectives: leave it out", t.profile)
	}
}

// before is body after the tuning of collectives.
func (t *tuning) before(body func(*ringo.Job) error) func(*ringo.Job) error {
	if !t.tune {
		return body
	}
	return func(job *ringo.Job) error {
		job.SetStatus("measuring the links")
		p, err := collective.Tune(job.Group())
		if err == nil {
			err = job.Group().Use(p)
		}
		if err == nil && job.Rank() == 0 {
			t.found.Collectives = &p
			err = t.saveFound()
		}
		if err != nil {
			return err
		}
		return body(job)
	}
}

func (t *tuning) saveFound() error {
	if t.save == "" {
		return nil
	}
	if err := tune.Save(t.save, t.found); err != nil {
		return fmt.Errorf("--save-profile: %w", err)
	}
	return nil
}
