package train

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/nn"
)

// A checkpoint of a run with heter-trainers has their parameters by name, as all that ranks do not train, and what their optimizer keeps
// as one array. Servers have saved the other dense parameters, which are fewer than those of the model in one piece. Where ranks lend the part
// servers have all, and a checkpoint is that of the model in one piece.

// heterState is that array's name.
const heterState = "heter/optimizer"

// give makes what a registry has of the part what heter-trainers begin with, with their optimizer's state, nil: as it is at the beginning.
func (f *splitParams) give(ps *nn.Params, state []float32) error {
	all := make([]float32, f.client.Len(), f.client.StateLen())
	if err := f.cut.Pack(ps, all); err != nil {
		return err
	}
	return f.client.Begin(append(all, state...))
}

// resumed gives heter-trainers what rank 0 has read of a checkpoint.
func (f *splitParams) resumed(r *Replica) error {
	if f == nil || f.stateless || r.job.Rank() != 0 {
		return nil
	}
	return f.give(r.Params, f.state)
}

// save reads what heter-trainers keep of their optimizer, for arrays.
func (f *splitParams) save() error {
	if f == nil || len(f.state) == 0 {
		return nil
	}
	all := make([]float32, f.client.StateLen())
	if err := f.client.Values(all); err != nil {
		return err
	}
	copy(f.state, all[f.client.Len():])
	return nil
}

func (f *splitParams) arrays() []checkpoint.Array {
	if f == nil || len(f.state) == 0 {
		return nil
	}
	return []checkpoint.Array{checkpoint.Floats(heterState, f.state)}
}

// sameSplit reports a checkpoint that goes on where heter-trainers own the part alone, or where they do not alone: what their optimizer keeps,
// and what servers do, is of another part of the parameters.
func (c Config) sameSplit(file string, h checkpoint.Header) error {
	const path, sync setting.Path = "heter.count", "sync"
	was := h.Settings[path]
	owned := was != "" && was != "0" && h.Settings[sync] == "bsp"
	if owned == (c.Heter.Count > 0 && !c.lends()) {
		return nil
	}
	begin := setting.Path("training.init-from")
	if owned {
		return setting.Errorf(path, "%d: %s is of a run with %s heter-trainers in bsp, whose optimizer is saved as theirs: go on in bsp with 1 or more, or begin another run with its weights (%v)", c.Heter.Count, file, was, begin)
	}
	return setting.Errorf(path, "%d: %s is of a run without heter-trainers, or with some that owned nothing: servers have all dense parameters; leave it out, or begin another run with its weights (%v)", c.Heter.Count, file, begin)
}

// standIn gives servers an array where nothing dense is theirs: they have one at least.
func standIn(ps *nn.Params) { ps.New(standInName, nn.Zeros, 1) }

const standInName = "heter.none"

// paramsIn are the parameters that a checkpoint's file has by name.
func paramsIn(f *checkpoint.File) (names []string) {
	for _, a := range f.Arrays() {
		if name, is := strings.CutPrefix(a.Name, paramName("")); is {
			names = append(names, name)
		}
	}
	return names
}

// freezeSaved freezes what a checkpoint of a run with servers has by name, before a registry is arranged: servers have the others.
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
		return fmt.Errorf("what its checkpoint has: %w", err)
	}
	return nil
}
