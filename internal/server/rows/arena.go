package rows

import (
	"fmt"
	"sync"
)

// arena is the memory of all segments, in chunks. Returned chunks are reused first.
type arena struct {
	lines *array[line]

	mu       sync.Mutex
	used     int    // chunks ever taken; number 0 stays empty
	idle     int    // chunks in the free list
	free     uint32 // head of the free list, 0 for none; a chunk's first key is the next one
	rebuilds int
}

// take returns chunks of empty lines.
func (a *arena) take(n int) ([]uint32, error) {
	out := make([]uint32, n)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.lines.grow((a.used + max(0, n-a.idle)) * chunkLines); err != nil {
		return nil, fmt.Errorf("the index cannot grow: %w", err)
	}
	for i := range out {
		if a.free == 0 {
			out[i] = uint32(a.used)
			a.used++
			continue
		}
		first := &a.lines.item(a.free << chunkShift)[0]
		out[i], a.free = a.free, uint32(first.keys[0])
		first.keys[0] = 0
		a.idle--
	}
	a.rebuilds++
	return out, nil
}

func (a *arena) give(chunks []uint32) {
	for _, c := range chunks {
		if c == 0 {
			return // noChunk
		}
		for l := range uint32(chunkLines) {
			a.lines.item(c<<chunkShift | l)[0] = line{}
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range chunks {
		a.lines.item(c << chunkShift)[0].keys[0] = uint64(a.free)
		a.free = c
	}
	a.idle += len(chunks)
}

// chunks returns the number of chunks that were ever used, the number of those that are unused now,
// and the number of rebuilds.
func (a *arena) chunks() (used, idle, rebuilds int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.used, a.idle, a.rebuilds
}
