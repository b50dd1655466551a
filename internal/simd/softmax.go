package simd

import "math"

// sumFloats is the number of exponentials summed in float32, in 16 lanes, before the addition to a
// sum in float64.
const sumFloats = 1024

// Max returns the largest of x, or -Inf. NaN is ignored.
func (k *Kernels) Max(x []float32) float32 {
	most := float32(math.Inf(-1))
	for k.act.maximum != nil && len(x) >= 16 {
		n := min(len(x), callFloats) &^ 15
		if m := k.act.maximum(&x[0], n); m > most {
			most = m
		}
		x = x[n:]
	}
	for _, v := range x {
		if v > most {
			most = v
		}
	}
	return most
}

// ExpSum returns the sum of exp(x[i]-shift), NaN if any is NaN. Whole vectors of 16 are summed in
// lanes, in float32, and the lanes pairwise, 1,024 values at a time; these sums and the remaining
// values are added in float64.
func (k *Kernels) ExpSum(x []float32, shift float32) float64 {
	sum := 0.0
	for len(x) >= 16 {
		n := min(len(x), sumFloats) &^ 15
		if k.act.expSum != nil {
			sum += float64(k.act.expSum(&x[0], n, shift))
		} else {
			sum += float64(expSum(x[:n], shift))
		}
		x = x[n:]
	}
	for _, v := range x {
		sum += float64(exp(v - shift))
	}
	return sum
}

func expSum(x []float32, shift float32) float32 {
	var lanes [16]float32
	for ; len(x) >= 16; x = x[16:] {
		for i, v := range x[:16] {
			lanes[i] += exp(v - shift)
		}
	}
	for half := 8; half > 0; half /= 2 {
		for i := range half {
			lanes[i] += lanes[i+half]
		}
	}
	return lanes[0]
}

// ExpScale computes dst[i] = exp(x[i]-shift)*scale. dst may be x.
func (k *Kernels) ExpScale(dst, x []float32, shift, scale float32) {
	if len(dst) != len(x) {
		sameLength("ExpScale", len(dst), len(x))
	}
	for n := k.bulk(len(dst)); n > 0; n = k.bulk(len(dst)) {
		k.act.expScale(&dst[0], &x[0], n, shift, scale)
		dst, x = dst[n:], x[n:]
	}
	for i, v := range x {
		dst[i] = exp(v-shift) * scale
	}
}

// Softmax writes exp(x[i]-m)/Σexp(x[j]-m) to dst, with m the largest of x, and
// returns m and the sum. dst may be x.
func (k *Kernels) Softmax(dst, x []float32) (most float32, sum float64) {
	most = k.Max(x)
	sum = k.ExpSum(x, most)
	k.ExpScale(dst, x, most, float32(1/sum))
	return most, sum
}

// SoftmaxGrad overwrites the gradient of softmax probabilities with the gradient of the scores
// before their multiplication by scale:
//
//	dp[i] = p[i]*(dp[i]-dot)*scale
//
// with dot the sum of p[i]*dp[i].
func (k *Kernels) SoftmaxGrad(dp, p []float32, dot, scale float32) {
	if len(dp) != len(p) {
		sameLength("SoftmaxGrad", len(dp), len(p))
	}
	for n := k.bulk(len(dp)); n > 0; n = k.bulk(len(dp)) {
		k.seq.softmaxGrad(&dp[0], &p[0], n, dot, scale)
		dp, p = dp[n:], p[n:]
	}
	for i, v := range p {
		dp[i] = float32(v*(dp[i]-dot)) * scale
	}
}
