package aggregate

import (
	"slices"

	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/simd"
)

type coders struct {
	codes  []compress.Quantiser
	coders []*compress.Coder
}

// of returns the coder of a code. The first call for a code allocates.
func (c *coders) of(q compress.Quantiser) (*compress.Coder, error) {
	i := slices.IndexFunc(c.codes, func(known compress.Quantiser) bool { return known.Code() == q.Code() })
	if i >= 0 {
		return c.coders[i], nil
	}
	chain, err := compress.NewChain(q)
	if err != nil {
		return nil, err
	}
	c.codes, c.coders = append(c.codes, q), append(c.coders, chain.NewCoder())
	return c.coders[len(c.coders)-1], nil
}

// dense reports whether a payload lists all values.
func dense(payload []byte) bool { return len(payload) > 1 && payload[1] == 0 }

// buffer is growing memory, aligned for float32.
type buffer struct{ floats []float32 }

// values returns n values with unspecified contents.
func (b *buffer) values(n int) []float32 {
	b.floats = bytesview.Sized(b.floats, n)
	return b.floats
}

// bytes returns n bytes of the same memory.
func (b *buffer) bytes(n int) []byte { return bytesview.Bytes(b.values((n + 3) / 4))[:n] }

// roundHalves rounds x to a 16-bit code: overflow becomes infinite, which decoders detect.
func roundHalves(k *simd.Kernels, code byte, dst []byte, x []float32) {
	to := bytesview.As[uint16](dst)
	if code == compress.CodeBF16 {
		k.ToBrain(to, x)
		return
	}
	k.ToHalf(to, x)
}

// infinite returns the index of the first value of x that is not finite, or -1.
func infinite(k *simd.Kernels, x []float32) int {
	if k.MaxMagnitude(x) < simd.InfMagnitude {
		return -1
	}
	return slices.IndexFunc(x, func(v float32) bool { return simd.Magnitude(v) >= simd.InfMagnitude })
}
