package engine

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/crc32c"
	"github.com/ringo-ml/ringo/internal/dirlock"
	"github.com/ringo-ml/ringo/internal/pathname"
	"github.com/ringo-ml/ringo/internal/server/rows"
)

const memoryFile = "rows"

const batchRows = 4096

// memory is a Table in memory only. Save blocks pushes while it writes.
type memory struct {
	table *rows.Table
	c     rows.Config

	mu      sync.RWMutex // shared by pushes: Save sees each push whole or not at all
	marks   [MaxSessions]uint64
	failed  atomic.Pointer[error] // error of a partly applied push
	missing sync.Pool             // *[]int32, for Peek
}

func newMemory(_ int, c rows.Config) (Table, error) {
	t, err := rows.New(c)
	if err != nil {
		return nil, err
	}
	return &memory{table: t, c: c}, nil
}

func (m *memory) Pull(keys []uint64, dst []float32) error { return m.table.Pull(keys, dst) }

// Peek discards the table's list of keys without rows.
func (m *memory) Peek(keys []uint64, dst []float32) error {
	missing, _ := m.missing.Get().(*[]int32)
	if missing == nil {
		missing = new([]int32)
	}
	var err error
	*missing, err = m.table.Peek(keys, dst, (*missing)[:0])
	m.missing.Put(missing)
	return err
}

func (m *memory) Push(session int, seq uint64, keys []uint64, grads []float32, scale float32) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if seq <= m.marks[session] {
		return nil
	}
	if err := m.failed.Load(); err != nil {
		return *err
	}
	if err := m.table.Push(keys, grads, scale); err != nil {
		if !errors.Is(err, rows.ErrDuplicate) { // rejected without an effect
			fault := err // a copy, so that err stays on the stack
			m.failed.CompareAndSwap(nil, &fault)
		}
		return err
	}
	m.marks[session] = seq // a session's pushes are sequential
	return nil
}

func (m *memory) Shrink(context.Context, int) (int64, error) { return 0, nil }

func (m *memory) Deltas() bool { return false }

func (m *memory) Committed(uint64) {}

func (m *memory) Replayed() error { return nil }

