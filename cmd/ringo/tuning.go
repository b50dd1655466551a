package main

import (
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/job"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/tune"
)

// tuning selects fixed rules, measurements at the start, or the profile of an earlier job.
type tuning struct {
	tune bool
	save string // file of --save-cost-profile

	saved  bool
	loaded tune.Profile // profile of an earlier job
	found  tune.Profile // measurements of this job
}

// load reads the job's tuning settings and profile.
func (t *tuning) load(s *job.Spec) error {
	path := s.Tuning.Profile
	if t.tune = s.Tuning.Tune; t.tune {
		t.save = path
	}
	if path == "" || t.tune {
		return nil
	}
	x := s.Train.Exchange
	plans := x.Strategy == tune.Auto || slices.Contains(tune.Plans(), x.Plan)
	var fault error
	if t.loaded, fault = tune.Load(path); fault != nil {
		fault = setting.Errorf("tuning.profile", "%s: %w", path, fault)
	} else if t.loaded.Collectives == nil && !plans {
		fault = setting.Errorf("tuning.profile", "%s has no rules for collective algorithms, which this command needs: remove it", path)
	}
	s.Train.Tuning.Profile = t.loaded.Planner
	return fault
}

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

// planned saves rank 0's measurements of steps.
func (t *tuning) planned(f bucket.Profile) error {
	t.found.Planner = &f
	return t.saveFound()
}

func (t *tuning) saveFound() error {
	if t.save == "" {
		return nil
	}
	if err := tune.Save(t.save, t.found); err != nil {
		return fmt.Errorf("the measurements cannot be saved: %w", err)
	}
	t.saved = true
	return nil
}

// unsaved reports a run that ended before any measurement was saved.
func (t *tuning) unsaved() error {
	if t.save == "" || t.saved {
		return nil
	}
	return fmt.Errorf("%s was not written: the run ended before its first steps had been measured: give it more", t.save)
}
