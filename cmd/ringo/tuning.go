package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/collective"
)

// tuning says which table of algorithms a job uses: the fixed one, one measured at
// its start, or one that an earlier job saved.
type tuning struct {
	tune    bool
	save    string
	profile string

	loaded *collective.Profile // of profile
}

func (t *tuning) register(fs *pflag.FlagSet) {
	fs.BoolVar(&t.tune, "tune", false, "measure the links at the start and choose algorithms by that; results then depend on what was measured")
	fs.StringVar(&t.save, "save-profile", "", "write what --tune found to `FILE`")
	fs.StringVar(&t.profile, "profile", "", "choose algorithms by a profile that --save-profile wrote to `FILE`; every rank reads it")
}

// check reads the profile and reports every fault.
func (t *tuning) check(faults *faultList) {
	if t.save != "" && !t.tune {
		faults.add("--save-profile %s has nothing to save without --tune", t.save)
	}
	if t.tune && t.profile != "" {
		faults.add("--tune and --profile %s are two tables: choose one", t.profile)
	}
	if t.profile == "" {
		return
	}
	text, err := os.ReadFile(t.profile)
	p := new(collective.Profile)
	if err == nil {
		err = json.Unmarshal(text, p)
	}
	if err == nil {
		err = p.Validate()
	}
	if err != nil {
		faults.add("--profile %s: %w", t.profile, err)
		return
	}
	t.loaded = p
}

// before is body after the tuning.
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
		if err == nil && t.save != "" && job.Rank() == 0 {
			err = saveProfile(t.save, p)
		}
		if err != nil {
			return err
		}
		return body(job)
	}
}

func saveProfile(name string, p collective.Profile) error {
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return fmt.Errorf("--save-profile: %w", err)
	}
	if err := os.WriteFile(name, append(text, '\n'), 0o666); err != nil {
		return fmt.Errorf("--save-profile: %w", err)
	}
	return nil
}
