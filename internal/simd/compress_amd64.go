package simd

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
