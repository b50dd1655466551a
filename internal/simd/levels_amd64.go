package simd

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// hostLevels returns the assembly levels supported by processor and system, best first.
func hostLevels() []*Kernels {
	var out []*Kernels
	avx2 := cpu.X86.HasAVX2 && cpu.X86.HasFMA && cpu.X86.HasF16C && cpu.X86.HasBMI1 && cpu.X86.HasBMI2
	if avx2 && cpu.X86.HasAVX512F && cpu.X86.HasAVX512VL && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512DQ {
		out = append(out, kernels512)
	}
	if avx2 {
		out = append(out, kernels2)
	}
	return out
}

// vectorBF16 returns AVX-512 with products of bfloat16 operands, or nil.
func vectorBF16() *Kernels {
	if levels := hostLevels(); len(levels) == 0 || levels[0] != kernels512 || !cpu.X86.HasAVX512BF16 {
		return nil
	}
	k := *kernels512
	k.name = "avx512-bf16"
	k.gemm.wide, k.gemm.narrow, k.gemm.fma, k.gemm.lanes = wideBrain512, narrowBrain512, fmaBrain512, 32
	k.winograd.by[1] = [5]winogradKernel{winogradBrainInput512, nil, winogradBrainOutputGrad512, winogradBrainWeights512, winogradBrainWeightsGrad512}
	k.winograd.output[1] = winogradBrainOutput512
	k.gemm.pair = &pairLevel{rows: pairRows, between: pairBetween, columns: pairColumns}
	return &k
}

var kernels512 = &Kernels{
	name:     "avx512",
	winograd: winograd512,
	rows:     rows512,
	act:      activation512,
	norm:     norm512,
	window:   window512,
	reduce:   reduceAVX512,
	compress: compress512,
	half:     half512,
	layer:    layerLevel{apply: layerNorm512, grad: layerNormGrad512},
	gemm: gemmLevel{
		mr: 14, nr: 32,
		wide: wide512, narrow: narrow512,
		masked: true, chained: true,
		fma: fma512, lanes: 16,
		transpose8:  transpose8,
		transpose16: transpose16,
		copyTiles:   copyTiles512,
	},
	vec: vectorLevel{
		width: 16,
		add:   add512, addTo: addTo512, scale: scale512,
		relu: relu512, reluGrad: reluGrad512,
		sum: sum512, sumSquares: sumSquares512,
	},
	seq: seqLevel{dropout: dropout512, lstm: lstm512, lstmGrad: lstmGrad512, lookup: lookup512, bags: bags512, softmaxGrad: softmaxGrad512},
	opt: optim512Level,
}

var kernels2 = &Kernels{
	name:     "avx2",
	winograd: winograd2,
	rows:     rows2,
	act:      activation2,
	norm:     norm2,
	window:   window2,
	reduce:   reduceAVX2,
	compress: compress2,
	half:     half2,
	layer:    layerLevel{apply: layerNorm2, grad: layerNormGrad2},
	gemm: gemmLevel{
		mr: 6, nr: 16,
		wide: wide2, narrow: narrow2,
		chained: true,
		fma:     fma2, lanes: 8,
		transpose8: transpose8,
		copyTiles:  copyTiles2,
	},
	vec: vectorLevel{
		width: 8,
		add:   add2, addTo: addTo2, scale: scale2,
		relu: relu2, reluGrad: reluGrad2,
		sum: sum2, sumSquares: sumSquares2,
	},
	seq: seqLevel{dropout: dropout2, lstm: lstm2, lstmGrad: lstmGrad2, lookup: lookup2, bags: bags2, softmaxGrad: softmaxGrad2},
	opt: optim2Level,
}

var window512 = windowLevel{
	max: maxWindow512, maxAdd: maxWindowAdd512, maxPut: maxWindowPut512,
	avg: avgWindow512, avgAdd: avgWindowAdd512,
}