// Each passes all rows to do, in batches from different moments.
func (m *memory) Each(ctx context.Context, do func(keys []uint64, weights []float32) error) error {
	var keys []uint64
	var weights []float32
	var from rows.Cursor
	var err error
	for more := true; more; {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		keys, weights = keys[:0], weights[:0]
		if from, more, err = m.table.Walk(from, batchRows, func(r *rows.Row) rows.Verdict {
			keys, weights = append(keys, r.Key), append(weights, r.Weights...)
			return rows.Keep
		}); err != nil {
			return err
		}
		if len(keys) > 0 {
			if err := do(keys, weights); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *memory) Stats() TableStats {
	s := m.table.Stats()
	return TableStats{Rows: int64(s.Rows), Bytes: int64(s.Resident())}
}

func (m *memory) Close() error { return m.table.Close() }

// memoryHead describes a saved table. The rows follow, each a key and its values, and the CRC-32C
// of the file.
type memoryHead struct {
	Of    string   `json:"of"`
	Name  string   `json:"name"`
	Dim   int      `json:"dim"`
	Rule  string   `json:"rule"`
	Width int      `json:"width"`
	Rows  int      `json:"rows"`
	Marks []uint64 `json:"marks"`
}

func (m *memory) Save(ctx context.Context, dir, of string, since uint64) (epoch uint64, err error) {
	if since != 0 {
		return 0, fmt.Errorf("table %q: a table in memory has no deltas", m.c.Name)
	}
	if err := os.Mkdir(dir, 0o777); err != nil {
		return 0, err
	}
	f, err := os.Create(filepath.Join(dir, memoryFile))
	if err != nil {
		return 0, err
	}
	sum := crc32c.New()
	out := bufio.NewWriterSize(f, 1<<20)
	if err = m.write(ctx, io.MultiWriter(out, sum), of); err == nil {
		_, err = out.Write(binary.LittleEndian.AppendUint32(nil, sum.Sum32()))
	}
	if err == nil {
		err = out.Flush()
	}
	if err == nil {
		err = dirlock.SyncFile(f)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = dirlock.Sync(dir)
	}
	return 1, err
}

func (m *memory) write(ctx context.Context, w io.Writer, of string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.failed.Load(); err != nil {
		return fmt.Errorf("a push was applied in part: %w", *err)
	}
	var keys []uint64
	var from rows.Cursor
	var err error
	for more := true; more; {
		if from, more, err = m.table.Walk(from, batchRows, func(r *rows.Row) rows.Verdict {
			keys = append(keys, r.Key)
			return rows.Keep
		}); err != nil {
			return err
		}
	}
	// Rows created by concurrent pulls have initial weights and need no save.
	used := slices.Clone(m.marks[:])
	for len(used) > 0 && used[len(used)-1] == 0 {
		used = used[:len(used)-1]
	}
	head := memoryHead{Of: of, Name: m.c.Name, Dim: m.c.Dim, Rule: m.c.Rule.Name(), Width: m.table.Width(), Rows: len(keys), Marks: used}
	if err := writeHead(w, head); err != nil {
		return err
	}
	width := m.table.Width()
	values := make([]float32, batchRows*width)
	for batch := range slices.Chunk(keys, batchRows) {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		values := values[:len(batch)*width]
		if _, err := m.table.Export(batch, values, nil, nil); err != nil {
			return err
		}
		k, v := wire(batch, values)
		if _, err := w.Write(k); err != nil {
			return err
		}
		if _, err := w.Write(v); err != nil {
			return err
		}
	}
	return nil
}

func (m *memory) Load(ctx context.Context, dir, of string, keep func(key uint64) bool) (epoch uint64, err error) {
	path := filepath.Join(dir, memoryFile)
	f, err := pathname.Open(path)
	if err != nil {
		return 0, err
	}
	sum := crc32c.New()
	in := bufio.NewReaderSize(f, 1<<20)
	if err = m.read(ctx, io.TeeReader(in, sum), of, keep); err == nil {
		err = checkEnd(in, sum.Sum32())
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return 1, nil
}

// checkEnd returns an error unless the checksum is all that is left.
func checkEnd(in io.Reader, sum uint32) error {
	b, err := io.ReadAll(io.LimitReader(in, 5))
	if err != nil {
		return err
	}
	if len(b) != 4 || binary.LittleEndian.Uint32(b) != sum {
		return fmt.Errorf("it is damaged: it ends with %x, its checksum is %08x", b, sum)
	}
	return nil
}

func (m *memory) read(ctx context.Context, r io.Reader, of string, keep func(uint64) bool) error {
	var head memoryHead
	if err := readHead(r, &head); err != nil {
		return err
	}
	if err := belongs(head.Of, of); err != nil {
		return err
	}
	width := m.table.Width()
	if head.Name != m.c.Name || head.Dim != m.c.Dim || head.Rule != m.c.Rule.Name() || head.Width != width || head.Rows < 0 || len(head.Marks) > MaxSessions {
		return fmt.Errorf("it holds table %q with rows of %d weights and %d values, moved by %s: not %q with %d, %d and %s",
			head.Name, head.Dim, head.Width, head.Rule, m.c.Name, m.c.Dim, width, m.c.Rule.Name())
	}
	keys, values := make([]uint64, batchRows), make([]float32, batchRows*width)
	for left := head.Rows; left > 0; left -= len(keys) {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		keys, values = keys[:min(left, batchRows)], values[:min(left, batchRows)*width]
		if _, err := io.ReadFull(r, bytesview.Bytes(keys)); err != nil {
			return fmt.Errorf("reading %d keys: %w", len(keys), err)
		}
		if _, err := io.ReadFull(r, bytesview.Bytes(values)); err != nil {
			return fmt.Errorf("reading %d rows: %w", len(keys), err)
		}
		swap(keys, values)
		if err := m.store(keys, values, keep); err != nil {
			return err
		}
	}
	if keep == nil {
		copy(m.marks[:], head.Marks)
	}
	return nil
}

// store imports the rows that keep accepts.
func (m *memory) store(keys []uint64, values []float32, keep func(uint64) bool) error {
	width, n := m.table.Width(), 0
	for i, key := range keys {
		if keep == nil || keep(key) {
			if n != i {
				copy(values[n*width:][:width], values[i*width:])
			}
			keys[n] = key
			n++
		}
	}
	_, err := m.table.Import(keys[:n], values[:n*width], nil, true)
	return err
}
