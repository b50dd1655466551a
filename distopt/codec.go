package distopt

import (
	"fmt"

	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/exchange"
)

// codec compresses a bucket's gradients before the exchange and keeps residuals, the unsent values.
type codec struct {
	local  *compress.Compressor // nil: no compression
	pool   compress.Pool        // threads of the pool; nil: the caller's thread
	code   compress.Quantiser   // values on the wire; nil: float32
	groups []compress.Bucket
	sparse []compress.Sparse // selected entries, by bucket
	// carriesResidual reports whether local has residuals of an earlier strategy, which the next
	// step sends, although the chain uses no residuals.
	carriesResidual bool
}

// use changes to a chain; nil means float32 without compression. Residuals stay until they are
// zero.
func (c *codec) use(chain *compress.Chain, layers []bucket.Param, n int) (err error) {
	local, code := chain, compress.Quantiser(nil)
	if chain == nil {
		if local, err = compress.NewChain(); err != nil {
			return err
		}
	} else if q := chain.Quantiser(); q.Code() != compress.CodeFP32 {
		code = q
		if !chain.Sparse() && halves(q) {
			local = chain.Uncoded() // because the exchange divides before it casts
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

// newCodecCarrying returns a codec without state. If owes is true, it has residuals of zero for the
// caller to fill, which the next step sends.
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

// halves reports whether the ranks add values of q as 16-bit numbers.
func halves(q compress.Quantiser) bool {
	return q.Code() == compress.CodeFP16 || q.Code() == compress.CodeBF16
}

// paramsOf returns the layers without padding.
func paramsOf(layers []bucket.Param) []compress.Param {
	out := make([]compress.Param, len(layers))
	for i, l := range layers {
		out[i] = compress.Param{Name: l.Name, Lo: l.Offset, Hi: l.Offset + l.Len - l.Pad}
	}
	return out
}

// group makes the plan's buckets the groups of the chain. With perLayer each layer has a separate
// selection.
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

// entries returns the buffer for a bucket's selected entries; nil means that all values are sent.
func (c *codec) entries(b int) *compress.Sparse {
	if c.local == nil || !c.local.Chain().Sparse() {
		return nil
	}
	return &c.sparse[b]
}

// encode selects or rounds a bucket's gradients for the exchange.
func (c *codec) encode(b int, grads []float32) error {
	if s := c.entries(b); s != nil {
		return c.local.Select(s, b, grads)
	}
	return c.local.Round(b, grads)
}

// clean zeroes the padding between parameters in the sum x of a bucket: codes of blocks can write
// other values to it.
func (c *codec) clean(lo int, x []float32) {
	if c.local != nil && c.code != nil && c.code.Block() > 1 {
		c.local.Layout().ClearPadding(lo, x)
	}
}

// restoreExcluded adds to the residual what the sum of op lacks: this rank's part of entries that
// the sum excluded, and its share of the compression error of the sum.
func (c *codec) restoreExcluded(op *exchange.Request) {
	if op.Sent.Excluded > 0 {
		op.Sparse.AddTo(c.local.Residual(op.Lo, op.Lo+len(op.X)))
	}
	for _, l := range op.SumError { // only with a code, hence with a chain
		c.local.Keep(op.Lo+l.At, l.Values)
	}
}

// restoreUnsent returns the selected entries of a failed bucket to the residual, which is then the
// gradient plus the old residual. Without a selection it restores only the rounding error, because
// the sum overwrites the sent values.
func (c *codec) restoreUnsent(op *exchange.Request) {
	if op.Sparse == nil {
		return
	}
	all := *op.Sparse
	if op.Sent.Excluded > 0 { // summed before another bucket failed
		all.Index, all.Value = all.Index[:op.Sent.Entries], all.Value[:op.Sent.Entries]
	}
	all.AddTo(c.local.Residual(op.Lo, op.Lo+len(op.X)))
}

// endStep ends a step, which sent any residual of an earlier strategy. If the chain then has no
// more use, endStep drops it and returns true.
func (c *codec) endStep() bool {
	if !c.carriesResidual || !c.local.Chain().Identity() {
		return false
	}
	c.local, c.carriesResidual, c.sparse = nil, false, nil
	return true
}

func (c *codec) part(b, param int) int {
	if len(c.groups[b].Parts) == 0 {
		return 0
	}
	return param
}

func (c *codec) threshold(b, param int) float32 {
	return c.local.Last(b, c.part(b, param)).Threshold
}

// exactCount returns the number of values in exact selections of the last step, if the strategy
// reuses thresholds.
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

// exact reports whether all parts of a bucket were selected exactly.
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