var norm512 = normLevel{
	normSumsLevel: normSumsLevel{sums: normSums512, gradSums: normGradSums512, gradSumsAdd: normGradSumsAdd512},
	held:          &normSumsLevel{sums: normSums64_512, gradSums: normGradSums64_512, gradSumsAdd: normGradSumsAdd64_512},
	apply:         normApply512, applyAdd: normApplyAdd512,
	grad: normGrad512, flush: flush512,
}

var activation512 = activationLevel{
	exp:         exp512,
	sigmoid:     sigmoid512,
	tanh:        tanh512,
	gelu:        gelu512,
	sigmoidGrad: sigmoidGrad512,
	tanhGrad:    tanhGrad512,
	geluGrad:    geluGrad512,
	maximum:     maximum512,
	expSum:      expSum512,
	expScale:    expScale512,
}

var window2 = windowLevel{
	max: maxWindow2, maxAdd: maxWindowAdd2, maxPut: maxWindowPut2,
	avg: avgWindow2, avgAdd: avgWindowAdd2,
}

var norm2 = normLevel{
	normSumsLevel: normSumsLevel{sums: normSums2, gradSums: normGradSums2, gradSumsAdd: normGradSumsAdd2},
	apply:         normApply2, applyAdd: normApplyAdd2,
	grad: normGrad2, flush: flush2,
}

var activation2 = activationLevel{
	exp:         exp2,
	sigmoid:     sigmoid2,
	tanh:        tanh2,
	gelu:        gelu2,
	sigmoidGrad: sigmoidGrad2,
	tanhGrad:    tanhGrad2,
	geluGrad:    geluGrad2,
	maximum:     maximum2,
	expSum:      expSum2,
	expScale:    expScale2,
}

// Checks of gen's offsets of a tile's fields: a difference would be an index outside.
var (
	_ = [1]byte{}[unsafe.Offsetof(tile{}.ars)-24]
	_ = [1]byte{}[unsafe.Offsetof(tile{}.b)-40]
	_ = [1]byte{}[unsafe.Offsetof(tile{}.c)-80]
	_ = [1]byte{}[unsafe.Offsetof(tile{}.kc)-112]
	_ = [1]byte{}[unsafe.Offsetof(tile{}.rowBias)-128]
	_ = [1]byte{}[unsafe.Offsetof(tile{}.accumulate)-176]
	_ = [1]byte{}[unsafe.Offsetof(tile{}.mask)-192]
	_ = [1]byte{}[unsafe.Offsetof(tile{}.pack)-200]
	_ = [1]byte{}[unsafe.Offsetof(tile{}.aStep)-232]
	_ = [1]byte{}[unsafe.Offsetof(tile{}.columns)-248]
	_ = [1]byte{}[unsafe.Offsetof(tile{}.amx)-256]
	_ = [1]byte{}[unsafe.Offsetof(amxTile{}.rest)-16]
	_ = [1]byte{}[unsafe.Offsetof(amxTile{}.sums)-24]
	_ = [1]byte{}[unsafe.Offsetof(amxTile{}.config)-32]
)

var (
	rows512 = rowsLevel{width: 16, copy: copyRows512, add: addToRows512, sum: sumRows512}
	rows2   = rowsLevel{width: 8, copy: copyRows2, add: addToRows2, sum: sumRows2}
)

var optim512Level = optimLevel{
	sgd: sgdPlain512, momentum: momentum512, adagrad: adagrad512, adamW: adamW512,
	sgdRows: sgdRows512, adagradRows: adagradRows512, adamRows: adamRows512,
	ftrl: ftrl512, momentumRows: momentumRows512, adamOwnRows: adamOwnRows512,
	rowWiseAdagrad: rowWiseAdagrad512, ftrlRows: ftrlRows512, clampRows: clampRows512,
}

var optim2Level = optimLevel{
	sgd: sgdPlain2, momentum: momentum2, adagrad: adagrad2, adamW: adamW2,
	sgdRows: sgdRows2, adagradRows: adagradRows2, adamRows: adamRows2,
	ftrl: ftrl2, momentumRows: momentumRows2, adamOwnRows: adamOwnRows2,
	rowWiseAdagrad: rowWiseAdagrad2, ftrlRows: ftrlRows2, clampRows: clampRows2,
}

