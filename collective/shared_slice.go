package collective

import (
	"fmt"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/bytesview"
)

// SharedOffset returns the byte offset of x in the memory that this rank shares with the whole
// group; -1 if x is elsewhere, or if some ranks share no memory. A rank that receives the offset
// reads x without a copy: see SharedSlice.
func SharedOffset[T Number](g *Group, x []T) int64 {
	if !g.share.whole(g.size) {
		return -1
	}
	if len(x) == 0 {
		return 0
	}
	if off, ok := g.share.windows.Offset(bytesview.Bytes(x)); ok {
		return int64(off)
	}
	return -1
}

// SharedSlice returns n read-only values at rank r's SharedOffset, in the memory of r. This rank
// sees what r wrote before an operation that both have finished. r may write again only after
// another operation, which this rank starts after reading, has ended on r. An error reports that r
// has no memory at the offset.
func SharedSlice[T Number](g *Group, r int, place int64, n int) ([]T, error) {
	var zero T
	size := int64(unsafe.Sizeof(zero))
	if !g.share.whole(g.size) || r < 0 || r >= g.size {
		return nil, fmt.Errorf("collective: rank %d shares no memory with rank %d in this group", r, g.rank)
	}
	arena := g.share.arenas[g.share.shmRanks[r]]
	if place < 0 || place%size != 0 || n < 0 || place > int64(len(arena)) || int64(n) > (int64(len(arena))-place)/size {
		return nil, fmt.Errorf("collective: rank %d: %d values of %d bytes at offset %d exceed its arena of %d bytes: its program or its memory is damaged", r, n, size, place, len(arena))
	}
	return bytesview.As[T](arena[place:][:int64(n)*size]), nil
}
