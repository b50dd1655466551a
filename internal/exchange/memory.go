package exchange

import "github.com/ringo-ml/ringo/compress"

// memory is what exchanges work in. It grows to what the largest needs.
type memory struct {
	frames     []frame // what each rank has
	words      []int64 // the same as it travels
	localWords []int64 // of this rank
	counts     []int   // of bytes, by rank: what is received
	outs       []int   // likewise, what is sent
	out, in    []byte
	parts      []compress.Sparse // decoded, by rank
	vectors    []*compress.Sparse
	from       []int // how far each of vectors has been added
	coder      *compress.Coder
	floats     *compress.Coder // of sums: float32
	picker     *compress.Workspace
	total      compress.Sparse // of this rank's part of a split

	// of split
	piece compress.Sparse
	index []int32
	cuts  []int
	cells []int32

	// of tree
	outFrame, inFrame []int32
	tree              [2]compress.Sparse
	theirs            compress.Sparse

	// of chunks
	acc, tmp []float32
}