var compress512 = compressLevel{
	takeAdded:    [2]func(index *int32, value, x, grad *float32, n int, least uint32, base int32) int{takeAdded512, takeAddedMany512},
	take:         [2]func(index *int32, value, x *float32, n int, least uint32, base int32) int{take512, takeMany512},
	addRuns:      addRuns512,
	countAtLeast: countAtLeast512,
	maxMagnitude: maxMagnitude512, sumMagnitudes: sumMagnitudes512, subtract: subtract512,
	quantiseBlocks: quantiseBlocks512, dequantiseBlocks: dequantiseBlocks512,
	quantise: quantise512, dequantise: dequantise512, toSigns: toSigns512, fromSigns: fromSigns512,
	gaps:  gapLevel{bits: gapBits2, pack: packGaps2, unpack: unpackGaps2, fromBitmap: fromBitmap512},
	sieve: sieveLevel{minAtLeast: minAtLeast512, below: below512, separate: separate512},
}

var compress2 = compressLevel{
	takeAdded:    [2]func(index *int32, value, x, grad *float32, n int, least uint32, base int32) int{takeAdded2, takeAddedMany2},
	take:         [2]func(index *int32, value, x *float32, n int, least uint32, base int32) int{take2, takeMany2},
	addRuns:      addRuns2,
	countAtLeast: countAtLeast2,
	maxMagnitude: maxMagnitude2, sumMagnitudes: sumMagnitudes2, subtract: subtract2,
	quantiseBlocks: quantiseBlocks2, dequantiseBlocks: dequantiseBlocks2,
	quantise: quantise2, dequantise: dequantise2, toSigns: toSigns2, fromSigns: fromSigns2,
	gaps:  gapLevel{bits: gapBits2, pack: packGaps2, unpack: unpackGaps2, fromBitmap: fromBitmap2},
	sieve: sieveLevel{minAtLeast: minAtLeast2, below: below2, separate: separate2},
}

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

// reduceAll reduces values at to at+n of the operands, with n at least 1, without checks.
func (l reduceLevel) reduceAll(op Reduction, dst, src [][]float32, at, n int, scale float32) {
	left := len(dst[0]) - at
	if l == reduceAVX512 {
		reduceAll512(int(op), &dst[0], len(dst), &src[0], len(src), 4*at, n, left, scale, &rowMasks[16-n%16])
	} else {
		reduceAll2(int(op), &dst[0], len(dst), &src[0], len(src), 4*at, n, left, scale, &rowMasks[16-n%8])
	}
}

// reduceAll16 is reduceAll of a 16-bit format. AVX2 requires whole vectors.
func (l reduceLevel) reduceAll16(f format, op Reduction, dst, src [][]uint16, at, n int, scale float32) {
	left, mask := len(dst[0])-at, &rowMasks[16-n%16]
	switch {
	case l == reduceAVX512 && f == half:
		reduceAllHalf512(int(op), &dst[0], len(dst), &src[0], len(src), 2*at, n, left, scale, mask)
	case l == reduceAVX512:
		reduceAllBrain512(int(op), &dst[0], len(dst), &src[0], len(src), 2*at, n, left, scale, mask)
	case f == half:
		reduceAllHalf2(int(op), &dst[0], len(dst), &src[0], len(src), 2*at, n, left, scale, nil)
	default:
		reduceAllBrain2(int(op), &dst[0], len(dst), &src[0], len(src), 2*at, n, left, scale, nil)
	}
}

var half512 = halfLevel{fromHalf: fromHalf512, fromBrain: fromBrain512, toHalf: toHalf512, toBrain: toBrain512}

var half2 = halfLevel{fromHalf: fromHalf2, fromBrain: fromBrain2, toHalf: toHalf2, toBrain: toBrain2}
