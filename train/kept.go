package train

import (
	"fmt"
	"strings"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/optim"
)

// What codecs keep differs by rank and may be as large as the model on each. Rank
// 0 writes it into the one file without ever holding it: the other ranks send
// theirs, part after part, as the file is written, and get it as it is read.

// kept names what the codecs of all ranks keep, for rank 0 to save while the
// others are in sendKept.
func (r *run) kept() []checkpoint.Array {
	var out []checkpoint.Array
	for rank := range r.job.Size() {
		for _, s := range r.replica.Opt.State() {
			name := checkpoint.RankName(rank, s.Name)
			if rank == 0 {
				out = append(out, checkpoint.Floats(name, s.Data))
				continue
			}
			out = append(out, checkpoint.Passing(name, len(s.Data), func(part []float32) error {
				if err := collective.Receive(r.job.Group(), part, rank); err != nil {
					return fmt.Errorf("gathering what the codec of rank %d keeps: %w", rank, err)
				}
				return nil
			}))
		}
	}
	return out
}

// sendKept is the other ranks' part of kept.
func (r *run) sendKept() error {
	for _, s := range r.replica.Opt.State() {
		err := inParts(s.Data, func(part []float32) error { return collective.Send(r.job.Group(), part, 0) })
		if err != nil {
			return fmt.Errorf("sending what the codec keeps: %w", err)
		}
	}
	return nil
}

// inParts hands out x as checkpoint.Passing does.
func inParts(x []float32, pass func(part []float32) error) error {
	for len(x) > 0 {
		n := min(len(x), checkpoint.PassingPart)
		if err := pass(x[:n]); err != nil {
			return err
		}
		x = x[n:]
	}
	return nil
}

// inheritable are the states that ranks may take over from others. Every rank has
// thresholds of its own, and without them the first selections are exact.
func inheritable(states []optim.State) []optim.State {
	var out []optim.State
	for _, s := range states {
		if strings.HasPrefix(s.Name, "residual/") || strings.HasPrefix(s.Name, "velocity/") {
			out = append(out, s)
		}
	}
	return out
}

// bequest is which states a checkpoint of so many ranks gives to this run, and
// by how much they are multiplied: with the same number each rank gets its own,
// else its share of what is kept; see compress.Heirs.
func (r *run) bequest(ranks int) (states []optim.State, factor float32) {
	states = r.replica.Opt.State()
	if np := r.job.Size(); ranks != np {
		return inheritable(states), float32(np) / float32(ranks)
	}
	return states, 1
}

// handOut names what the codecs of so many ranks kept, for rank 0 to read while
// the others are in takeOver.
func (r *run) handOut(ranks int) []checkpoint.Array {
	states, factor := r.bequest(ranks)
	var out []checkpoint.Array
	for old := range ranks {
		heir := old % r.job.Size()
		for _, s := range states {
			name, done := checkpoint.RankName(old, s.Name), 0
			out = append(out, checkpoint.Passing(name, len(s.Data), func(part []float32) error {
				if heir != 0 {
					return collective.Send(r.job.Group(), part, heir)
				}
				absorb(s.Data[done:], part, old == heir, factor)
				done += len(part)
				return nil
			}))
		}
	}
	return out
}

// takeOver is the other ranks' part of handOut.
func (r *run) takeOver(ranks int) error {
	states, factor := r.bequest(ranks)
	room := make([]float32, checkpoint.PassingPart)
	for _, old := range compress.Heirs(ranks, r.job.Size(), r.job.Rank()) {
		for _, s := range states {
			err := inParts(s.Data, func(own []float32) error {
				part := room[:len(own)]
				if err := collective.Receive(r.job.Group(), part, 0); err != nil {
					return err
				}
				absorb(own, part, old == r.job.Rank(), factor)
				return nil
			})
			if err != nil {
				return fmt.Errorf("taking over what the codec of rank %d kept: %w", old, err)
			}
		}
	}
	return nil
}

// absorb makes own what a rank kept, times factor, or adds it.
func absorb(own, part []float32, first bool, factor float32) {
	for i, v := range part {
		if v *= factor; !first {
			v += own[i]
		}
		own[i] = v
	}
}
