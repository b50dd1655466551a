package shard

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/internal/crc32c"
	"github.com/ringo-ml/ringo/internal/faults"
	"github.com/ringo-ml/ringo/internal/server/rows"
)

// A checkpoint of a table is a directory of four files, loaded in this order:
//
//	deleted  keys deleted since the previous checkpoint, in a delta
//	store    rows of the store
//	memory   rows of memory, which override those of the store
//	counts   counts of keys without a row, all of them in a delta too (see Admission)
//
// A file is, little-endian:
//
//	0     8  "RINGOROW"
//	8     4  version of the format, 2
//	12    4  h, at most 1 MiB
//	16    h  header: JSON
//	16+h  4  CRC-32C of all before
//
// and then pieces. The last piece is the end of the file:
//
//	0   4  kind
//	4   4  n, its rows or keys
//	8   4  m, its marks
//	12  4  0
//	16  8  first hash of its range; in the end piece: rows or keys in the file
//	24  8  last hash; in the end piece: pieces before it
//	32     marks: m times session (4) and number (8), by session
//	       rows: n times key (8), Last (2), Touches (2), values (4 each); or n keys;
//	       or n lines of the filter: number (8), 128 counters of 4 bits (64)
//	       4: CRC-32C of the piece
//
// Pieces of the memory file cover all hashes in order; other pieces have no range and no marks.
// Version 1 had no counts file and no owner in the header.
const (
	magic         = "RINGOROW"
	formatVersion = 2
	preamble      = 16
	maxHeader     = 1 << 20
	pieceHead     = 32
	markBytes     = 12
	rowHead       = 12
	lineBytes     = 72
	maxPiece      = 64 << 20 // bytes after its head
)

// kind is the content of a piece.
type kind uint32

const (
	rowsPiece kind = 1 + iota
	keysPiece
	endPiece
	linesPiece
)

type section string

const (
	deletedSection section = "deleted"
	storeSection   section = "store"
	memorySection  section = "memory"
	countsSection  section = "counts"
)

var sections = []section{deletedSection, storeSection, memorySection, countsSection}

func (s section) kind() kind {
	switch s {
	case deletedSection:
		return keysPiece
	case countsSection:
		return linesPiece
	}
	return rowsPiece
}

type header struct {
	Of      string        `json:"of"` // job, server, table and checkpoint
	Table   string        `json:"table"`
	Section section       `json:"section"`
	Dim     int           `json:"dim"`
	Rule    string        `json:"rule"`
	Parts   []width       `json:"parts,omitempty"`
	Seed    uint64        `json:"seed"`
	Delta   bool          `json:"delta"`
	Since   uint64        `json:"since,omitempty"` // Epoch of the previous checkpoint, in a delta
	Epoch   uint64        `json:"epoch"`           // epoch that begins with this checkpoint
	Day     uint32        `json:"day"`
	Borders []dayBoundary `json:"borders,omitempty"`

	Admission string    `json:"admission,omitempty"`
	Counting  *counting `json:"counting,omitempty"` // only in the counts file
}

type width struct {
	Name  string `json:"name"`
	Width int    `json:"width"`
}

func (h *header) values() int {
	n := h.Dim
	for _, p := range h.Parts {
		n += p.Width
	}
	return n
}

// check reports values that no table has.
func (h *header) check() error {
	var bad faults.List
	bad.If(h.Dim < 1 || h.Dim > 1<<20, "rows of %d weights", h.Dim)
	bad.If(len(h.Parts) > 64, "%d parts of state", len(h.Parts))
	for _, p := range h.Parts[:min(64, len(h.Parts))] {
		bad.If(p.Width < 1 || p.Width > 1<<20, "part %q of the state has %d values", p.Name, p.Width)
	}
	bad.If(rowsPiece.rowBytes(h.values()) > maxPiece, "rows of %d values", h.values())
	bad.If(!slices.Contains(sections, h.Section), "a file %q", h.Section)
	bad.If(h.Counting != nil && h.Section != countsSection, "counts in a file %q", h.Section)
	if h.Counting != nil {
		h.Counting.check(bad.If)
	}
	bad.If(h.Since > h.Epoch || !h.Delta && h.Since != 0, "epoch %d since %d, delta %t", h.Epoch, h.Since, h.Delta)
	return bad.Err()
}

