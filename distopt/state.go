package distopt

import (
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/optim"
)

// State returns this rank's part of a checkpoint: residuals and velocities, named by parameter, and
// thresholds, named by range, as compress.Compressor.State. Names and lengths are equal on all
// ranks, values are not. Callers may read and overwrite them between steps. To continue a run with
// the same bits, call Restore with the same Setup, then write them back.
//
// With Config.Workers the result has the parts of all workers of this rank, sequentially, with the
// same names in each part.
func (o *Optimizer) State() (all []optim.State) {
	if o.codec.local == nil {
		return nil
	}
	for _, c := range append([]codec{o.codec}, o.others...) {
		all = append(all, c.local.State()...)
	}
	return all
}

// Setup is the configuration that State belongs to, with all changes since New. To continue a run,
// first pass it to Restore, then write back State. It is equal on all ranks and has a JSON form.
type Setup struct {
	Strategy Strategy `json:"strategy"`
	// Spars is the share or the threshold. Strategies without either retain the value.
	Spars float64 `json:"spars,omitempty"`
	// Other is the share of values while Spars is a threshold, for a later SetStrategy; and
	// conversely.
	Other    float64 `json:"other_spars,omitempty"`
	PlanName string  `json:"plan"`
	// Last describes the plan: the index of each bucket's last layer. SHA256 is the plan's hash.
	Last   []int  `json:"last_layers"`
	SHA256 string `json:"plan_sha256"`
	// CarriesResidual reports whether the next step sends residuals of an earlier strategy.
	CarriesResidual bool `json:"owes,omitempty"`
	// Skipped is the number of steps that were not applied, see Config.NonFinite.
	Skipped int64 `json:"skipped,omitempty"`
}

// Setup returns the setup of the next step.
func (o *Optimizer) Setup() Setup {
	s := Setup{Strategy: o.cfg.Strategy, Spars: o.cfg.Spars, Other: o.otherSpars, PlanName: o.planName, Last: o.agreed.Ends(), SHA256: o.agreed.SHA256(), CarriesResidual: o.codec.carriesResidual, Skipped: o.skip.count}
	if o.info.HasEffect(SettingSpars) {
		s.Spars = o.Spars() // including the default
	}
	return s
}

// Restore continues a run that was saved with s. All ranks call it between steps with the same
// value; the caller writes back parameters, optimizer state and State. s does not contain a custom
// chain: pass it to New or SetChain first.
func (o *Optimizer) Restore(s Setup) error {
	if err := o.between("call Restore"); err != nil {
		return err
	}
	plan, err := s.plan(o.layers)
	if err != nil {
		return fmt.Errorf("distopt: restoring the plan %q: %w", s.PlanName, err)
	}
	cfg, _ := o.withStrategy(s.Strategy)
	if s.Strategy != Custom {
		cfg.Chain = nil
	}
	if s.Spars != 0 {
		cfg.Spars = s.Spars
	}
	if s.Strategy == Custom && cfg.Chain == nil {
		return fmt.Errorf("distopt: restoring strategy %s, but this run has no chain", Custom)
	}
	if err := o.fitsRule(s.Strategy); err != nil {
		return err
	}
	before, others := o.codec, slices.Clone(o.others)
	err = o.eachCodec(func() (err error) {
		o.codec, err = o.codec.newCodecCarrying(s.CarriesResidual, o.layers, len(o.grads))
		return err
	})
	if err == nil {
		err = o.adopt(cfg)
	}
	if err != nil {
		o.codec, o.others = before, others
		return err
	}
	o.otherSpars, o.skip.count = s.Other, s.Skipped
	return o.setPlan(s.PlanName, plan)
}

func (s Setup) plan(layers []bucket.Param) (bucket.Plan, error) {
	p, err := bucket.Cut(layers, s.Last)
	if err != nil {
		return nil, err
	}
	if sum := p.SHA256(); sum != s.SHA256 {
		return nil, fmt.Errorf("its hash is %s, it was saved as %s", sum, s.SHA256)
	}
	return p, nil
}
