package train

import (
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/collective"
)

// What ranks of geo keep for themselves is on no server: the state of the optimizers that move their copies. It differs by rank and
// thread, and may be as large as what a rank has touched of the table. It goes into rank 0's file, and out of it, part after
// part, as what codecs keep does.

// stream is a part of it: n values, which pass fills or takes in parts.
type stream struct {
	name string
	n    int
	rows bool // of a table: n differs by rank
	pass func(part []float32) error
}

// copies are the streams of this rank, as many on all ranks and in the same order.
func (r *run) copies() (out []stream) {
	if r.cfg.Servers.geoSteps() == 0 {
		return nil
	}
	for i, m := range r.replicas() {
		for _, s := range m.rule.State() {
			rest := s.Data
			out = append(out, stream{fmt.Sprintf("thread%d/%s", i, s.Name), len(s.Data), false, func(part []float32) error {
				rest = rest[copy(part, rest):]
				return nil
			}})
		}
		out = append(out, stream{fmt.Sprintf("thread%d/rows", i), m.remote.StateLen(), true, m.remote.ReadState()})
	}
	return out
}

// takers are copies that take values back; of rows as many as sizes says.
func (r *run) takers(sizes []int64) (out []stream, err error) {
	out = r.copies()
	at := 0
	for _, m := range r.replicas() {
		for _, s := range m.rule.State() {
			rest := s.Data
			out[at].pass = func(part []float32) error {
				rest = rest[copy(rest, part):]
				return nil
			}
			at++
		}
		if out[at].n = int(sizes[at]); out[at].n > 0 {
			if out[at].pass, err = m.remote.WriteState(out[at].n); err != nil {
				return nil, err
			}
		}
		at++
	}
	return out, nil
}

// gatherCopies names the streams of all ranks, for rank 0 to save; the others send theirs, and have none to name. It is
// a collective call.
func (r *run) gatherCopies() (out []checkpoint.Array, err error) {
	own := r.copies()
	if len(own) == 0 {
		return nil, nil
	}
	var lengths []int64
	for _, s := range own {
		lengths = append(lengths, int64(s.n))
	}
	sizes, err := gatherNumbers(r.peers, lengths...)
	if err != nil {
		return nil, fmt.Errorf("gathering how much ranks keep of their copies: %w", err)
	}
	if r.job.Rank() == 0 {
		return r.arraysOf(sizes, own, collective.Receive[float32]), nil
	}
	return nil, nil
}

// sendCopies is the other ranks' part of saving them, while rank 0 writes its file.
func (r *run) sendCopies() error {
	room := make([]float32, checkpoint.PassingPart)
	for _, s := range r.copies() {
		for left := s.n; left > 0; left -= len(room) {
			part := room[:min(left, len(room))]
			if err := s.pass(part); err != nil {
				return err
			}
			if err := collective.Send(r.job.Group(), part, 0); err != nil {
				return fmt.Errorf("sending what is kept of copies: %w", err)
			}
		}
	}
	return nil
}

// arraysOf names the streams of all ranks, with lengths by rank and stream: rank 0's own, and those that go to or come
// from the others.
func (r *run) arraysOf(sizes [][]int64, own []stream, other func(g *collective.Group, part []float32, rank int) error) (out []checkpoint.Array) {
	for rank, lengths := range sizes {
		for i, s := range own {
			pass := s.pass
			if rank > 0 {
				pass = func(part []float32) error {
					if err := other(r.job.Group(), part, rank); err != nil {
						return fmt.Errorf("what rank %d keeps of its copies: %w", rank, err)
					}
					return nil
				}
			}
			out = append(out, checkpoint.Passing(checkpoint.RankName(rank, s.name), int(lengths[i]), pass))
		}
	}
	return out
}

// spreadCopies names the streams of all ranks, for rank 0 to read from its file, and the others to take with takeCopies. It is a
// collective call, with f nil on the others.
func (r *run) spreadCopies(f *checkpoint.File) (own []stream, arrays []checkpoint.Array, err error) {
	names := r.copies()
	if len(names) == 0 {
		return nil, nil, nil
	}
	np, k := r.job.Size(), len(names)
	flat := make([]int64, np*k)
	if f != nil {
		has := f.Arrays()
		for i := range flat {
			name := checkpoint.RankName(i/k, names[i%k].name)
			if at := slices.IndexFunc(has, func(a checkpoint.Info) bool { return a.Name == name }); at >= 0 { // else reading it is an error
				flat[i] = has[at].Len
			}
		}
	}
	if err := collective.Broadcast(r.job.Group(), flat, 0); err != nil {
		return nil, nil, fmt.Errorf("telling the ranks how much they have kept of their copies: %w", err)
	}
	rank := r.job.Rank()
	if own, err = r.takers(flat[rank*k:][:k]); err != nil || rank > 0 {
		return own, nil, err
	}
	for i, s := range own {
		for rank := range np { // those of dense values are as long as this run's, or do not fit it
			if !s.rows {
				flat[rank*k+i] = int64(s.n)
			}
		}
	}
	return own, r.arraysOf(slices.Collect(slices.Chunk(flat, k)), own, collective.Send[float32]), nil
}

// takeCopies is the other ranks' part of reading them.
func (r *run) takeCopies(own []stream) error {
	room := make([]float32, checkpoint.PassingPart)
	for _, s := range own {
		for left := s.n; left > 0; left -= len(room) {
			part := room[:min(left, len(room))]
			if err := collective.Receive(r.job.Group(), part, 0); err != nil {
				return fmt.Errorf("receiving what was kept of copies: %w", err)
			}
			if err := s.pass(part); err != nil {
				return err
			}
		}
	}
	return nil
}