// encode returns the start of the file, up to the header's checksum.
func (h *header) encode() ([]byte, error) {
	text, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	if len(text) > maxHeader {
		return nil, fmt.Errorf("the header has %d bytes: at most %d", len(text), maxHeader)
	}
	b := append(make([]byte, 0, preamble+len(text)+4), magic...)
	b = binary.LittleEndian.AppendUint32(b, formatVersion)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(text)))
	b = append(b, text...)
	return binary.LittleEndian.AppendUint32(b, sumOf(b)), nil
}

func sumOf(parts ...[]byte) (sum uint32) {
	for _, b := range parts {
		sum = crc32c.Update(sum, b)
	}
	return sum
}

var errVersion = errors.New("another version of the format")

// DamageError reports a damaged file of a checkpoint and the position of the damage.
type DamageError struct {
	Path   string
	Offset int64 // offset of the piece, or in the header
	Err    error
}

// Error names the file and the offset.
func (e *DamageError) Error() string {
	return fmt.Sprintf("shard: %s is damaged at offset %d: %v: load an older checkpoint", e.Path, e.Offset, e.Err)
}

// Unwrap returns the cause.
func (e *DamageError) Unwrap() error { return e.Err }

// piece is a decoded piece.
type piece struct {
	kind        kind
	n           int
	first, last uint64
	marks       []rows.AppliedSeq
	body        []byte // rows or keys
}

func (p *piece) key(i int) uint64 {
	return binary.LittleEndian.Uint64(p.body[i*len(p.body)/p.n:])
}

// row decodes row i into values and returns its usage.
func (p *piece) row(i int, values []float32) rows.Usage {
	b := p.body[i*len(p.body)/p.n:]
	getFloats(values, b[rowHead:])
	return rows.Usage{Last: binary.LittleEndian.Uint16(b[8:]), Touches: binary.LittleEndian.Uint16(b[10:])}
}

func (k kind) rowBytes(values int) int {
	switch k {
	case rowsPiece:
		return rowHead + 4*values
	case linesPiece:
		return lineBytes
	}
	return 8
}

// decodeHead decodes a piece's head and returns the length after it, without checksum.
func (p *piece) decodeHead(b []byte, values int) (body int64, marks int, err error) {
	le := binary.LittleEndian
	n, m := le.Uint32(b[4:]), le.Uint32(b[8:])
	*p = piece{kind: kind(le.Uint32(b)), n: int(n), first: le.Uint64(b[16:]), last: le.Uint64(b[24:]), marks: p.marks[:0], body: p.body}
	switch {
	case p.kind < rowsPiece || p.kind > linesPiece:
		return 0, 0, fmt.Errorf("a piece of kind %d", p.kind)
	case le.Uint32(b[12:]) != 0:
		return 0, 0, errors.New("bytes that are 0 are not")
	case m > rows.MaxSessions || m > 0 && p.kind != rowsPiece:
		return 0, 0, fmt.Errorf("%d marks", m)
	case p.kind == endPiece && n != 0:
		return 0, 0, fmt.Errorf("an end with %d rows", n)
	case p.kind != endPiece && p.first > p.last:
		return 0, 0, fmt.Errorf("a range from %#x to %#x", p.first, p.last)
	}
	body = int64(m)*markBytes + int64(n)*int64(p.kind.rowBytes(values))
	if body > maxPiece {
		return 0, 0, fmt.Errorf("a piece of %d bytes", body)
	}
	return body, int(m), nil
}

func (p *piece) decodeMarks(b []byte, marks int) error {
	for i := range marks {
		m := rows.AppliedSeq{Session: int(binary.LittleEndian.Uint32(b[i*markBytes:])), Seq: binary.LittleEndian.Uint64(b[i*markBytes+4:])}
		if m.Session >= rows.MaxSessions || m.Seq == 0 || i > 0 && m.Session <= p.marks[i-1].Session {
			return fmt.Errorf("mark %d is number %d of session %d", i, m.Seq, m.Session)
		}
		p.marks = append(p.marks, m)
	}
	return nil
}
