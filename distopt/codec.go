package distopt

import (
	"fmt"

	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/exchange"
)

// codec is what happens to a bucket's gradients before they are exchanged, and
// what is kept of them.
type codec struct {
	local  *compress.Compressor // nil: nothing happens
	pool   compress.Pool        // what it computes with; nil: the caller's thread
	code   compress.Quantiser   // how values travel; nil: float32
	groups []compress.Bucket    // by bucket
	sparse []compress.Sparse    // by bucket: what is sent of it
	// carriesResidual: local has residuals of a strategy before, which its chain alone would
	// not have. They go with the next gradients.
	carriesResidual bool
}

// use goes on with a chain; nil: values travel as they are. What is kept stays
// as long as it is not zero.
func (c *codec) use(chain *compress.Chain, layers []bucket.Param, n int) (err error) {
	local, code := chain, compress.Quantiser(nil)
	if chain == nil {
		if local, err = compress.NewChain(); err != nil {
			return err
		}
	} else if q := chain.Quantiser(); q.Code() != compress.CodeFP32 {
		code = q
		if !chain.Sparse() && halves(q) {
			local = chain.Uncoded() // the exchange divides before it casts
		}
	}
	kept := c.local != nil && (c.carriesResidual || c.local.Chain().Feedback())
	switch {
	case c.local != nil && (kept || !local.Identity()):
		err = c.local.Change(local)
	case local.Identity():
		c.local = nil
	default:
		c.local, err = local.Bind(paramsOf(layers), n, c.pool)
	}
	c.code, c.carriesResidual = code, kept && !local.Feedback()
	return err
}

// newCodecCarrying is a codec that has kept nothing but, if it owes, what the next step sends:
// zeros, until they are written.
func (c *codec) newCodecCarrying(owes bool, layers []bucket.Param, n int) (codec, error) {
	out := codec{pool: c.pool}
	if !owes {
		return out, nil
	}
	everything, err := compress.NewChain(compress.TopK{Ratio: 1})
	if err == nil {
		err = out.use(everything, layers, n)
	}
	if err != nil {
		return out, fmt.Errorf("distopt: %w", err)
	}
	return out, nil
}

// halves tells whether values in 16 bits can be added on their way.
func halves(q compress.Quantiser) bool {
	return q.Code() == compress.CodeFP16 || q.Code() == compress.CodeBF16
}

// paramsOf are the layers without their padding.
func paramsOf(layers []bucket.Param) []compress.Param {
	out := make([]compress.Param, len(layers))
	for i, l := range layers {
		out[i] = compress.Param{Name: l.Name, Lo: l.Offset, Hi: l.Offset + l.Len - l.Pad}
	}
	return out
}

// group makes the plan's buckets the groups of the chain. With perLayer, each layer
// is selected from by itself.
func (c *codec) group(plan bucket.Plan, layers []bucket.Param, perLayer bool) error {
	if c.local == nil {
		c.sparse = nil
		return nil
	}
	if len(c.sparse) != len(plan) {
		c.sparse = make([]compress.Sparse, len(plan))
	}
	c.groups = make([]compress.Bucket, len(plan))
	for b, k := range plan {
		c.groups[b] = compress.Bucket{Lo: k.Lo, Hi: k.Hi}
		for l := k.First + 1; perLayer && l <= k.Last; l++ {
			c.groups[b].Parts = append(c.groups[b].Parts, layers[l].Offset)
		}
	}
	return c.local.SetGroups(c.groups)
}

// forceExact makes the next selections exact.
func (c *codec) forceExact() error {
	if c.local == nil {
		return nil
	}
	return c.local.SetGroups(nil)
}

// entries is where what is sent of a bucket is put; nil: all of it is sent.
func (c *codec) entries(b int) *compress.Sparse {
	if c.local == nil || !c.local.Chain().Sparse() {
		return nil
	}
	return &c.sparse[b]
}

// encode makes of a bucket's gradients what others will see of them.
func (c *codec) encode(b int, grads []float32) error {
	if s := c.entries(b); s != nil {
		return c.local.Select(s, b, grads)
	}
	return c.local.Round(b, grads)
}

// clean zeroes the padding of what was agreed where a code may have left
// something in it.
func (c *codec) clean(lo int, x []float32) {
	if c.local != nil && c.code != nil && c.code.Block() > 1 {
		c.local.Layout().ClearPadding(lo, x)
	}
}

// restoreExcluded keeps what this rank contributed to entries that a sum left out, and what
// falls to it of what coding a sum lost.
func (c *codec) restoreExcluded(op *exchange.Request) {
	if op.Sent.Excluded > 0 {
		op.Sparse.AddTo(c.local.Residual(op.Lo, op.Lo+len(op.X)))
	}
	for _, l := range op.SumError { // of a code, for which there is a chain
		c.local.Keep(op.Lo+l.At, l.Values)
	}
}

// restoreUnsent keeps what this rank was to send of a bucket that was not agreed on: gradient
// and old residual are then kept. Of a dense code only what rounding lost is, because
// sums take the place of what was to be sent.
func (c *codec) restoreUnsent(op *exchange.Request) {
	if op.Sparse == nil {
		return
	}
	all := *op.Sparse
	if op.Sent.Excluded > 0 { // summed, before another bucket failed
		all.Index, all.Value = all.Index[:op.Sent.Entries], all.Value[:op.Sent.Entries]
	}
	all.AddTo(c.local.Residual(op.Lo, op.Lo+len(op.X)))
}

// endStep ends a step. What was owed went with it, and where nothing is left to
// do, nothing is done from now on: it then returns true.
func (c *codec) endStep() bool {
	if !c.carriesResidual || !c.local.Chain().Identity() {
		return false
	}
	c.local, c.carriesResidual, c.sparse = nil, false, nil
	return true
}

// part is the selection that a layer of a bucket belongs to.
func (c *codec) part(b, param int) int {
	if len(c.groups[b].Parts) == 0 {
		return 0
	}
	return param
}

// threshold is that of a bucket's layer in the last step.
func (c *codec) threshold(b, param int) float32 {
	return c.local.Last(b, c.part(b, param)).Threshold
}

// exactCount is how many values lie in what the last step selected anew, where
// thresholds are reused.
func (c *codec) exactCount() (values int, reuses bool) {
	if c.local == nil || !c.local.Chain().Reuses() {
		return 0, false
	}
	for b, g := range c.groups {
		lo := g.Lo
		for part := range len(g.Parts) + 1 {
			hi := g.Hi
			if part < len(g.Parts) {
				hi = g.Parts[part]
			}
			if c.local.Last(b, part).Exact {
				values += hi - lo
			}
			lo = hi
		}
	}
	return values, true
}

// exact tells whether all of a bucket was selected exactly.
func (c *codec) exact(b int) bool {
	if c.entries(b) == nil {
		return false
	}
	for part := range len(c.groups[b].Parts) + 1 {
		if !c.local.Last(b, part).Exact {
			return false
		}
	}
	return true
}
