package train

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/optim"
)

// State of one rank, such as its residuals (unsent gradients), may be as large as the model. Rank 0
// writes the state of all ranks into one file, but never has all of it in memory: other ranks send
// it in pieces while rank 0 writes the file, and receive it in pieces while rank 0 reads the file.

// stream is a named part of a rank's state: n values, in pieces.
type stream struct {
	name string
	n    int
	// varies reports whether n can differ between ranks.
	varies bool
	// give returns a function that fills pieces with the values, in order.
	give func() func(part []float32) error
	// take returns a function that receives n values in pieces and stores them times factor: it
	// replaces the values if first, else adds to them.
	take func(n int, first bool, factor float32) (func(part []float32) error, error)
}

func streamOf(name string, data ...[]float32) stream {
	n := 0
	for _, x := range data {
		n += len(x)
	}
	return stream{
		name: name, n: n,
		give: func() func([]float32) error {
			rest := slices.Clone(data)
			return func(part []float32) error {
				splitAlong(rest, part, func(own, part []float32) { copy(part, own) })
				return nil
			}
		},
		take: func(_ int, first bool, factor float32) (func([]float32) error, error) {
			rest := slices.Clone(data)
			return func(part []float32) error {
				splitAlong(rest, part, func(own, part []float32) { absorb(own, part, first, factor) })
				return nil
			}, nil
		},
	}
}

// splitAlong calls do with the first values of slices, as many as part has, and removes them.
func splitAlong(rest [][]float32, part []float32, do func(own, part []float32)) {
	for i := range rest {
		n := min(len(rest[i]), len(part))
		do(rest[i][:n], part[:n])
		rest[i], part = rest[i][n:], part[n:]
	}
}

func streamsOf(prefix string, states []optim.State) (out []stream) {
	for _, s := range states {
		out = append(out, streamOf(prefix+s.Name, s.Data))
	}
	return out
}

// absorb sets own to a rank's values times factor if first, else adds these.
func absorb(own, part []float32, first bool, factor float32) {
	for i, v := range part {
		if v *= factor; !first {
			v += own[i]
		}
		own[i] = v
	}
}

// localState returns the streams of this rank, or of each of its virtual workers: running
// statistics, the state that a model carries from batch to batch, and the state of its replicas.
func localState(workers []*trainerThread) [][]stream {
	first := workers[0].replica
	out := make([][]stream, first.carries())
	var kept []stream
	for _, w := range workers {
		kept = append(kept, w.replica.params.localState()...)
	}
	for i := range out {
		moved := first.movedOf(i)
		buffers := moved[:1]
		for _, w := range workers[1:] {
			buffers = append(buffers[:len(buffers):len(buffers)], w.replica.Params.Buffers())
		}
		for _, s := range []stream{streamOf("buffers", buffers...), streamOf("carried", moved[1:]...)} {
			if s.n > 0 {
				out[i] = append(out[i], s)
			}
		}
		each := len(kept) / len(out)
		out[i] = append(out[i], kept[i*each:(i+1)*each]...)
	}
	return out
}

func lengthsOf(streams []stream) (out []int64) {
	for _, s := range streams {
		out = append(out, int64(s.n))
	}
	return out
}

// localArrays returns, on rank 0, arrays for the state of all ranks, which rank 0 writes while
// other ranks run sendLocal; on other ranks it returns none. All ranks call it.
func (s *saver) localArrays() (out []checkpoint.Array, err error) {
	own := localState(s.workers)
	if len(own[0]) == 0 {
		return nil, nil
	}
	var counts [][]int64
	for _, streams := range own {
		counts = append(counts, lengthsOf(streams))
	}
	lengths, err := s.gatherEach(counts)
	if err != nil {
		return nil, fmt.Errorf("gathering the lengths of the ranks' local state: %w", err)
	}
	if s.job.Rank() != 0 {
		return nil, nil
	}
	for i := range lengths { // rank 0 carries the first ones
		for k, part := range own[0] {
			var pass func([]float32) error
			if i < len(own) {
				pass = own[i][k].give()
			} else {
				pass = receiveFrom(s.job.Group(), s.carrier(i))
			}
			out = append(out, checkpoint.Passing(checkpoint.RankName(i, part.name), int(lengths[i][k]), pass))
		}
	}
	return out, nil
}

// receiveFrom returns a function that receives pieces of a rank's state.
func receiveFrom(g *collective.Group, rank int) func(part []float32) error {
	return func(part []float32) error {
		if err := collective.Receive(g, part, rank); err != nil {
			return fmt.Errorf("receiving the local state of rank %d: %w", rank, err)
		}
		return nil
	}
}

