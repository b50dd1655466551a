package trainer

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/server/message"
)

// CacheConfig says which rows of earlier batches a trainer uses again instead of pulling them. The zero value is none.
//
// A row that was pulled for training is pushed to as well, so that in bsp it is out of date a step
// later, always: there training takes no row from a cache. Out of step it may be as old as Steps
// says, and lacks then the trainer's own pushes of these steps, too. While Peek alone is called no
// push moves a row in bsp, and what was peeked is good until the next Fetch, Ask, End or PullDense:
// with the bits of no cache in bsp, and in other modes as rows were at some moment since the first
// Peek. Servers delete rows by days, whatever is called: where they do between two Peeks in bsp, a
// row that was peeked before stays as it was then, and one that was not is as it is now.
//
// Where servers admit keys that were pulled some times, they count pulls that come to them.
type CacheConfig struct {
	// Bytes is how much memory rows take at most, with what finds them; 0: there is no cache. Each table has room for as many rows.
	Bytes int64
	// Steps is for how many steps more than the one that it was pulled for a row may be used by training; 0 is for bsp.
	Steps int
	// Bounded is for ssp, with its staleness as Steps: a row may be used in step t when the servers said with it that all trainers had
	// clocked step t-1-Steps, which is what a pull promises. Else the trainer's own steps count.
	Bounded bool
	// Code is how rows travel, for CacheUse.Saved.
	Code message.Code
}

// CacheUse is what came of a cache.
type CacheUse struct {
	Lookups int64 // rows that batches named, each once a batch
	Hits    int64 // of them, those that the cache had
	Saved   int64 // bytes of keys and rows that did not travel
}

// Plus is the sum of both.
func (u CacheUse) Plus(o CacheUse) CacheUse {
	return CacheUse{u.Lookups + o.Lookups, u.Hits + o.Hits, u.Saved + o.Saved}
}

// purpose is what rows are asked for.
type purpose int

const (
	training purpose = iota
	evaluating
)

// pass is a stretch of calls with one purpose: a row is used in the pass that it was pulled in.
type pass struct {
	purpose
	number uint32
}

func (p *pass) turnTo(to purpose) {
	if p.purpose != to {
		*p = pass{to, p.number + 1}
	}
}

// moved says that rows may have moved since they were peeked.
func (p *pass) moved() {
	if p.purpose == evaluating {
		p.number++
	}
}

// cache has rows of a table as they were pulled. A key's row is in one of the ways of a set, which its hash says: to look costs a line of memory
// for the set's keys, one for its stamps, and the row. Which row leaves a full set says CLOCK (Corbató, 1968): the next in turn that was not looked for
// since the hand came past it, so that rows that one batch alone names do not push out the others.
type cache struct {
	cfg   CacheConfig
	dim   int
	sets  int
	saved int64 // bytes of a row that does not travel

	keys   []uint64 // of ways, set by set
	stamps []uint64 // until when a row may be used; 0: there is none
	used   []bool   // looked for since the hand came past
	hands  []uint8  // by set
	rows   []float32
}

// ways are the rows of a set: their keys are a line of memory.
const ways = 8

// A stamp is a pass, and in its lower bits the last step of it in which the row may be used.
const (
	stepBits = 40
	lastStep = 1<<stepBits - 1
)

func stampOf(pass uint32, until uint64) uint64 { return uint64(pass)<<stepBits | min(until, lastStep) }

// entryBytes is what a row takes besides its values: key, stamp, use, and its part of a hand.
const entryBytes = 18

// newCaches are those of all tables, nil where there are none.
func newCaches(cfg Config) ([]*cache, error) {
	c := cfg.Cache
	if c.Bytes == 0 {
		return nil, nil
	}
	if c.Bytes < 0 || c.Steps < 0 || cfg.GeoSteps > 0 {
		return nil, fmt.Errorf("ps: trainer: a cache of %d bytes for rows of %d steps, copies exchanged every %d: want both from 0 on, and no cache with copies", c.Bytes, c.Steps, cfg.GeoSteps)
	}
	row := int64(0)
	out := make([]*cache, len(cfg.Schema.Sparse))
	for i, t := range cfg.Schema.Sparse {
		out[i] = &cache{cfg: c, dim: t.Dim, saved: message.KeySize + int64(c.Code.Size(t.Dim))}
		row += entryBytes + 4*int64(t.Dim)
	}
	for _, t := range out {
		if t.sets = int(min(c.Bytes/row/ways, math.MaxInt32)); t.sets == 0 {
			return nil, fmt.Errorf("ps: trainer: a cache of %d bytes: %d rows of each table, which are the least, take %d", c.Bytes, ways, ways*row)
		}
		n := t.sets * ways // their memory is the system's until rows are written to it
		t.keys, t.stamps, t.used, t.hands, t.rows = make([]uint64, n), make([]uint64, n), make([]bool, n), make([]uint8, t.sets), make([]float32, n*t.dim)
	}
	return out, nil
}

