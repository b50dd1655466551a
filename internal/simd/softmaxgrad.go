package simd

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
