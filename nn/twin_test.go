package nn

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
	if act == ReLU {
		return max(v, 0)
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
			return x[((s*in+c)*h+iy)*w+ix]
		}
		for s := range n {
			for o := range out {
				for p := range oh * ow {
					v := 0.0
					if b != nil {
						v = b[o]
					}
					for c := range in {
						for q := range k * k {
							v += at(s, c, p/ow*stride+q/k-pad, p%ow*stride+q%k-pad) * weights[((o*in+c)*k+q/k)*k+q%k]
						}
					}
					y = append(y, twinAct(act, v))
				}
			}
		}
		return y
	}
}

func twinPool(planes, h, w int, act Activation) twin {
	return func(x, _, _ []float64) []float64 {
		var y []float64
		for p := range planes {
			for r := range h / 2 {
				for c := range w / 2 {
					at := (p*h+2*r)*w + 2*c
					y = append(y, twinAct(act, max(x[at], x[at+1], x[at+w], x[at+w+1])))
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
