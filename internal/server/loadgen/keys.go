package loadgen

import (
	"math/rand/v2"
	"time"

	"github.com/ringo-ml/ringo/internal/rowinit"
)

// Key is the key of a rank: different for different ranks, and scrambled, so that keys
// that are often asked for are no neighbours in any order.
func Key(rank uint64) uint64 { return rowinit.Mix(rank + 1) }

// pool is batches of keys, none twice in a batch, that were drawn beforehand: what
// draws them takes longer than what asks for them.
type pool struct {
	size int
	keys []uint64
	next int // batch
}

// poolKeys is how many keys the pools of a measurement have together: what the fastest
// servers take in its time, but no more than are drawn in about a second. Then batches
// come again.
func (d Dist) poolKeys(time time.Duration) int {
	const perSecond, uniform, zipf = 16 << 20, 8 << 20, 2 << 20
	most := uniform
	if d.Skew > 0 {
		most = zipf
	}
	return int(min(float64(most), perSecond*time.Seconds()))
}

// draw fills the pool anew with batches of so many keys of the first n ranks, about
// keys of them together, at least one batch.
func (p *pool) draw(n uint64, size, keys int, d Dist, seen *set, r *rand.Rand) error {
	count := max(1, keys/size)
	p.size, p.next = size, 0
	p.keys = p.keys[:0]
	next, err := d.ranks(n, r)
	if err != nil {
		return err
	}
	for range count {
		seen.reset(size)
		for have := 0; have < size; {
			if key := Key(next()); seen.add(key) {
				p.keys = append(p.keys, key)
				have++
			}
		}
	}
	return nil
}

// batch is a batch by number.
func (p *pool) batch(i int) []uint64 { return p.keys[i*p.size:][:p.size] }

// batches is how many there are.
func (p *pool) batches() int { return len(p.keys) / p.size }

// take returns the number of the next batch, after the last one the first.
func (p *pool) take() int {
	i := p.next
	p.next = (i + 1) % p.batches()
	return i
}

// set is a set of keys that is emptied in no time: an entry counts if it has the
// present round.
type set struct {
	keys   []uint64
	rounds []uint32
	round  uint32
}

// reset empties the set and makes room for so many keys.
func (s *set) reset(keys int) {
	size := 16
	for size < 2*keys {
		size *= 2
	}
	if s.round++; len(s.keys) != size || s.round == 0 {
		s.keys, s.rounds, s.round = make([]uint64, size), make([]uint32, size), 1
	}
}

// add adds a key and tells whether it is new. Keys are scrambled: they are their own
// hashes.
func (s *set) add(key uint64) bool {
	mask := uint64(len(s.keys) - 1)
	for at := key & mask; ; at = (at + 1) & mask {
		if s.rounds[at] != s.round {
			s.keys[at], s.rounds[at] = key, s.round
			return true
		}
		if s.keys[at] == key {
			return false
		}
	}
}
