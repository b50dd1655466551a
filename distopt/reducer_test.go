package distopt

import (
	"time"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/exchange"
)

// naive is the obvious reducer: every rank gets all contributions as they are and
// adds them in the order of ranks. It keeps its own last contribution.
type naive struct {
	group *collective.Group
	gave  map[int][]float32 // by Op.Lo
	err   error
	end   time.Time
}

func newNaive(g *collective.Group) *naive { return &naive{group: g, gave: map[int][]float32{}} }

func (r *naive) Start(op *exchange.Op) {
	own := append([]float32(nil), op.X...)
	op.Sent = exchange.Sent{Algorithm: "naive", Entries: len(own), Dense: op.Sparse == nil, Bytes: int64(4 * len(own))}
	if op.Sparse != nil {
		clear(own)
		op.Sparse.AddTo(own)
		op.Sent.Entries = op.Sparse.Count()
	}
	r.gave[op.Lo] = own
	all := make([]float32, len(own)*r.group.Size())
	if err := collective.AllGather(r.group, all, own); err != nil {
		r.err = err
		return
	}
	clear(op.X)
	for rank := range r.group.Size() {
		for i, v := range all[rank*len(own):][:len(own)] {
			op.X[i] += v
		}
	}
	if op.Code != nil && op.Sparse == nil && op.Code.Feedback() {
		r.err = r.recode(op)
	}
	r.end = time.Now()
}

// recode stores the sum as the ranks' values were.
func (r *naive) recode(op *exchange.Op) error {
	chain, err := compress.NewChain(op.Code)
	if err != nil {
		return err
	}
	coder := chain.NewCoder()
	payload, err := coder.EncodeDense(nil, op.X)
	if err != nil {
		return err
	}
	return coder.DecodeDense(op.X, payload)
}

func (r *naive) Wait(*exchange.Op) (time.Time, error) { return r.end, r.err }
func (r *naive) Close() error                         { return nil }