// sendTo returns a function that sends pieces of a rank's state.
func sendTo(g *collective.Group, rank int) func(part []float32) error {
	return func(part []float32) error {
		if err := collective.Send(g, part, rank); err != nil {
			return fmt.Errorf("sending local state to rank %d: %w", rank, err)
		}
		return nil
	}
}

// sendLocal sends the state for which rank 0 has called localArrays.
func (s *saver) sendLocal() error {
	for _, part := range slices.Concat(localState(s.workers)...) {
		if err := inParts(part.n, part.give(), sendTo(s.job.Group(), 0)); err != nil {
			return err
		}
	}
	return nil
}

// inParts reads n values by from and passes them to to, in pieces of checkpoint.PassingPart.
func inParts(n int, from, to func(part []float32) error) error {
	room := make([]float32, min(n, checkpoint.PassingPart))
	for ; n > 0; n -= len(room) {
		room = room[:min(n, len(room))]
		if err := from(room); err != nil {
			return err
		}
		if err := to(room); err != nil {
			return err
		}
	}
	return nil
}

// inherited returns the streams into which this rank reads the state of a checkpoint of another
// number of ranks, with a factor: each rank takes its own state, or else a share, see
// compress.Inherited. Only residuals and velocities have shares; running statistics have means, and
// selections without thresholds are exact at first.
func (r *resumption) inherited(ranks int) (own [][]stream, factor float32) {
	own = localState(r.workers)
	np := r.virtual()
	if ranks == np {
		return own, 1
	}
	own[0] = slices.DeleteFunc(own[0], func(s stream) bool {
		name := s.name
		if strings.HasPrefix(name, "thread") {
			_, name, _ = strings.Cut(name, "/")
		}
		return !strings.HasPrefix(name, "residual/") && !strings.HasPrefix(name, "velocity/")
	})
	return own, float32(np) / float32(ranks)
}

// keptLengths returns the lengths of all ranks' streams in rank 0's checkpoint, by rank and stream.
// All ranks call it.
func (r *resumption) keptLengths(f *checkpoint.File, ranks int) (out [][]int64, err error) {
	all, _ := r.inherited(ranks)
	own := all[0]
	for range ranks {
		out = append(out, lengthsOf(own)) // reading reports other lengths
	}
	if !slices.ContainsFunc(own, func(s stream) bool { return s.varies }) {
		return out, nil
	}
	flat := slices.Concat(out...)
	if f != nil {
		has := f.Arrays()
		for i := range flat {
			s := own[i%len(own)]
			name := checkpoint.RankName(i/len(own), s.name)
			if at := slices.IndexFunc(has, func(a checkpoint.Info) bool { return a.Name == name }); s.varies && at >= 0 {
				flat[i] = has[at].Len
			}
		}
	}
	if err := collective.Broadcast(r.job.Group(), flat, 0); err != nil {
		return nil, fmt.Errorf("broadcasting the lengths of the ranks' local state: %w", err)
	}
	return slices.Collect(slices.Chunk(flat, len(own))), nil
}

// distribute returns arrays for the state of all ranks, which rank 0 reads while other ranks run
// receiveLocal.
func (r *resumption) distribute(lengths [][]int64) (out []checkpoint.Array, err error) {
	own, factor := r.inherited(len(lengths))
	for old := range lengths {
		worker := old % r.virtual()
		heir := r.carrier(worker)
		for i, s := range own[0] {
			n, pass := int(lengths[old][i]), sendTo(r.job.Group(), heir)
			if heir == 0 && n > 0 {
				if pass, err = own[worker][i].take(n, old == worker, factor); err != nil {
					return nil, err
				}
			}
			out = append(out, checkpoint.Passing(checkpoint.RankName(old, s.name), n, pass))
		}
	}
	return out, nil
}

// receiveLocal receives the state that rank 0 reads by distribute.
func (r *resumption) receiveLocal(lengths [][]int64) error {
	own, factor := r.inherited(len(lengths))
	lo, hi := r.carried(r.job.Rank())
	for worker := lo; worker < hi; worker++ {
		for _, old := range compress.Inherited(len(lengths), r.virtual(), worker) {
			for i, s := range own[worker-lo] {
				n := int(lengths[old][i])
				if n == 0 {
					continue
				}
				take, err := s.take(n, old == worker, factor)
				if err == nil {
					err = inParts(n, receiveFrom(r.job.Group(), 0), take)
				}
				if err != nil {
					return fmt.Errorf("restoring the local state of rank %d: %w", old, err)
				}
			}
		}
	}
	return nil
}
