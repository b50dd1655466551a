package compress

import (
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/internal/simd"
	"github.com/ringo-ml/ringo/optim"
)

// Clip limits every value to [-Max, Max].
type Clip struct {
	// Max is the largest magnitude of a value, above 0.
	Max float64
}

// Name returns a text such as "clip(1)".
func (c Clip) Name() string { return fmt.Sprintf("clip(%v)", c.Max) }

// Validate reports an invalid limit.
func (c Clip) Validate() error { return checkLimit("clip", c.Max) }

func checkLimit(name string, limit float64) error {
	if !(float32(limit) > 0 && limit <= math.MaxFloat32) {
		return fmt.Errorf("%s: %v: want a finite number above 0", name, limit)
	}
	return nil
}

// Bind returns the clipping, which has no state.
func (c Clip) Bind(*Layout) Transformer { return clip(c.Max) }

type clip float32

func (c clip) Apply(_ int, grad []float32) {
	high := float32(c)
	for i, v := range grad {
		if v > high {
			grad[i] = high
		} else if v < -high {
			grad[i] = -high
		}
	}
}

func (clip) Sent(int, []int32)    {}
func (clip) State() []optim.State { return nil }

// Momentum is momentum correction (Deep Gradient Compression, Lin et al., ICLR 2018): selections
// choose from the velocity u = Factor*u + gradient instead of the gradient, and the velocity of a
// sent entry restarts at zero. The wrapped optimizer should then have no momentum.
type Momentum struct {
	// Factor is the share of the velocity left after a step, 0 or more and below 1.
	Factor float64
}

// Name returns a text such as "momentum(0.9)".
func (c Momentum) Name() string { return fmt.Sprintf("momentum(%v)", c.Factor) }

// Validate reports an invalid factor.
func (c Momentum) Validate() error {
	if !(c.Factor >= 0 && c.Factor < 1) {
		return fmt.Errorf("momentum: factor %v: want 0 or more and below 1", c.Factor)
	}
	return nil
}

// Bind creates the velocity, initially zero.
func (c Momentum) Bind(l *Layout) Transformer {
	return &momentum{float32(c.Factor), NewMemory("velocity", l), simd.Host()}
}

type momentum struct {
	factor   float32
	velocity *Memory
	k        *simd.Kernels
}

func (m *momentum) Apply(lo int, grad []float32) {
	u := m.velocity.Range(lo, lo+len(grad))
	for len(grad) > 0 { // both passes over a part in the nearest cache
		n := min(len(grad), takeChunk)
		m.k.Scale(u[:n], m.factor)
		m.k.Add(u[:n], grad[:n])
		copy(grad, u[:n])
		u, grad = u[n:], grad[n:]
	}
}

func (m *momentum) Sent(lo int, index []int32) {
	u := m.velocity.values[lo:]
	for _, i := range index {
		u[i] = 0
	}
}

func (m *momentum) State() []optim.State { return m.velocity.State() }
