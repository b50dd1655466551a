package simd

import "fmt"

// lstmFloats is the maximum number of columns of one assembly call: ten exponentials each.
const lstmFloats = 2 << 10

// LSTM is the cell of long short-term memory for n = len(h) columns of one sequence:
// gates[g*gap+j], for g from 0 to 3 and j below n, are the sums of the input gate, the forget gate,
// the candidate and the output gate; LSTM overwrites them with the gates. c0 is the previous cell.
// Every operation is rounded:
//
//	c = f*c0 + i*g;  h = o*tanh(c)
func (k *Kernels) LSTM(h, c, gates []float32, gap int, c0 []float32) {
	n := len(h)
	if len(c) != n || len(c0) != n || gap < n || n > 0 && len(gates) < 3*gap+n {
		unfit("LSTM", len(gates), gap, n, len(c), len(c0))
	}
	for k.seq.lstm != nil && n > 0 {
		m := min(n, lstmFloats)
		k.seq.lstm(&h[0], &c[0], &gates[0], gap, &c0[0], m)
		h, c, gates, c0, n = h[m:], c[m:], gates[m:], c0[m:], n-m
	}
	for j := range h {
		i, f, g, o := sigmoid(gates[j]), sigmoid(gates[gap+j]), tanh(gates[2*gap+j]), sigmoid(gates[3*gap+j])
		gates[j], gates[gap+j], gates[2*gap+j], gates[3*gap+j] = i, f, g, o
		c[j] = float32(f*c0[j]) + float32(i*g)
		h[j] = o * tanh(c[j])
	}
}

// LSTMGrad is the gradient of [Kernels.LSTM], for n = len(dh) columns: it overwrites the gates with
// the gradients of their sums, and dc, the gradient of c from the next step, with c0's. dh is the
// gradient of h.
func (k *Kernels) LSTMGrad(gates []float32, gap int, dc, dh, c, c0 []float32) {
	n := len(dh)
	if len(c) != n || len(c0) != n || len(dc) != n || gap < n || n > 0 && len(gates) < 3*gap+n {
		unfit("LSTMGrad", len(gates), gap, n, len(c), len(c0), len(dc))
	}
	for k.seq.lstmGrad != nil && n > 0 {
		m := min(n, lstmFloats)
		k.seq.lstmGrad(&gates[0], gap, &dc[0], &dh[0], &c[0], &c0[0], m)
		gates, dc, dh, c, c0, n = gates[m:], dc[m:], dh[m:], c[m:], c0[m:], n-m
	}
	for j := range dh {
		i, f, g, o := gates[j], gates[gap+j], gates[2*gap+j], gates[3*gap+j]
		t := tanh(c[j])
		gates[3*gap+j] = float32(dh[j]*t) * sigmoidSlope(o)
		d := dc[j] + float32(float32(dh[j]*o)*(1-float32(t*t)))
		gates[j] = float32(d*g) * sigmoidSlope(i)
		gates[gap+j] = float32(d*c0[j]) * sigmoidSlope(f)
		gates[2*gap+j] = float32(d*i) * (1 - float32(g*g))
		dc[j] = d * f
	}
}

// sigmoidSlope is the derivative of a sigmoid with value y.
func sigmoidSlope(y float32) float32 { return (1 - y) * y }

func unfit(op string, gates, gap, n int, lengths ...int) {
	panic(fmt.Sprintf("simd: %s: %d columns, %d gates that lie %d apart, other operands of %v", op, n, gates, gap, lengths))
}
