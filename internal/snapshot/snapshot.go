// Package snapshot keeps checkpoints of a job in the memory of its host. The launcher creates the
// memory and every rank has it, so a snapshot survives the death of any rank. The kernel frees the
// memory with the last process of the job, even after a crash.
//
//	m, err := snapshot.Create()              // in the launcher, which passes m.Files to the ranks
//	m := snapshot.Open(os.Getenv(FDVar))     // in a rank
//	checkpoint.Write(…, State{Create: m.Create}), then m.Commit()
//	path, step := m.Latest()                 // checkpoint.Load(path) reads the snapshot
//
// Two slots are written alternately. A slot has the bytes of a checkpoint's file; its first bytes
// are written last, so that a slot is complete or does not count.
//
// # Limits
//
// Only Linux has such memory. The memory is no file system's: the size of /dev/shm has no effect,
// and a control group's limit counts it.
package snapshot

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/internal/cgroup"
	"github.com/ringo-ml/ringo/internal/memfd"
	"github.com/ringo-ml/ringo/internal/quantity"
)

// FDVar is the variable with the descriptor of the first slot in a rank. The second slot has the
// next one.
const FDVar = "RINGO_SNAPSHOT_FD"

// Name is a snapshot in texts. Dir is the folder of Latest's paths.
const (
	Name = "a snapshot in memory"
	Dir  = "/proc/self/fd"
)

// Slots grow in pieces, each only while a part of the host's memory remains free.
const (
	piece     = 16 << 20
	remaining = 8 // the part that remains: 1/8
)

// Memory is two slots. Only one process writes at a time.
type Memory struct {
	// Steps is the number of steps between snapshots. 0 means that the run measures their cost.
	Steps int
	// Kept is what a run of this process leaves for the next one: its open data set, or nil.
	Kept any

	files [2]*os.File
	sizes [2]int64 // bytes that have memory
	next  int      // slot of the next snapshot, if known
	known bool
	open  *slot // being written
	short error // reason why a snapshot was not written
	free  func() (free, all int64)
}

// Create returns new memory.
func Create() (*Memory, error) {
	m := &Memory{free: free}
	for i := range m.files {
		fd, err := memfd.Create("ringo-snapshot", 0)
		if err != nil {
			m.Close()
			return nil, fmt.Errorf("memory for snapshots: %w", err)
		}
		m.files[i] = os.NewFile(uintptr(fd), "snapshot")
	}
	return m, nil
}

// Open returns the memory that the launcher has passed to this process, by the value of FDVar; nil
// without memory.
func Open(text string) *Memory {
	first, err := strconv.Atoi(text)
	if err != nil {
		return nil
	}
	m := &Memory{free: free}
	for i := range m.files {
		if m.files[i] = inherited(first + i); m.files[i] == nil {
			m.Close()
			return nil
		}
	}
	return m
}

type key struct{}

// With returns a context for the runs of a process with memory for snapshots, which may be nil.
func With(ctx context.Context, m *Memory) context.Context { return context.WithValue(ctx, key{}, m) }

// From returns the memory of With, or nil.
func From(ctx context.Context) *Memory {
	if ctx == nil {
		return nil
	}
	m, _ := ctx.Value(key{}).(*Memory)
	return m
}

// Files returns the slots, to pass to a process. A nil Memory has none.
func (m *Memory) Files() []*os.File {
	if m == nil {
		return nil
	}
	return m.files[:]
}

// Close closes the slots.
func (m *Memory) Close() {
	for _, f := range m.Files() {
		_ = f.Close() // a nil file closes without effect
	}
}

// Latest returns the path and the step of the newest snapshot, in this process; "" without one.
func (m *Memory) Latest() (path string, step int64) {
	if i, step := m.latest(); i >= 0 {
		return m.path(i), step
	}
	return "", 0
}

func (m *Memory) path(i int) string { return fmt.Sprintf("%s/%d", Dir, m.files[i].Fd()) }

func (m *Memory) latest() (newest int, step int64) {
	newest = -1
	for i := range m.Files() {
		f, err := checkpoint.Load(m.path(i))
		if err != nil {
			continue // not complete
		}
		if newest < 0 || f.Header.Step > step {
			newest, step = i, f.Header.Step
		}
		_ = f.Close() // read only
	}
	return newest, step
}

// Create opens the slot that is not the newest, for checkpoint.State.
func (m *Memory) Create(string) (checkpoint.WriteFile, error) {
	if !m.known {
		newest, _ := m.latest()
		m.next, m.known = 1-max(newest, 0), true
	}
	s := &slot{memory: m, file: m.files[m.next], i: m.next}
	if _, m.short = s.file.WriteAt(make([]byte, len(checkpoint.Magic)), 0); m.short != nil {
		return nil, m.short
	}
	m.open = s
	return s, nil
}

// Commit makes the slot that Create opened, and checkpoint.Write has filled, the newest snapshot.
func (m *Memory) Commit() error {
	s := m.open
	err := s.file.Truncate(s.size)
	if err == nil {
		_, err = s.file.WriteAt(s.magic, 0)
	}
	m.next = 1 - s.i
	return err
}

// Short returns the reason why the last snapshot has no space in memory, or nil.
func (m *Memory) Short() error { return m.short }

// Clear frees the memory of both slots.
func (m *Memory) Clear() {
	for i, f := range m.files {
		_ = f.Truncate(0) // memory that remains is freed with the job
		m.sizes[i] = 0
	}
}

// slot is a checkpoint's file in memory.
type slot struct {
	memory *Memory
	file   *os.File
	i      int
	size   int64
	magic  []byte // first bytes, written by Commit
}

func (s *slot) Name() string { return "" }
func (s *slot) Sync() error  { return nil }
func (s *slot) Close() error { return nil }

// Write appends b.
func (s *slot) Write(b []byte) (int, error) {
	n, at := len(b), s.size
	if at == 0 {
		if n < len(checkpoint.Magic) {
			return 0, io.ErrShortWrite
		}
		s.magic, b, at = append(s.magic, b[:len(checkpoint.Magic)]...), b[len(checkpoint.Magic):], int64(len(checkpoint.Magic))
	}
	s.size += int64(n)
	err := s.memory.grow(s.i, s.size)
	if err == nil {
		_, err = s.file.WriteAt(b, at)
	}
	if err != nil {
		s.memory.short = err
		return 0, err
	}
	return n, nil
}

// grow reports memory that is short before a slot becomes larger than ever.
func (m *Memory) grow(i int, size int64) error {
	if size <= m.sizes[i] {
		return nil
	}
	m.sizes[i] = size + piece
	if free, all := m.free(); all > 0 && free-piece < all/remaining {
		return fmt.Errorf("%s of %s are free, and %s must remain free", quantity.Bytes(free), quantity.Bytes(all), quantity.Bytes(all/remaining))
	}
	return nil
}

// free returns the free memory of this process's host or control group, and all of it.
func free() (free, all int64) { return cgroup.Free(os.DirFS("/")) }
