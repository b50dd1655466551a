package simd

var (
	rows512 = rowsLevel{width: 16, copy: copyRows512, add: addToRows512, sum: sumRows512}
	rows2   = rowsLevel{width: 8, copy: copyRows2, add: addToRows2, sum: sumRows2}
)
