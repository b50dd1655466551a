package trainer

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/server/message"
)

// CacheConfig configures the cache for rows of earlier batches. The zero value means no cache.
//
// In bsp a row pulled for training is out of date a step later, because every pulled row is pushed
// to: training uses no cache in bsp. In the other modes a cached row is at most Steps old, and
// lacks the trainer's own pushes of these steps as well. While only Peek is called, no push changes
// a row in bsp, and peeked rows are valid until the next Fetch, Ask, End or PullDense: in bsp with
// the same bits as without a cache, in other modes with the values of some moment since the first
// Peek. Servers delete rows by days at any time: after a deletion between two Peeks in bsp, a
// cached row keeps its old values.
//
// A server that counts pulls for admission does not count cached rows.
type CacheConfig struct {
	// Bytes is the maximum memory of the rows and their index, divided into equal numbers of rows
	// per table; 0: no cache.
	Bytes int64
	// Steps is the number of later steps that may use a pulled row in training; 0 is for bsp.
	Steps int
	// Bounded is for ssp, with the staleness as Steps: a row may be used in step t if all trainers
	// had clocked step t-1-Steps when the row was pulled. Otherwise the trainer's own steps since
	// the pull count.
	Bounded bool
	// Code is the encoding of rows in messages, to compute CacheUse.Saved.
	Code message.Code
}

// CacheUse counts the effect of a cache.
type CacheUse struct {
	Lookups int64 // distinct rows of batches
	Hits    int64 // lookups found in the cache
	Saved   int64 // bytes of keys and rows not transferred
}

// Plus returns the sum of both.
func (u CacheUse) Plus(o CacheUse) CacheUse {
	return CacheUse{u.Lookups + o.Lookups, u.Hits + o.Hits, u.Saved + o.Saved}
}

type purpose int

const (
	training purpose = iota
	evaluating
)

// pass is a sequence of calls with one purpose: a row is used only in the pass of its pull.
type pass struct {
	purpose
	number uint32
}

func (p *pass) turnTo(to purpose) {
	if p.purpose != to {
		*p = pass{to, p.number + 1}
	}
}

// moved reports that rows may have changed since they were peeked.
func (p *pass) moved() {
	if p.purpose == evaluating {
		p.number++
	}
}

// cache has pulled rows of a table. A key's hash selects a set of ways: a lookup costs a cache line
// for the set's keys, one for its stamps, and the row. A full set evicts by CLOCK (Corbató, 1968):
// the next way without a lookup since the hand passed it. Rows of a single batch therefore do not
// displace rows of several batches.
type cache struct {
	cfg   CacheConfig
	dim   int
	sets  int
	saved int64 // bytes saved per row

	keys   []uint64 // keys by set and way
	stamps []uint64 // last use of each row; 0 for an empty way
	used   []bool   // looked up since the hand passed
	hands  []uint8  // CLOCK hands by set
	rows   []float32
}

// ways is the number of rows in a set, with keys of one cache line.
const ways = 8

// stepBits is the number of a stamp's low bits, for a row's last step; the high bits are the pass.
const (
	stepBits = 40
	lastStep = 1<<stepBits - 1
)

func stampOf(pass uint32, until uint64) uint64 { return uint64(pass)<<stepBits | min(until, lastStep) }

// entryBytes is the memory of a row without its values: key, stamp, use, and a share of a hand.
const entryBytes = 18

// newCaches returns the caches of all tables, nil without a cache.
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
		n := t.sets * ways // virtual memory until rows are written
		t.keys, t.stamps, t.used, t.hands, t.rows = make([]uint64, n), make([]uint64, n), make([]bool, n), make([]uint8, t.sets), make([]float32, n*t.dim)
	}
	return out, nil
}

// CacheUse returns the counts of the cache since New, for training and for Peek.
func (t *Trainer) CacheUse() (training, peeking CacheUse) { return t.used[0], t.used[1] }

// cacheMisses are the rows of a batch that are being pulled.
type cacheMisses struct {
	cache  *cache
	keys   []uint64
	places []int32 // indices in the batch
	rows   []float32
	batch  []float32 // all rows of the batch
	step   uint64
	pass   pass
}

// lookup writes the cached rows of keys to dst, and returns l with the other keys; nil: no cache.
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

// take copies the received rows to the batch and the cache. clocked is the last step that all
// trainers had clocked at the pull.
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

// find returns the index of a key's row, -1 if missing, and the first way of its set.
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

// get writes a key's row to dst, if the cache has it for this step and pass.
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

// put stores a row, replacing the key's older row or an evicted row.
func (c *cache) put(key, stamp uint64, row []float32) {
	at, first := c.find(key)
	if at < 0 {
		at = c.evict(first)
		c.keys[at], c.used[at] = key, false
	}
	c.stamps[at] = stamp
	copy(c.rows[at*c.dim:][:c.dim], row)
}

// evict frees a way of a set, and returns its index.
func (c *cache) evict(first int) int {
	hand := &c.hands[first/ways]
	for {
		at := first + int(*hand)
		if *hand = (*hand + 1) % ways; !c.used[at] {
			return at // empty ways included
		}
		c.used[at] = false
	}
}