// CacheUse is what came of the cache while training, and of Peek, since the trainer was made.
func (t *Trainer) CacheUse() (training, peeking CacheUse) { return t.used[0], t.used[1] }

// cacheMisses are the rows of a batch that its cache did not have, on their way.
type cacheMisses struct {
	cache  *cache
	keys   []uint64
	places []int32 // in the batch
	rows   []float32
	batch  []float32 // all rows of the batch
	step   uint64
	pass   pass
}

// lookup writes those rows of keys that the cache has for a step to their places in dst, and
// returns l with the others; nil where there is no cache for them.
func (t *Trainer) lookup(l *cacheMisses, table int, step uint64, keys []uint64, dst []float32) *cacheMisses {
	if t.caches == nil {
		return nil
	}
	use := &t.used[t.pass.purpose]
	use.Lookups += int64(len(keys))
	c := t.caches[table]
	if t.pass.purpose == training && c.cfg.Steps == 0 {
		return nil
	}
	l.cache, l.batch, l.step, l.pass = c, dst, step, t.pass
	l.keys, l.places = l.keys[:0], l.places[:0]
	for i, key := range keys {
		if !c.get(key, step, t.pass.number, dst[i*c.dim:][:c.dim]) {
			l.keys, l.places = append(l.keys, key), append(l.places, int32(i))
		}
	}
	hits := int64(len(keys) - len(l.keys))
	use.Hits += hits
	use.Saved += hits * c.saved
	l.rows = bytesview.Sized(l.rows, len(l.keys)*c.dim)
	return l
}

// take puts rows that have come to their places, and into the cache. All trainers had clocked a step before they were read.
func (l *cacheMisses) take(clocked uint64) {
	c := l.cache
	until := uint64(math.MaxUint64)
	if l.pass.purpose == training {
		if until = l.step + uint64(c.cfg.Steps); c.cfg.Bounded {
			until = clocked + 1 + uint64(c.cfg.Steps)
		}
	}
	for i, place := range l.places {
		row := l.rows[i*c.dim:][:c.dim]
		copy(l.batch[int(place)*c.dim:], row)
		c.put(l.keys[i], stampOf(l.pass.number, until), row)
	}
}

// find is where the row of a key is, and the first way of its set; at is -1 where there is none.
func (c *cache) find(key uint64) (at, first int) {
	set, _ := bits.Mul64(key*0x9e3779b97f4a7c15, uint64(c.sets)) // Fibonacci hashing
	first = int(set) * ways
	for i, k := range c.keys[first:][:ways] {
		if k == key && c.stamps[first+i] != 0 {
			return first + i, first
		}
	}
	return -1, first
}

// get writes the row of a key to dst, if it is there and may be used in a step of a pass.
func (c *cache) get(key, step uint64, pass uint32, dst []float32) bool {
	at, _ := c.find(key)
	if at < 0 {
		return false
	}
	c.used[at] = true
	if s := c.stamps[at]; s>>stepBits != stampOf(pass, 0)>>stepBits || step > s&lastStep {
		return false
	}
	copy(dst, c.rows[at*c.dim:][:c.dim])
	return true
}

// put keeps a row, in the place of an older one of its key, or of one that leaves.
func (c *cache) put(key, stamp uint64, row []float32) {
	at, first := c.find(key)
	if at < 0 {
		at = c.evict(first)
		c.keys[at], c.used[at] = key, false
	}
	c.stamps[at] = stamp
	copy(c.rows[at*c.dim:][:c.dim], row)
}

// evict makes room for a row in a set, and returns where.
func (c *cache) evict(first int) int {
	hand := &c.hands[first/ways]
	for {
		at := first + int(*hand)
		if *hand = (*hand + 1) % ways; !c.used[at] {
			return at // free ones among them
		}
		c.used[at] = false
	}
}
