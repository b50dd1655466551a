package nn

import "math"

// The naive twins: the definition of each operation, in float64, one loop per
// index.

type twin func(x, w, b []float64) []float64

func twinDense(n, in, out int, act Activation) twin {
	return func(x, w, b []float64) []float64 {
		y := make([]float64, n*out)
		for r := range n {
			for o := range out {
				for i := range in {
					y[r*out+o] += x[r*in+i] * w[o*in+i]
				}
				if b != nil {
					y[r*out+o] += b[o]
				}
				y[r*out+o] = twinAct(act, y[r*out+o])
			}
		}
		return y
	}
}

func twinAct(act Activation, v float64) float64 {
	switch act {
	case ReLU:
		return max(v, 0)
	case Tanh:
		return math.Tanh(v)
	case Sigmoid:
		return 1 / (1 + math.Exp(-v))
	case GELU:
		return v / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(v+0.044715*v*v*v)))
	}
	return v
}

func twinConv(n, in, h, w, out, k, stride, pad int, act Activation) twin {
	oh, ow := (h+2*pad-k)/stride+1, (w+2*pad-k)/stride+1
	return func(x, weights, b []float64) []float64 {
		var y []float64
		at := func(s, c, iy, ix int) float64 {
			if iy < 0 || iy >= h || ix < 0 || ix >= w {
				return 0
			}
			return x[((s*h+iy)*w+ix)*in+c]
		}
		for s := range n {
			for p := range oh * ow {
				for o := range out {
					v := 0.0
					if b != nil {
						v = b[o]
					}
					for c := range in {
						for q := range k * k {
							v += at(s, c, p/ow*stride+q/k-pad, p%ow*stride+q%k-pad) * weights[(q*in+c)*out+o]
						}
					}
					y = append(y, twinAct(act, v))
				}
			}
		}
		return y
	}
}

func twinPool(n, h, w, c int, act Activation) twin {
	return func(x, _, _ []float64) []float64 {
		var y []float64
		for s := range n {
			for p := range (h / 2) * (w / 2) {
				for l := range c {
					at := ((s*h+p/(w/2)*2)*w+p%(w/2)*2)*c + l
					y = append(y, twinAct(act, max(x[at], x[at+c], x[at+w*c], x[at+w*c+c])))
				}
			}
		}
		return y
	}
}

// gradient is d loss / d x of a tensor that no operation made; nil when the loss
// did not depend on it.
func (x *Tensor) gradient() []float32 {
	if !x.has {
		return nil
	}
	return x.grad
}
