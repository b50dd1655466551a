package exchange

import "github.com/ringo-ml/ringo/compress"

// memory is the working memory of exchanges. It grows to the largest.
type memory struct {
	frames     []frame // contribution of each rank
	words      []int64 // frames as sent
	localWords []int64 // this rank's frame
	counts     []int   // bytes to receive, by rank
	outs       []int   // bytes to send, by rank
	out, in    []byte
	parts      []compress.Sparse // decoded, by rank
	vectors    []*compress.Sparse
	from       []int // progress in each of vectors
	coder      *compress.Coder
	floats     *compress.Coder // float32 sums
	picker     *compress.Workspace
	total      compress.Sparse // this rank's part of a split

	// piece, index, cuts and cells are memory of split.
	piece compress.Sparse
	index []int32
	cuts  []int
	cells []int32

	// outFrame, inFrame, tree and theirs are memory of tree.
	outFrame, inFrame []int32
	tree              [2]compress.Sparse
	theirs            compress.Sparse

	// acc and tmp are memory of chunks.
	acc, tmp []float32
}
