package codecs

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/simd"
)

// draws are the distributions of gradients.
var draws = map[string]func(r *rand.Rand) float32{
	"normal": func(r *rand.Rand) float32 { return float32(r.NormFloat64()) },
	"heavy": func(r *rand.Rand) float32 {
		x := math.Exp(2 * r.NormFloat64())
		if r.Uint32()&1 == 1 {
			x = -x
		}
		return float32(x)
	},
}

// scene is what codecs work on: gradients of one kind and length.
type scene struct {
	data     string
	n        int // of a group
	groups   int
	noise    []float32 // gradients are windows of it
	window   int
	residual []float32 // of the streaming pass
	passed   int       // group of the last pass
}

// tileLen is the length of the residual that is brought to its steady state and
// then repeated, and shift how many values one gradient is from the next.
const (
	tileLen = 1 << 16
	shift   = 1 << 4
)

func newScene(data string, n, groups int) *scene {
	s := &scene{data: data, n: n, groups: groups, residual: make([]float32, n*groups)}
	r, draw := rand.New(rand.NewPCG(1, uint64(n))), draws[data]
	s.noise = make([]float32, n+max(1<<13, min(n/4, 1<<20)))
	for i := range s.noise {
		s.noise[i] = draw(r)
	}
	for i := range s.residual { // memory is faulted in
		s.residual[i] = 1
	}
	return s
}

// grads returns the next step's gradients.
func (s *scene) grads() []float32 {
	at := s.window
	s.window += shift
	if s.window+s.n > len(s.noise) {
		s.window = 0
	}
	return s.noise[at : at+s.n]
}

// stream is one streaming pass over gradient and residual.
func (s *scene) stream() error {
	s.passed = (s.passed + 1) % s.groups
	simd.Host().Add(s.residual[s.n*s.passed:][:s.n], s.grads())
	return nil
}

// bind makes a compressor for the scene. Of a selection the residual is as after
// many steps of DLGS: those are made with fewer values, which are then repeated.
func (s *scene) bind(ratio float64, stages ...compress.Stage) (*compress.Compressor, error) {
	c, err := boundGroups(s.n, s.groups, stages...)
	if err != nil || !c.Chain().Sparse() {
		return c, err
	}
	tile, err := boundGroups(tileLen, 1, compress.DLGS{Ratio: ratio})
	if err != nil {
		return nil, err
	}
	var sparse compress.Sparse
	r, draw, grads := rand.New(rand.NewPCG(2, 3)), draws[s.data], make([]float32, 4*tileLen)
	for i := range grads {
		grads[i] = draw(r)
	}
	for range min(4000, int(3/ratio)+1) {
		at := r.IntN(len(grads) - tileLen)
		if err := tile.Select(&sparse, 0, grads[at:at+tileLen]); err != nil {
			return nil, err
		}
	}
	kept := c.Residual(0, s.n*s.groups)
	for len(kept) > 0 {
		kept = kept[copy(kept, tile.Residual(0, tileLen)):]
	}
	return c, nil
}

// boundGroups makes a compressor for groups of n values each.
func boundGroups(n, groups int, stages ...compress.Stage) (*compress.Compressor, error) {
	chain, err := compress.NewChain(stages...)
	if err != nil {
		return nil, err
	}
	c, err := chain.Bind([]compress.Param{{Name: "groups", Hi: n * groups}}, n*groups, nil)
	if err != nil {
		return nil, err
	}
	all := make([]compress.Bucket, groups)
	for i := range all {
		all[i] = compress.Bucket{Lo: n * i, Hi: n * (i + 1)}
	}
	return c, c.SetGroups(all)
}

// stage is a stage of a codec.
type stage struct {
	codec, part string
	make        func(s *scene, ratio float64) (*call, error)
}

func (s stage) name() string { return s.codec + "/" + s.part }

func stageNames() (names []string) {
	for _, s := range slices.Concat(sparseStages(), denseStages()) {
		names = append(names, s.name())
	}
	return names
}

// sparseStages are those whose work depends on a ratio.
func sparseStages() []stage {
	selection := func(codec, part string, reuse bool, selector func(s *scene, ratio float64) compress.Selector) stage {
		return stage{codec, part, func(s *scene, ratio float64) (*call, error) {
			return s.selection(ratio, reuse, selector(s, ratio))
		}}
	}
	return []stage{
		selection("dlgs", "reuse", true, func(_ *scene, r float64) compress.Selector {
			return compress.DLGS{Ratio: r, Every: 1 << 20}
		}),
		selection("dlgs", "paper", true, func(_ *scene, r float64) compress.Selector {
			return compress.DLGS{Ratio: r, Every: 1 << 20, Rule: compress.RulePaper}
		}),
		selection("topk", "exact", false, func(_ *scene, r float64) compress.Selector { return compress.TopK{Ratio: r} }),
		selection("sampled", "select", false, func(_ *scene, r float64) compress.Selector { return compress.Sampled{Ratio: r} }),
		selection("gaussiank", "select", false, func(_ *scene, r float64) compress.Selector { return compress.GaussianK{Ratio: r} }),
		{"payload", "encode", (*scene).encoding},
		{"payload", "decode", (*scene).decoding},
		{"payload", "scatter", (*scene).scattering},
	}
}

