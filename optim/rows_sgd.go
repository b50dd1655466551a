package optim

import "github.com/ringo-ml/ringo/internal/simd"

// SGDRows is stochastic gradient descent on rows, without state:
//
//	p = p - LR*gradScale*grad
type SGDRows struct {
	// LR is the learning rate, positive. Callers may change it between updates.
	LR float64
}

// Name returns "sgd".
func (s *SGDRows) Name() string { return "sgd" }

// Validate reports an invalid learning rate.
func (s *SGDRows) Validate() error {
	var f faults
	f.positive("learning rate", s.LR)
	return f.err(s.Name())
}

// SetLR sets LR.
func (s *SGDRows) SetLR(lr float64) {
	checkLR(s.Name(), lr)
	s.LR = lr
}

// CurrentLR returns LR.
func (s *SGDRows) CurrentLR() float64 { return s.LR }

// Parts returns nil.
func (s *SGDRows) Parts(int) []RowPart { return nil }

// UpdateRows applies the rule to rows ids of data. State is ignored.
func (s *SGDRows) UpdateRows(data []float32, _ [][]float32, dim int, ids []int32, grads []float32, gradScale float32) {
	simd.Host().SGDRows(data, ids, grads, dim, float32(s.LR), gradScale)
}
