package bindings

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/internal/exchange"
	"github.com/ringo-ml/ringo/internal/simd"
	"github.com/ringo-ml/ringo/internal/tune"
)

// Strategy averages gradients over a group's ranks by a strategy of package distopt, bucket by
// bucket: select, encode, keep the unsent rest per parameter, and exchange. Methods are for calls
// from any goroutine; all ranks exchange the same buckets in the same order.
type Strategy struct {
	mu      sync.Mutex
	group   *collective.Group
	reducer *exchange.GroupReducer
	auto    bool           // opened as tune.Auto: cfg is the current choice
	density float64        // requested density, for strategies with a density
	cfg     distopt.Config // the strategy's settings
	chain   *compress.Chain
	code    compress.Quantiser   // code of the sent values; nil: uncompressed
	local   *compress.Compressor // local part of the chain, bound to the parameters' places, with residuals
	owes    bool                 // local keeps the old strategy's residual for the next gradients
	params  []compress.Param     // index: the caller's numbers; current places
	buckets []compress.Bucket    // order of Arrange
	ops     []exchange.Request   // current or last exchange, by bucket
	sparse  []compress.Sparse    // sent entries, by bucket
	flying  []bool               // exchange in progress, by bucket

	steps sync.Mutex // held by the long calls Tune and Step
	tuned *tuned     // planner of the buckets; nil: the caller
}

// NewStrategy makes a strategy for parameters of the given lengths, in one bucket. density is the
// share of sent values or the threshold, 0: the default; strategies that send all values refuse a
// density. "auto" is fp32 until Tune.
func NewStrategy(g *collective.Group, name string, density float64, names []string, lengths []int) (*Strategy, error) {
	s := &Strategy{group: g, auto: name == string(tune.Auto), density: density, cfg: distopt.Config{Strategy: distopt.Strategy(name), Spars: density}}
	asked := s.cfg
	if s.auto {
		asked.Strategy, s.cfg = distopt.DLGS, distopt.Config{Strategy: distopt.FP32}
	}
	if err := asked.Validate(); err != nil {
		return nil, Misusef("%v", err)
	}
	if len(names) != len(lengths) || len(names) == 0 {
		return nil, Misusef("%d names and %d lengths of parameters", len(names), len(lengths))
	}
	var err error
	if s.chain, s.code, err = chainOf(s.cfg); err != nil {
		return nil, err
	}
	order := make([]int, len(names))
	for i, n := range lengths {
		if n < 1 {
			return nil, Misusef("parameter %q has %d values", names[i], n)
		}
		order[i] = i
		s.params = append(s.params, compress.Param{Name: names[i], Hi: n})
	}
	if err := s.Arrange(order, []int{len(order)}); err != nil {
		return nil, err
	}
	s.reducer, err = exchange.NewGroupReducer(g, exchange.Config{})
	return s, err
}

// chainOf is a strategy's chain and the code of the sent values; nil: uncompressed.
func chainOf(cfg distopt.Config) (chain *compress.Chain, code compress.Quantiser, err error) {
	if cfg.Strategy == distopt.PartialUpdate || cfg.Strategy == distopt.TopK {
		return nil, nil, Misusef("strategy %s is of whole models, not of buckets: choose another", cfg.Strategy)
	}
	if chain, err = cfg.NewChain(); err == nil && chain == nil {
		chain, err = compress.NewChain()
	}
	if err != nil {
		return nil, nil, Misusef("%v", err)
	}
	if q := chain.Quantiser(); q.Code() != compress.CodeFP32 {
		code = q
	}
	return chain, code, nil
}

// localOf is the chain's part ahead of the exchange; the exchange divides, and casts to 16 bits.
func localOf(chain *compress.Chain, code compress.Quantiser) *compress.Chain {
	if code != nil && !chain.Sparse() && (code.Code() == compress.CodeFP16 || code.Code() == compress.CodeBF16) {
		return chain.Uncoded()
	}
	return chain
}

// Arrange sets the buckets' parameters, between exchanges: order is a permutation of the
// parameters, bucket after bucket, and ends has the end of each bucket in order. Residuals move
// with their parameters; the next selections are exact. Arrange ends the tuning by Tune: the
// buckets are then the caller's.
func (s *Strategy) Arrange(order, ends []int) error {
	s.steps.Lock()
	defer s.steps.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tuned = nil
	return s.arrange(order, ends)
}

func (s *Strategy) arrange(order, ends []int) error {
	if err := s.landed(); err != nil {
		return err
	}
	params, at, err := s.lay(order)
	if err != nil {
		return err
	}
	buckets, err := cut(params, order, ends)
	if err != nil {
		return err
	}
	inOrder := make([]compress.Param, len(order))
	for i, p := range order {
		inOrder[i] = params[p]
	}
	local, err := s.bind(inOrder, at)
	if err == nil {
		err = local.SetGroups(buckets)
	}
	if err != nil {
		return Misusef("%v", err)
	}
	for p := range params {
		if to := local.Residual(params[p].Lo, params[p].Hi); to != nil && s.local != nil {
			copy(to, s.local.Residual(s.params[p].Lo, s.params[p].Hi))
		}
	}
	s.local, s.params = local, params
	s.use(buckets)
	return nil
}

func (s *Strategy) use(buckets []compress.Bucket) {
	s.buckets = buckets
	s.ops, s.sparse, s.flying = make([]exchange.Request, len(buckets)), make([]compress.Sparse, len(buckets)), make([]bool, len(buckets))
}

