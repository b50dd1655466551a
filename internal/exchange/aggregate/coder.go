package aggregate

import (
	"slices"

	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/simd"
)

// coders are the payload coders of one goroutine, by code.
type coders struct {
	codes  []compress.Quantiser
	coders []*compress.Coder
}

// of returns the coder of a code. It allocates when it first meets one.
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

// dense says whether a payload lists all values.
func dense(payload []byte) bool { return len(payload) > 1 && payload[1] == 0 }

// buffer is memory that grows, aligned for float32.
type buffer struct{ floats []float32 }

// values returns n values; what they hold is unspecified.
func (b *buffer) values(n int) []float32 {
	b.floats = bytesview.Sized(b.floats, n)
	return b.floats
}

// bytes returns n bytes of the same memory.
func (b *buffer) bytes(n int) []byte { return bytesview.Bytes(b.values((n + 3) / 4))[:n] }

// roundHalves stores x in a 16-bit code as it is: what is too large becomes
// infinite, which whoever decodes it will see.
func roundHalves(k *simd.Kernels, code byte, dst []byte, x []float32) {
	to := bytesview.As[uint16](dst)
	if code == compress.CodeBF16 {
		k.ToBrain(to, x)
		return
	}
	k.ToHalf(to, x)
}

// infinite returns the first place of a value of x that is no finite number, -1
// if all are.
func infinite(k *simd.Kernels, x []float32) int {
	if k.MaxMagnitude(x) < simd.InfMagnitude {
		return -1
	}
	return slices.IndexFunc(x, func(v float32) bool { return simd.Magnitude(v) >= simd.InfMagnitude })
}
