package simd

var compress512 = compressLevel{
	takeAdded: takeAdded512, take: take512, countAtLeast: countAtLeast512,
	maxMagnitude: maxMagnitude512, sumMagnitudes: sumMagnitudes512, subtract: subtract512,
	quantise: quantise512, dequantise: dequantise512, toSigns: toSigns512, fromSigns: fromSigns512,
}

var compress2 = compressLevel{
	takeAdded: takeAdded2, take: take2, countAtLeast: countAtLeast2,
	maxMagnitude: maxMagnitude2, sumMagnitudes: sumMagnitudes2, subtract: subtract2,
	quantise: quantise2, dequantise: dequantise2, toSigns: toSigns2, fromSigns: fromSigns2,
}
