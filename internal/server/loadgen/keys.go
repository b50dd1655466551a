package loadgen

import (
	"math/rand/v2"
	"time"

	"github.com/ringo-ml/ringo/internal/rowinit"
)

// Key returns the key of a rank. Keys are distinct and scrambled: frequent ones are not neighbours.
func Key(rank uint64) uint64 { return rowinit.Mix(rank + 1) }

// pool has batches of distinct keys, drawn in advance: drawing is slower than requesting.
type pool struct {
	size int
	keys []uint64
	next int // index of the next batch
}

// poolKeys returns the number of keys that are drawn for a measurement: enough for the fastest
// servers, but at most those of about a second of drawing. Then batches repeat.
func (d Dist) poolKeys(time time.Duration) int {
	const perSecond, uniform, zipf = 16 << 20, 8 << 20, 2 << 20
	most := uniform
	if d.Skew > 0 {
		most = zipf
	}
	return int(min(float64(most), perSecond*time.Seconds()))
}

// draw refills the pool with batches of size keys from the first n ranks, about keys in total.
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

func (p *pool) batch(i int) []uint64 { return p.keys[i*p.size:][:p.size] }

func (p *pool) batches() int { return len(p.keys) / p.size }

// take returns the index of the next batch, cyclically.
func (p *pool) take() int {
	i := p.next
	p.next = (i + 1) % p.batches()
	return i
}

// set is a set of keys with a fast reset: an entry counts if it has the current round.
type set struct {
	keys   []uint64
	rounds []uint32
	round  uint32
}

func (s *set) reset(keys int) {
	size := 16
	for size < 2*keys {
		size *= 2
	}
	if s.round++; len(s.keys) != size || s.round == 0 {
		s.keys, s.rounds, s.round = make([]uint64, size), make([]uint32, size), 1
	}
}

// add adds a key and reports whether it is new. Keys are scrambled, and serve as their own hashes.
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
