package collective

import (
	"fmt"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/bytesview"
)

// SharedOffset says where x lies in the memory that this rank shares with all others of the
// group, in bytes; -1 if it does not lie there, or not all of the group share memory.
// A rank that is told so reads x there, without a copy: see SharedSlice.
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

// SharedSlice is the n values that lie where rank r's SharedOffset said: memory of that rank, to be
// read only. What r wrote before an operation that both ranks have finished is there.
// It stays until r writes again, which r must not do before a further operation, begun
// by this rank when it had read, has ended on r. The error is that r has no memory there.
func SharedSlice[T Number](g *Group, r int, place int64, n int) ([]T, error) {
	var zero T
	size := int64(unsafe.Sizeof(zero))
	if !g.share.whole(g.size) || r < 0 || r >= g.size {
		return nil, fmt.Errorf("collective: rank %d shares no memory with rank %d in this group", r, g.rank)
	}
	arena := g.share.arenas[g.share.shmRanks[r]]
	if place < 0 || place%size != 0 || n < 0 || place > int64(len(arena)) || int64(n) > (int64(len(arena))-place)/size {
		return nil, fmt.Errorf("collective: rank %d says that it has %d values of %d bytes at place %d of an arena of %d bytes, which cannot be: its program or its memory is damaged", r, n, size, place, len(arena))
	}
	return bytesview.As[T](arena[place:][:int64(n)*size]), nil
}
