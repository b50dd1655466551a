package trace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// part is the spans of a rank, as sent to rank 0.
type part struct {
	rank    int
	offset  int64 // last correction of the times, ns
	bound   int64 // maximum error of the times, ns
	dropped int64
	spans   []span // times of rank 0's clock, none before base
}

// Limits of a part.
const (
	partFormat = 1
	maxText    = 1 << 10 // bytes of a name
	maxPart    = 64 << 20
)

// part returns the recorded spans, with times relative to base, in nanoseconds of rank 0's clock.
func (r *Timeline) part(rank int, base int64) part {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := newClock(r.clocks)
	p := part{rank: rank, offset: c.last.offset, bound: c.bound(), dropped: r.dropped, spans: make([]span, len(r.spans))}
	for i, s := range r.spans {
		s.start += c.offset(s.start) - base
		p.spans[i] = s
	}
	return p
}

// earliest returns the first span's begin in rank 0's clock, or the largest number.
func (r *Timeline) earliest() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := newClock(r.clocks)
	first := int64(math.MaxInt64)
	for _, s := range r.spans {
		first = min(first, s.start+c.offset(s.start))
	}
	return first
}

// encode appends p to b. Numbers are varints; each text is stored once.
func (p part) encode(b []byte) []byte {
	texts, places := p.texts()
	b = binary.AppendUvarint(b, partFormat)
	b = binary.AppendUvarint(b, uint64(p.rank))
	b = binary.AppendVarint(b, p.offset)
	b = binary.AppendUvarint(b, uint64(p.bound))
	b = binary.AppendUvarint(b, uint64(p.dropped))
	b = binary.AppendUvarint(b, uint64(len(texts)))
	for _, t := range texts {
		b = binary.AppendUvarint(b, uint64(len(t)))
		b = append(b, t...)
	}
	b = binary.AppendUvarint(b, uint64(len(p.spans)))
	for _, s := range p.spans {
		b = append(b, byte(s.track))
		b = binary.AppendUvarint(b, places[s.name])
		b = binary.AppendUvarint(b, places[s.detail])
		b = binary.AppendUvarint(b, uint64(s.start))
		b = binary.AppendUvarint(b, uint64(s.length))
		b = binary.AppendVarint(b, s.bytes)
		b = binary.AppendVarint(b, s.step)
	}
	return b
}

// texts returns all names and details, shortened, and the index of each.
func (p part) texts() (texts []string, places map[string]uint64) {
	places = map[string]uint64{}
	for _, s := range p.spans {
		for _, t := range [...]string{s.name, s.detail} {
			if _, ok := places[t]; !ok {
				places[t] = uint64(len(texts))
				texts = append(texts, t[:min(len(t), maxText)])
			}
		}
	}
	return texts, places
}

// decodePart decodes encode's output for a rank. The length of b limits the memory.
func decodePart(b []byte, rank int) (part, error) {
	d := decoder{b: b}
	if v := d.number(math.MaxUint8); v != partFormat && d.err == nil {
		return part{}, fmt.Errorf("format %d, want %d", v, partFormat)
	}
	p := part{rank: int(d.number(math.MaxInt32)), offset: d.signed(), bound: d.number(math.MaxInt64), dropped: d.number(math.MaxInt64)}
	if p.rank != rank && d.err == nil {
		return part{}, fmt.Errorf("it says that it is of rank %d, want %d", p.rank, rank)
	}
	texts := make([]string, d.count(1, 2*maxSpans))
	for i := range texts {
		texts[i] = d.text()
	}
	p.spans = make([]span, d.count(7, maxSpans))
	for i := range p.spans {
		p.spans[i] = d.span(texts)
	}
	if d.err == nil && len(d.b) > 0 {
		d.fail("%d bytes too many", len(d.b))
	}
	if d.err != nil {
		return part{}, d.err
	}
	return p, nil
}

// decoder consumes values from b and keeps the first error; further values are zero.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.b, d.err = nil, fmt.Errorf(format, args...)
	}
}

var errShort = errors.New("it ends too early")

// skip consumes n bytes; n <= 0 means an invalid varint.
func (d *decoder) skip(n int) {
	if n <= 0 {
		d.fail("%w", errShort)
		return
	}
	d.b = d.b[n:]
}

func (d *decoder) number(most uint64) int64 {
	v, n := binary.Uvarint(d.b)
	if d.skip(n); d.err != nil {
		return 0
	}
	if v > most {
		d.fail("%d, want at most %d", v, most)
		return 0
	}
	return int64(v)
}

func (d *decoder) signed() int64 {
	v, n := binary.Varint(d.b)
	if d.skip(n); d.err != nil {
		return 0
	}
	return v
}

// count reads a number of items of at least least bytes each, at most most.
func (d *decoder) count(least, most int) int {
	return int(d.number(uint64(min(most, len(d.b)/least))))
}

func (d *decoder) text() string {
	n := int(d.number(maxText))
	if n > len(d.b) {
		d.fail("%w", errShort)
	}
	if d.err != nil {
		return ""
	}
	t := string(d.b[:n])
	d.b = d.b[n:]
	return t
}

func (d *decoder) span(texts []string) span {
	s := span{track: Track(d.number(uint64(tracks) - 1))}
	s.name, s.detail = d.oneOf(texts), d.oneOf(texts)
	s.start = d.number(math.MaxInt64)
	s.length = d.number(uint64(math.MaxInt64 - s.start))
	s.bytes, s.step = d.signed(), d.signed()
	return s
}

func (d *decoder) oneOf(texts []string) string {
	if len(texts) == 0 {
		d.fail("a span without a name")
		return ""
	}
	if i := d.number(uint64(len(texts)) - 1); d.err == nil {
		return texts[i]
	}
	return ""
}