// bind is the local chain with residuals for parameters in an arena of n values.
func (s *Strategy) bind(params []compress.Param, n int) (*compress.Compressor, error) {
	chain := localOf(s.chain, s.code)
	if !s.owes {
		return chain.Bind(params, n, nil)
	}
	everything, err := compress.NewChain(compress.TopK{Ratio: 1}) // a chain with residuals
	if err != nil {
		return nil, err
	}
	local, err := everything.Bind(params, n, nil)
	if err == nil {
		err = local.Change(chain)
	}
	return local, err
}

// landed refuses changes during an exchange. s.mu is held.
func (s *Strategy) landed() error {
	if bucket := slices.Index(s.flying, true); bucket >= 0 {
		return exchanging(bucket)
	}
	return nil
}

func exchanging(bucket int) error {
	return Misusef("bucket %d is being exchanged already: wait first", bucket)
}

// lay places each parameter, by number, and returns the last one's end.
func (s *Strategy) lay(order []int) (params []compress.Param, end int, err error) {
	params = make([]compress.Param, len(s.params))
	for _, p := range order {
		if p < 0 || p >= len(params) || params[p].Name != "" {
			return nil, 0, Misusef("parameter %d is none of %d, or is there twice", p, len(params))
		}
		old := s.params[p]
		params[p] = compress.Param{Name: old.Name, Lo: end, Hi: end + old.Hi - old.Lo}
		end = params[p].Hi
	}
	if len(order) != len(params) {
		return nil, 0, Misusef("%d of %d parameters are in buckets", len(order), len(params))
	}
	return params, end, nil
}

func cut(params []compress.Param, order, ends []int) (buckets []compress.Bucket, err error) {
	from := 0
	for _, end := range ends {
		if end <= from || end > len(order) {
			return nil, Misusef("a bucket ends at %d of %d parameters, the one before at %d", end, len(order), from)
		}
		g := compress.Bucket{Lo: params[order[from]].Lo, Hi: params[order[end-1]].Hi}
		buckets = append(buckets, g)
		from = end
	}
	if from != len(order) {
		return nil, Misusef("the buckets end at %d of %d parameters", from, len(order))
	}
	return buckets, nil
}

// Start begins to replace a bucket's gradients by the mean over the ranks, for the sent part. The
// result is ready, and grads free for use, after finish, called once; until then the bucket cannot
// be started again.
func (s *Strategy) Start(bucket int, grads []float32) (finish func() error, err error) {
	op, err := s.begin(bucket, grads)
	if err != nil {
		return nil, err
	}
	return func() error { return s.finish(op) }, nil
}

// finish waits for an exchange, keeps the excluded entries, and divides the sum. If the exchange
// failed, the selected entries return to the residual. The wait for the reducer is without the
// lock, so that other buckets can begin.
func (s *Strategy) finish(op *exchange.Request) error {
	_, err := s.reducer.Wait(op)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flying[op.Bucket.Number] = false
	if err != nil {
		if op.Sparse != nil {
			op.Sparse.AddTo(s.local.Residual(op.Lo, op.Lo+len(op.X)))
		}
		return err
	}
	if op.Sent.Excluded > 0 {
		op.Sparse.AddTo(s.local.Residual(op.Lo, op.Lo+len(op.X)))
	}
	for _, l := range op.SumError {
		s.local.Keep(op.Lo+l.At, l.Values)
	}
	simd.Host().Scale(op.X, 1/float32(s.group.Size()))
	if s.tuned != nil {
		s.tuned.exchanged(op.Sent)
	}
	return nil
}

// begin selects, encodes, and starts the exchange. A selecting strategy adds the residual to the
// gradients and keeps the unsent rest; a rounding strategy rounds gradients in place. The exchange
// reads and writes the gradients from then on.
func (s *Strategy) begin(bucket int, grads []float32) (*exchange.Request, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if bucket < 0 || bucket >= len(s.buckets) {
		return nil, Misusef("bucket %d is none of %d", bucket, len(s.buckets))
	}
	if s.flying[bucket] {
		return nil, exchanging(bucket)
	}
	b := s.buckets[bucket]
	if len(grads) != b.Hi-b.Lo {
		return nil, Misusef("%d gradients of bucket %d, which has %d", len(grads), bucket, b.Hi-b.Lo)
	}
	op, start := &s.ops[bucket], time.Now()
	op.X, op.Lo, op.Code, op.Sparse = grads, b.Lo, s.code, nil
	op.Bucket = exchange.BucketInfo{Number: bucket}
	var err error
	if s.chain.Sparse() {
		op.Sparse = &s.sparse[bucket]
		err = s.local.Select(op.Sparse, bucket, grads)
	} else if s.owes || !s.local.Chain().Identity() {
		err = s.local.Round(bucket, grads)
	}
	if err != nil {
		return nil, fmt.Errorf("compressing bucket %d: %w", bucket, err)
	}
	s.flying[bucket] = true
	s.reducer.Start(op)
	if s.tuned != nil {
		s.tuned.compressed(start)
	}
	return op, nil
}

// Residual is a parameter's residual by number, nil for a strategy without residuals, for use
// between exchanges.
func (s *Strategy) Residual(param int) ([]float32, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if param < 0 || param >= len(s.params) {
		return nil, Misusef("parameter %d is none of %d", param, len(s.params))
	}
	if err := s.landed(); err != nil {
		return nil, err
	}
	p := s.params[param]
	return s.local.Residual(p.Lo, p.Hi), nil
}

// Close ends the strategy; the group stays open.
func (s *Strategy) Close() error { return s.reducer.Close() }
