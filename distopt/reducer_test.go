package distopt

import (
	"time"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/exchange"
)

// naive is the obvious reducer: every rank gets all contributions as they are and
// adds them in the order of ranks. It keeps its own last contribution.
type naive struct {
	group *collective.Group
	gave  map[int][]float32          // by Request.Lo
	lost  map[int]exchange.ErrorSpan // likewise
	err   error
	end   time.Time
}

func newNaive(g *collective.Group) *naive {
	return &naive{group: g, gave: map[int][]float32{}, lost: map[int]exchange.ErrorSpan{}}
}

func (r *naive) Start(op *exchange.Request) {
	own := append([]float32(nil), op.X...)
	op.Sent = exchange.Result{Algorithm: "naive", Entries: len(own), Dense: op.Sparse == nil, Bytes: int64(4 * len(own))}
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

// recode stores the sum as the ranks' values were. What that loses of a rank's share of the
// blocks is left with the rank.
func (r *naive) recode(op *exchange.Request) error {
	chain, err := compress.NewChain(op.Code)
	if err != nil {
		return err
	}
	coder := chain.NewCoder()
	payload, err := coder.EncodeDense(nil, op.X)
	if err != nil {
		return err
	}
	sum := append([]float32(nil), op.X...)
	if err := coder.DecodeDense(op.X, payload); err != nil {
		return err
	}
	for i, v := range op.X {
		sum[i] -= v
	}
	block, size := op.Code.Block(), r.group.Size()
	at := func(rank int) int { return min(len(sum), (len(sum)+block-1)/block*rank/size*block) }
	lo, hi := at(r.group.Rank()), at(r.group.Rank()+1)
	op.SumError = append(op.SumError[:0], exchange.ErrorSpan{At: lo, Values: sum[lo:hi]})
	r.lost[op.Lo] = op.SumError[0]
	return nil
}

func (r *naive) Wait(*exchange.Request) (time.Time, error) { return r.end, r.err }
func (r *naive) Close() error                              { return nil }