// selection is a step of a selector; reuse: only those count that do not select
// exactly.
func (s *scene) selection(ratio float64, reuse bool, selector compress.Selector) (*call, error) {
	c, err := s.bind(ratio, selector)
	if err != nil {
		return nil, err
	}
	var sparse compress.Sparse
	at := 0
	call := &call{
		call: func() error {
			at = (at + 1) % s.groups
			return c.Select(&sparse, at, s.grads())
		},
		density: sparse.Density,
		bytes:   func() float64 { return 12 * float64(s.n) },
	}
	if reuse {
		call.other = func() bool { return c.Last(at, 0).Exact }
	}
	for range s.groups { // the first is exact
		if err := call.call(); err != nil {
			return nil, err
		}
	}
	return call, nil
}

// vectorsOf is how many vectors a payload's stages take in turn, so that they
// cannot be learned: fewer of many entries.
func vectorsOf(entries int) int { return max(2, min(64, (1<<20)/max(1, entries))) }

// vectors are what successive steps send, and their payloads.
func (s *scene) vectors(ratio float64) (vectors []*compress.Sparse, payloads [][]byte, c *compress.Compressor, err error) {
	if c, err = s.bind(ratio, compress.DLGS{Ratio: ratio}); err != nil {
		return nil, nil, nil, err
	}
	for range vectorsOf(compress.Entries(ratio, s.n)) {
		v := &compress.Sparse{}
		if err = c.Select(v, 0, s.grads()); err != nil {
			return nil, nil, nil, err
		}
		p, err := c.Encode(nil, v)
		if err != nil {
			return nil, nil, nil, err
		}
		vectors, payloads = append(vectors, v), append(payloads, p)
	}
	return vectors, payloads, c, nil
}

// payloadCall is a call for each of the vectors in turn, which moves bytes for every
// entry.
func payloadCall(vectors []*compress.Sparse, payloads [][]byte, entryBytes float64, payload bool, run func(i int) error) *call {
	entries, size, values, i := 0, 0, 0, -1
	for j, v := range vectors {
		entries, size, values = entries+v.Count(), size+len(payloads[j]), values+v.Len
	}
	one := 1 / float64(len(vectors))
	out := &call{
		call: func() error {
			i = (i + 1) % len(vectors)
			return run(i)
		},
		density:  func() float64 { return float64(entries) / float64(values) },
		bytes:    func() float64 { return entryBytes * float64(entries) * one },
		perEntry: func() float64 { return float64(size) / float64(entries) },
	}
	if payload {
		out.bytes = func() float64 { return (entryBytes*float64(entries) + float64(size)) * one }
	}
	return out
}

func (s *scene) encoding(ratio float64) (*call, error) {
	vectors, payloads, c, err := s.vectors(ratio)
	if err != nil {
		return nil, err
	}
	var p []byte
	return payloadCall(vectors, payloads, 8, true, func(i int) (err error) {
		p, err = c.Encode(p[:0], vectors[i])
		return err
	}), nil
}

func (s *scene) decoding(ratio float64) (*call, error) {
	vectors, payloads, c, err := s.vectors(ratio)
	if err != nil {
		return nil, err
	}
	var v compress.Sparse
	return payloadCall(vectors, payloads, 8, true, func(i int) error { return c.Decode(&v, payloads[i]) }), nil
}

// scattering adds to a dense sum, whose values it reads and writes.
func (s *scene) scattering(ratio float64) (*call, error) {
	vectors, payloads, _, err := s.vectors(ratio)
	if err != nil {
		return nil, err
	}
	sum := make([]float32, s.n)
	return payloadCall(vectors, payloads, 16, false, func(i int) error {
		vectors[i].AddTo(sum)
		return nil
	}), nil
}

// denseStages are those of codes, for all values.
func denseStages() (out []stage) {
	for _, q := range []compress.Quantiser{compress.FP16{}, compress.BF16{}, compress.Int8{}, compress.Sign{}} {
		for _, part := range []string{"round", "encode", "decode"} {
			out = append(out, stage{q.Name(), part, func(s *scene, _ float64) (*call, error) { return s.code(q, part) }})
		}
	}
	return out
}

// code is a stage of a code. What is encoded and decoded fits it, whatever the
// gradients are.
func (s *scene) code(q compress.Quantiser, part string) (*call, error) {
	c, err := s.bind(0, q)
	if err != nil {
		return nil, err
	}
	grads := make([]float32, s.n)
	copy(grads, s.noise)
	for i, v := range grads {
		grads[i] = v / 1024
	}
	p, err := c.EncodeDense(nil, grads)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", q.Name(), err)
	}
	size := float64(len(p))
	out := &call{density: func() float64 { return 1 }, perEntry: func() float64 { return size / float64(s.n) }}
	values := 4.0
	switch part {
	case "round":
		out.call = func() error { return c.Round(0, grads) }
		if values = 8; q.Feedback() {
			values = 16
		}
		out.bytes = func() float64 { return values * float64(s.n) }
		return out, nil
	case "encode":
		out.call = func() (err error) { p, err = c.EncodeDense(p[:0], grads); return err }
	case "decode":
		out.call = func() error { return c.DecodeDense(grads, p) }
	}
	out.bytes = func() float64 { return values*float64(s.n) + size }
	return out, nil
}
