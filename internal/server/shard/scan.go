package shard

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
)

// About describes a table's checkpoint, from the headers and ends of its files.
type About struct {
	Table string
	Dim   int
	Rule  string
	Delta bool
	// Admission is the table's admission.
	Admission Admission
	// Rows counts rows of both tiers twice. Deleted is a delta's deleted keys.
	Rows, Deleted int64

	bySection map[section]int64
	header    header
}

// Describe reads the headers and ends of a checkpoint's files; its cost does not depend on the
// size. of is the owner passed to Save. Damage returns a *DamageError, another version errVersion.
func Describe(dir, of string) (a About, err error) {
	a.bySection = map[section]int64{}
	for i, name := range sections {
		h, n, err := describe(filepath.Join(dir, string(name)))
		if err == nil && i == 0 {
			a.header = h
		}
		if err == nil {
			err = h.follows(&a.header, filepath.Join(dir, string(name)), of, name)
		}
		if err == nil && h.Counting != nil {
			a.Admission.FilterBytes = h.Counting.Lines * lineSize
		}
		if err != nil {
			return a, fmt.Errorf("shard: %w", err)
		}
		switch a.bySection[name] = n; name {
		case deletedSection:
			a.Deleted = n
		case storeSection, memorySection:
			a.Rows += n
		}
	}
	h := &a.header
	if err := a.Admission.UnmarshalText([]byte(h.Admission)); err != nil {
		return a, fmt.Errorf("shard: %s: admission %q: %w", dir, h.Admission, err)
	}
	a.Table, a.Dim, a.Rule, a.Delta = h.Table, h.Dim, h.Rule, h.Delta
	return a, nil
}

// describe reads a file's header, and its number of rows or keys from its end.
func describe(path string) (h header, n int64, err error) {
	r, f, err := openFile(path)
	if err != nil {
		return h, 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	h = r.header
	if end := r.size - pieceHead - 4; end > r.at {
		if r.at, err = f.Seek(end, io.SeekStart); err != nil {
			return h, 0, err
		}
	}
	if err := r.read(pieceHead + 4); err != nil {
		return h, 0, err
	}
	var p piece
	if _, _, err := p.decodeHead(r.buf, r.values); err != nil || p.kind != endPiece || sumOf(r.buf[:pieceHead]) != binary.LittleEndian.Uint32(r.buf[pieceHead:]) {
		return h, 0, r.damage("it has no end: it was cut short")
	}
	return h, int64(p.first), nil
}

// follows returns an error if the file and the first file are of different checkpoints.
func (h *header) follows(first *header, path, of string, name section) error {
	if h.Of != of {
		return fmt.Errorf("%s is of %s, where the file of %s belongs: it was copied or renamed; bring the file that was here back from a copy, or load an older checkpoint", path, h.Of, of)
	}
	if h.Section != name {
		return &DamageError{path, 0, fmt.Errorf("it is a file %q", h.Section)}
	}
	if h.Admission != first.Admission || h.Epoch != first.Epoch || h.Delta != first.Delta || h.Since != first.Since || h.Day != first.Day {
		return &DamageError{path, 0, fmt.Errorf("it is of epoch %d since %d, the file %q beside it of %d since %d", h.Epoch, h.Since, sections[0], first.Epoch, first.Since)}
	}
	return nil
}

// Scan passes the rows of a full checkpoint and its deltas, in this order, to do without building a
// table: keys and weights, in no order, valid during the call. An error of do ends Scan. Scan reads
// each file once, the newest first, and holds the keys of all files but the last, 16 to 32 bytes
// each: none for a full checkpoint of memory only. of has the owner of each checkpoint. Damage
// returns a *DamageError where the reader meets it; rows passed before are right.
func Scan(ctx context.Context, dirs, of []string, do func(keys []uint64, weights []float32) error) error {
	s := &scanner{do: do}
	if err := s.plan(dirs, of); err != nil {
		return err
	}
	for i, f := range s.files {
		s.last = i == len(s.files)-1
		if err := s.file(ctx, f); err != nil {
			return fmt.Errorf("shard: %w", err)
		}
	}
	return nil
}

type scanner struct {
	do    func(keys []uint64, weights []float32) error
	files []string // nonempty files in reading order
	last  bool
	had   keySet // keys already decided

	keys    []uint64
	weights []float32
	values  []float32
}

// plan checks that the checkpoints belong together, and lists their files.
func (s *scanner) plan(dirs, of []string) error {
	if len(dirs) == 0 {
		return errors.New("shard: no checkpoint to read")
	}
	var before About
	for i, dir := range dirs {
		a, err := Describe(dir, of[i])
		if err != nil {
			return err
		}
		switch {
		case (i > 0) != a.Delta:
			return fmt.Errorf("shard: %s is number %d of a whole checkpoint and its deltas, delta: %t", dir, i, a.Delta)
		case i > 0 && (a.header.Since != before.header.Epoch || a.Table != before.Table || a.header.values() != before.header.values()):
			return fmt.Errorf("shard: %s is a delta of table %q since epoch %d, the one before is of %q and epoch %d", dir, a.Table, a.header.Since, before.Table, before.header.Epoch)
		}
		before = a
		for _, name := range sections { // Load's order: later files override
			if a.bySection[name] > 0 && name != countsSection {
				s.files = append(s.files, filepath.Join(dir, string(name)))
			}
		}
	}
	slices.Reverse(s.files)
	return nil
}

func (s *scanner) file(ctx context.Context, path string) (err error) {
	r, f, err := openFile(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		p, err := r.next()
		if err == io.EOF {
			return nil
		}
		if err == nil {
			err = s.piece(p, r)
		}
		if err != nil {
			return err
		}
	}
}

// piece passes the rows of a piece to do, except keys that a newer file has decided.
func (s *scanner) piece(p *piece, r *reader) error {
	s.keys, s.weights = s.keys[:0], s.weights[:0]
	s.values = slices.Grow(s.values[:0], r.values)[:r.values]
	for i := range p.n {
		key := p.key(i)
		if s.last && s.had.has(key) || !s.last && !s.had.add(key) {
			continue
		}
		if p.kind == keysPiece {
			continue // deleted
		}
		p.row(i, s.values)
		s.keys = append(s.keys, key)
		s.weights = append(s.weights, s.values[:r.header.Dim]...)
	}
	if len(s.keys) == 0 {
		return nil
	}
	return s.do(s.keys, s.weights)
}

// keySet is a set of keys: a hash table with open addressing, at most half full. 0 marks a free
// slot; zero reports whether the set has key 0.
type keySet struct {
	slots []uint64
	n     int
	zero  bool
}

// find returns the slot of a key, or the free slot for it.
func (s *keySet) find(key uint64) int {
	mask := uint64(len(s.slots) - 1)
	at := mix(key) & mask
	for s.slots[at] != 0 && s.slots[at] != key {
		at = (at + 1) & mask
	}
	return int(at)
}

func (s *keySet) has(key uint64) bool {
	if key == 0 {
		return s.zero
	}
	return len(s.slots) > 0 && s.slots[s.find(key)] == key
}

func (s *keySet) add(key uint64) bool {
	if key == 0 {
		was := s.zero
		s.zero = true
		return !was
	}
	if 2*(s.n+1) > len(s.slots) {
		old := s.slots
		s.slots = make([]uint64, max(1024, 2*len(old)))
		for _, k := range old {
			if k != 0 {
				s.slots[s.find(k)] = k
			}
		}
	}
	at := s.find(key)
	if s.slots[at] == key {
		return false
	}
	s.slots[at] = key
	s.n++
	return true
}
