package train

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/internal/heter"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/nn"
)

// A checkpoint with heter-trainers has the part's parameters by name, as parameters that ranks do
// not train, and the state of the part's optimizer as one array. Servers save the other dense
// parameters. If ranks send the part's parameters to heter-trainers, servers have all parameters,
// and a checkpoint is the same as without heter-trainers.

const heterState = "heter/optimizer"

// give sets the part's parameters on heter-trainers to the replica's, and their optimizer's state;
// nil means its initial state.
func (f *heterParams) give(state []float32) error {
	all := make([]float32, f.heters.Len(), f.heters.StateLen())
	if err := f.cut.Pack(f.replica.Params, all); err != nil {
		return err
	}
	return f.heters.Begin(append(all, state...))
}

// giveFirst gives all heter-trainers the same first values: those of rank 0, or of heter-trainer 0
// if heter-trainers have other parameters.
func (f *heterParams) giveFirst(c Config) error {
	switch start := f.heters.Start(); {
	case start == heter.StartOwn && c.Heter.Count > 1:
		all := make([]float32, f.heters.Len())
		if err := f.heters.Values(all); err != nil {
			return err
		}
		return f.heters.Begin(all)
	case start == heter.StartTrainer, c.Start.From != "":
		return f.give(nil)
	}
	return nil
}

// fitsOwn returns an error for settings that need the part's parameters, if heter-trainers have a
// part of their own that ranks do not know.
func (c Config) fitsOwn(s heter.Start) error {
	const text = "%s: the parameters of the heter-trainers' module are not those of the model's stage, so that ranks cannot %s them: give the module these parameters, or remove the setting"
	switch {
	case s != heter.StartOwn:
		return nil
	case c.sendsParams():
		return setting.Errorf("sync", text, c.Servers.Consistency, "send")
	case c.Start.From != "":
		return setting.Errorf("training.init-from", text, c.Start.From, "set")
	case c.Checkpoint.Dir != "":
		return setting.Errorf("checkpoint.dir", text, c.Checkpoint.Dir, "save")
	}
	return nil
}

// resumed gives heter-trainers the part of the checkpoint that rank 0 has read.
func (f *heterParams) resumed() error {
	if !f.stateless && f.replica.job.Rank() == 0 {
		if err := f.give(f.state); err != nil {
			return err
		}
	}
	return f.sync()
}

// save also reads the part's parameters and the state of its optimizer, for arrays.
func (f *heterParams) save(step int64) (map[string]string, error) {
	more, err := f.serverParams.save(step)
	if err = errors.Join(err, f.each((*heterParams).settle)); err != nil || len(f.state) == 0 {
		return more, err
	}
	all := make([]float32, f.heters.StateLen())
	err = f.heters.Values(all)
	copy(f.state, all[f.heters.Len():])
	return more, err
}

func (f *heterParams) arrays() []checkpoint.Array {
	out := f.serverParams.arrays()
	if len(f.state) > 0 {
		out = append(out, checkpoint.Floats(heterState, f.state))
	}
	return out
}

// sameSplit returns an error if heter-trainers own the part in only one of the two runs, that of
// the checkpoint or this one: states of optimizers then cover different parameters.
func (c Config) sameSplit(file string, h checkpoint.Header) error {
	const path, sync setting.Path = "heter.count", "sync"
	was := h.Settings[path]
	owned := was != "" && was != "0" && h.Settings[sync] == "bsp"
	if owned == (c.Heter.Count > 0 && !c.sendsParams()) {
		return nil
	}
	begin := setting.Path("training.init-from")
	if owned {
		return setting.Errorf(path, "%d: %s is of a run with %s heter-trainers in bsp, which have saved their optimizer's state: continue in bsp with at least 1 heter-trainer, or start another run with the weights (%v)", c.Heter.Count, file, was, begin)
	}
	return setting.Errorf(path, "%d: %s is of a run with all dense parameters on servers, without heter-trainers or with stateless ones: remove the setting, or start another run with the weights (%v)", c.Heter.Count, file, begin)
}

// standIn adds a parameter without use to a model that has no dense parameter for servers: a schema
// needs at least one array.
func standIn(ps *nn.Params) { ps.New(standInName, nn.Zeros, 1) }

const standInName = "heter.none"

func paramsIn(f *checkpoint.File) (names []string) {
	for _, a := range f.Arrays() {
		if name, is := strings.CutPrefix(a.Name, paramName("")); is {
			names = append(names, name)
		}
	}
	return names
}

// freezeSaved freezes the parameters that are in the file of a checkpoint of a run with servers. It
// is called before parameters are arranged; servers have the other parameters.
func freezeSaved(ps *nn.Params, names []string) error {
	if len(names) == 0 {
		return nil
	}
	var errs []error
	left := false
	for _, p := range ps.List() {
		switch known := slices.Contains(names, p.Name); {
		case known && !p.Frozen():
			errs = append(errs, ps.Freeze(p.Name))
		case !known:
			left = true
		}
	}
	if !left {
		standIn(ps)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("content of its checkpoint: %w", err)
	}
	return nil
}
