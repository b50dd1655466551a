package simd

// Winograd transforms by m (2, then 4) and operation; WinogradOutput, with a bias, is separate.

var winograd512 = winogradLevel{
	width: 16,
	by: [2][5]winogradKernel{
		{winogradInput2512, nil, winogradOutputGrad2512, winogradWeights2512, winogradWeightsGrad2512},
		{winogradInput4512, nil, winogradOutputGrad4512, winogradWeights4512, winogradWeightsGrad4512},
	},
	output: [2]winogradBiasKernel{winogradOutput2512, winogradOutput4512},
}

var winograd2 = winogradLevel{
	width: 8,
	by: [2][5]winogradKernel{
		{winogradInput22, nil, winogradOutputGrad22, winogradWeights22, winogradWeightsGrad22},
		{winogradInput42, nil, winogradOutputGrad42, winogradWeights42, winogradWeightsGrad42},
	},
	output: [2]winogradBiasKernel{winogradOutput22, winogradOutput42},
}
