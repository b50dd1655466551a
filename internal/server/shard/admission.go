package shard

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/ringo-ml/ringo/internal/faults"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/rowinit"
	"github.com/ringo-ml/ringo/optim"
)

// Admission decides which keys get a row; with both settings a key must meet both. A pull of any
// other key returns initial weights, and gradients of the key are dropped.
//
// Counts of keys without a row are part of a checkpoint. PullCounted passes counted keys to the
// caller's log, and Recount repeats the counts in the same order, so that a restored table admits
// the same keys.
type Admission struct {
	// Count is the pull that creates a key's row, at most 15. 0 and 1 admit every key.
	Count int
	// Share is the share of admitted keys, chosen by hash, equally on all servers. 0: all.
	Share float64
	// FilterBytes is the size of the filter that counts keys, at least 4096, in addition to
	// MemoryBytes. 0 means 16 MiB. 4 bytes per distinct key until the next Shrink are enough; see
	// filter for the errors.
	FilterBytes int64
}

const defaultFilterBytes = 16 << 20

// Validate returns an error for each setting out of its range.
func (a Admission) Validate() error {
	var bad faults.List
	a.check(bad.If)
	return bad.Err()
}

func (a Admission) check(fault func(bad bool, format string, args ...any)) {
	fault(a.Count < 0 || a.Count > mostCount, "admission after %d pulls: want 0 to %d", a.Count, mostCount)
	fault(!(a.Share >= 0 && a.Share <= 1), "admission of a share of %s: want 0 (all) to 1", quantity.Exact(a.Share))
	fault(a.FilterBytes != 0 && (a.FilterBytes < 4096 || a.FilterBytes > 1<<40), "a filter of %d bytes: want 4096 or more, or 0 for %d", a.FilterBytes, defaultFilterBytes)
}

// chooses reports whether some keys get no row.
func (a Admission) chooses() bool { return a.Count > 1 || a.share() < 1 }

func (a Admission) share() float64 {
	if a.Share == 0 {
		return 1
	}
	return a.Share
}

// admits reports whether a key without a row gets one, and counts a pull. The caller holds locks.
func (t *Table) admits(key uint64, push bool) bool {
	a := t.cfg.Admission
	seen := a.Count
	if t.filter != nil {
		if push {
			seen = t.filter.count(key)
		} else {
			seen = t.filter.see(key)
		}
	}
	return optim.Admits(seen, a.Count, mix(key^admissionSalt), a.share())
}

// admissionSalt separates the admission share from other hashes of keys.
const admissionSalt = 0x8e5d3c1f6a2b9704

func mix(x uint64) uint64 { return rowinit.Mix(x) }

// filter counts keys approximately; before a decay never too low. It is a count-min sketch (Cormode
// and Muthukrishnan, J. Algorithms 55, 2005) with conservative update (Estan and Varghese, SIGCOMM
// 2002), blocked (Putze, Sanders and Singler 2007): a key has four 4-bit counters in one cache
// line, and its count is their minimum.
//
// With 4 bytes per distinct key a line has 16 keys on average and at most 40 % of its counters are
// used: fewer than 5 % of new keys find a count above 0. After more keys all counts are halved to
// restore the error bound; keys that came once are forgotten. Cost: one cache miss and a lock of
// one stripe per count; 0.2 ms per MiB to halve.
type filter struct {
	lines []counters
	locks [filterLocks]struct {
		sync.Mutex
		_ [56]byte
	}
	most  int64 // new keys until the next decay
	fresh atomic.Int64
}

// counters are 128 counters of 4 bits.
type counters [8]uint64

const (
	mostCount   = 15
	filterLocks = 64
	keyBytes    = 4
)

// newFilter returns nil if every key is admitted at its first pull.
func newFilter(a Admission) *filter {
	if a.Count <= 1 {
		return nil
	}
	bytes := a.FilterBytes
	if bytes == 0 {
		bytes = defaultFilterBytes
	}
	return &filter{lines: make([]counters, bytes/64), most: bytes / keyBytes}
}

// places returns a key's line and the indices of its counters in the line.
func (f *filter) places(key uint64) (line uint64, at [4]uint) {
	h := mix(key + 0x9e3779b97f4a7c15)
	line, _ = bits.Mul64(h, uint64(len(f.lines)))
	g := mix(h)
	for i := range at {
		at[i] = uint(g>>(7*i)) & 127
	}
	return line, at
}

func (c *counters) get(at uint) int { return int(c[at>>4] >> (at & 15 * 4) & mostCount) }

func (c *counters) least(at [4]uint) int {
	return min(c.get(at[0]), c.get(at[1]), c.get(at[2]), c.get(at[3]))
}

// see counts a key and returns its new count.
func (f *filter) see(key uint64) int {
	line, at := f.places(key)
	c, lock := &f.lines[line], &f.locks[line%filterLocks]
	lock.Lock()
	n := c.least(at)
	if n < mostCount {
		for _, a := range at {
			if c.get(a) == n { // conservative update: higher counters are better estimates
				c[a>>4] += 1 << (a & 15 * 4)
			}
		}
	}
	lock.Unlock()
	if n == 0 && f.fresh.Add(1) >= f.most {
		f.decay()
	}
	return min(n+1, mostCount)
}

func (f *filter) count(key uint64) int {
	line, at := f.places(key)
	lock := &f.locks[line%filterLocks]
	lock.Lock()
	defer lock.Unlock()
	return f.lines[line].least(at)
}

func (f *filter) decay() {
	for l := range f.locks {
		f.locks[l].Lock()
		for i := l; i < len(f.lines); i += filterLocks {
			for w, x := range f.lines[i] {
				f.lines[i][w] = x >> 1 & 0x7777777777777777
			}
		}
		f.locks[l].Unlock()
	}
	f.fresh.Store(0)
}
