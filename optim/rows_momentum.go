package optim

import "github.com/ringo-ml/ringo/internal/simd"

// MomentumRows is gradient descent with lazy momentum on rows:
//
//	v = Momentum*v + gradScale*grad
//	p = p - LR*v
//
// Only rows with a gradient move, and a row's velocity decays once for each update of the row, not
// once for each step. A rare row's last gradients therefore count as if from the step before;
// momentum on all rows would have decayed them and moved the row in between. v starts at zero, and
// subnormal values become zero.
type MomentumRows struct {
	// LR is the learning rate, positive. Callers may change it between updates.
	LR float64
	// Momentum is from 0 to below 1.
	Momentum float64
}

// Name returns "momentum".
func (m *MomentumRows) Name() string { return "momentum" }

// Validate reports every invalid setting.
func (m *MomentumRows) Validate() error {
	var f faults
	f.positive("learning rate", m.LR)
	f.fraction("momentum", m.Momentum)
	return f.err(m.Name())
}

// SetLR sets LR.
func (m *MomentumRows) SetLR(lr float64) {
	checkLR(m.Name(), lr)
	m.LR = lr
}

// CurrentLR returns LR.
func (m *MomentumRows) CurrentLR() float64 { return m.LR }

// Parts returns the velocity, dim values for each row.
func (m *MomentumRows) Parts(dim int) []RowPart { return []RowPart{{Name: "velocity", Width: dim}} }

// UpdateRows applies the rule to rows ids of data and of the velocity.
func (m *MomentumRows) UpdateRows(data []float32, state [][]float32, dim int, ids []int32, grads []float32, gradScale float32) {
	simd.Host().MomentumRows(data, state[0], ids, grads, dim, float32(m.LR), float32(m.Momentum), gradScale)
}
