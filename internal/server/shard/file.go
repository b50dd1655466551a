package shard

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/dirlock"
	"github.com/ringo-ml/ringo/internal/pathname"
	"github.com/ringo-ml/ringo/internal/server/rows"
)

type writer struct {
	f      *os.File
	values int
	buf    []byte // current piece
	n      int    // rows or keys of the piece
	rows   uint64 // totals of the file
	pieces uint64
}

func create(path string, h *header) (*writer, error) {
	head, err := h.encode()
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, err
	}
	w := &writer{f: f, values: h.values()}
	if err := w.write(head); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return w, nil
}

func (w *writer) write(b []byte) error {
	_, err := w.f.Write(b)
	return err // the error names the file
}

func (w *writer) begin(k kind, first, last uint64, marks []rows.AppliedSeq) {
	le := binary.LittleEndian
	b := le.AppendUint32(w.buf[:0], uint32(k))
	b = le.AppendUint32(b, 0) // row count, set by flush
	b = le.AppendUint32(b, uint32(len(marks)))
	b = le.AppendUint32(b, 0)
	b = le.AppendUint64(b, first)
	b = le.AppendUint64(b, last)
	for _, m := range marks {
		b = le.AppendUint32(b, uint32(m.Session))
		b = le.AppendUint64(b, m.Seq)
	}
	w.buf, w.n = b, 0
}

func (w *writer) add(r *rows.Row, f rows.Usage) {
	le := binary.LittleEndian
	b := le.AppendUint64(w.buf, r.Key)
	b = le.AppendUint16(b, f.Last)
	b = le.AppendUint16(b, f.Touches)
	at := len(b)
	b = append(b, make([]byte, 4*w.values)...) // no allocation: the compiler extends b
	rest := putFloats(b[at:], r.Weights)
	for _, part := range r.State {
		rest = putFloats(rest, part)
	}
	w.buf, w.n = b, w.n+1
}

func (w *writer) addKey(key uint64) {
	w.buf, w.n = binary.LittleEndian.AppendUint64(w.buf, key), w.n+1
}

func (w *writer) addLine(number uint64, line *counters) {
	w.buf = binary.LittleEndian.AppendUint64(w.buf, number)
	for _, word := range line {
		w.buf = binary.LittleEndian.AppendUint64(w.buf, word)
	}
	w.n++
}

// flush writes the piece with its checksum.
func (w *writer) flush() error {
	if len(w.buf) > maxPiece {
		return fmt.Errorf("a piece of %d rows has %d bytes: at most %d", w.n, len(w.buf), maxPiece)
	}
	binary.LittleEndian.PutUint32(w.buf[4:], uint32(w.n))
	w.buf = binary.LittleEndian.AppendUint32(w.buf, sumOf(w.buf))
	w.rows += uint64(w.n)
	w.pieces++
	return w.write(w.buf)
}

// finish writes the end, then syncs and closes the file.
func (w *writer) finish() error {
	w.begin(endPiece, w.rows, w.pieces, nil)
	return errors.Join(w.flush(), dirlock.SyncFile(w.f), w.f.Close())
}

type reader struct {
	path   string
	f      io.Reader
	size   int64
	at     int64
	header header
	values int
	rows   uint64
	pieces uint64
	buf    []byte
	piece  piece
	noSums bool // set by tests of damage beyond checksums
}

func openFile(path string) (*reader, *os.File, error) {
	f, err := pathname.Open(path)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			err = &DamageError{path, 0, err}
		}
		return nil, nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	r := &reader{path: path, f: f, size: info.Size()}
	if err := r.readHeader(); err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return r, f, nil
}

func (r *reader) damage(format string, args ...any) error {
	return &DamageError{r.path, r.at, fmt.Errorf(format, args...)}
}

// read reads the next n bytes into buf.
func (r *reader) read(n int64) error {
	if left := r.size - r.at; n > left {
		return r.damage("%d bytes are left, want %d: it was cut short", left, n)
	}
	r.buf = bytesview.Sized(r.buf, int(n))
	if _, err := io.ReadFull(r.f, r.buf); err != nil {
		return fmt.Errorf("shard: reading %s at offset %d: %w", r.path, r.at, err)
	}
	return nil
}

func (r *reader) readHeader() error {
	if err := r.read(preamble); err != nil {
		return err
	}
	if string(r.buf[:8]) != magic {
		return r.damage("it begins with %q, want %q", r.buf[:8], magic)
	}
	if v := binary.LittleEndian.Uint32(r.buf[8:]); v != formatVersion {
		return fmt.Errorf("shard: %s has version %d of the format, this program reads version %d: %w: go on with the program that wrote it", r.path, v, formatVersion, errVersion)
	}
	h := int64(binary.LittleEndian.Uint32(r.buf[12:]))
	if h > maxHeader {
		return r.damage("a header of %d bytes", h)
	}
	begin := [preamble]byte(r.buf)
	r.at += preamble
	if err := r.read(h + 4); err != nil {
		return err
	}
	sum := binary.LittleEndian.Uint32(r.buf[h:])
	if got := sumOf(begin[:], r.buf[:h]); got != sum && !r.noSums {
		return r.damage("the header's checksum is wrong")
	}
	if err := json.Unmarshal(r.buf[:h], &r.header); err != nil {
		return r.damage("the header: %w", err)
	}
	if err := r.header.check(); err != nil {
		return r.damage("the header: %w", err)
	}
	r.values = r.header.values()
	r.at += h + 4
	return nil
}

// next returns the next piece, valid until the next call, or io.EOF at the end.
func (r *reader) next() (*piece, error) {
	if err := r.read(pieceHead); err != nil {
		return nil, err
	}
	p := &r.piece
	body, marks, err := p.decodeHead(r.buf, r.values)
	if err != nil {
		return nil, r.damage("%w", err)
	}
	head := [pieceHead]byte(r.buf)
	r.at += pieceHead
	err = r.read(body + 4)
	r.at -= pieceHead // errors name the piece's offset
	if err != nil {
		return nil, err
	}
	sum := sumOf(head[:], r.buf[:body])
	if sum != binary.LittleEndian.Uint32(r.buf[body:]) && !r.noSums {
		return nil, r.damage("a piece's checksum is wrong")
	}
	if err := p.decodeMarks(r.buf, marks); err != nil {
		return nil, r.damage("%w", err)
	}
	p.body = r.buf[marks*markBytes : body]
	if p.kind == endPiece {
		return nil, r.end(p)
	}
	if p.kind != r.header.Section.kind() {
		return nil, r.damage("a piece of kind %d in a file %q", p.kind, r.header.Section)
	}
	r.at += pieceHead + body + 4
	r.rows += uint64(p.n)
	r.pieces++
	return p, nil
}

// end checks the end piece against the counts of the file.
func (r *reader) end(p *piece) error {
	if p.first != r.rows || p.last != r.pieces {
		return r.damage("it ends with %d rows in %d pieces, it had %d in %d", r.rows, r.pieces, p.first, p.last)
	}
	if left := r.size - r.at - pieceHead - 4; left > 0 {
		return r.damage("%d bytes follow its end", left)
	}
	return io.EOF
}
