package metrics

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/ringo-ml/ringo/internal/dirlock"
)

// Dir is the folder in which the processes of a job on one host have their figures, a file of some
// KiB each, in memory where the system has a place for that (/dev/shm). Each rank holds a lock on
// its file, which the system takes back when its process ends, however that ends.
type Dir struct {
	path  string
	visit *dirlock.Visit
}

// prefix is how the folders of boards are called, with the user's number and the job's name.
const prefix = "ringo-metrics-"

// base is where boards are.
func base() string {
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		return "/dev/shm"
	}
	return os.TempDir()
}

// PathOf is the folder of the job with a secret, which it does not tell: all its processes of one user on one host find the same.
func PathOf(secret []byte) string {
	sum := sha256.Sum256(append([]byte("ringo metrics "), secret...))
	return filepath.Join(base(), fmt.Sprintf("%s%d-%x", prefix, os.Getuid(), sum[:8]))
}

// Open makes the folder, or finds it. Nobody else but its user may have made it, or may read it. It is there until all that have opened it
// have left or ended.
func Open(path string) (*Dir, error) {
	visit, err := dirlock.Enter(path)
	if err != nil {
		return nil, fmt.Errorf("metrics: a folder for figures: %w", err)
	}
	return &Dir{path: path, visit: visit}, nil
}

// Sweep removes the boards of this user's jobs that were killed. One process of a job does so, before it opens its own.
func Sweep() {
	all, _ := filepath.Glob(filepath.Join(base(), fmt.Sprintf("%s%d-*", prefix, os.Getuid())))
	for _, path := range all {
		dirlock.Clear(path)
	}
}

// Path is where the board is.
func (b *Dir) Path() string { return b.path }

// answering is the file that who answers for the board holds.
const answering = "answers"

// Rank begins the figures of a rank in a job of so many ranks. What an earlier process of that rank has counted is forgotten. An
// error says that another process has the rank.
func (b *Dir) Rank(rank, size int) (*RankMetrics, error) {
	if size < 1 || size > maxRanks || rank < 0 || rank >= size {
		return nil, fmt.Errorf("metrics: rank %d of %d: want 0 to %d", rank, size, maxRanks-1)
	}
	return b.begin(OfRank, "rank", rank, size)
}

// Aggregator begins the figures of a server that sums for so many ranks, likewise.
func (b *Dir) Aggregator(server, size int) (*RankMetrics, error) {
	if size < 1 || size > maxRanks || server < 0 || server >= maxRanks {
		return nil, fmt.Errorf("metrics: server %d of %d ranks: want 0 to %d", server, size, maxRanks-1)
	}
	return b.begin(OfAggregator, "server", server, size)
}

// begin claims the file of a process by its role and number, and begins its figures there. The file's name is how a reader finds it; what is
// in it says whose it is.
func (b *Dir) begin(role Role, what string, number, size int) (*RankMetrics, error) {
	_, words := layout(role, size)
	m, err := b.claim(fmt.Sprintf("%s-%d", what, number), words)
	if err != nil {
		return nil, fmt.Errorf("metrics: the figures of %s %d: %w", what, number, err)
	}
	f := newFigures(role, m.words, number, size, os.Getpid())
	f.done = func() error {
		defer runtime.KeepAlive(b) // who counts is within the folder
		return m.release()
	}
	return f, nil
}

// Answer makes this process the one that answers for the board, until release is called. ok is false while another one does.
func (b *Dir) Answer() (release func() error, ok bool, err error) {
	m, err := b.claim(answering, 1)
	if errors.Is(err, errHeld) {
		return nil, false, nil
	} else if err != nil {
		return nil, false, fmt.Errorf("metrics: %w", err)
	}
	return m.release, true, nil
}

// errHeld says that another process holds a file.
var errHeld = errors.New("another process has them")

// Reading is what a rank, or a server that sums, has counted.
type Reading struct {
	// Role is OfRank or OfAggregator, Rank the number of the rank or server, and Size how many
	// ranks the job has.
	Role       Role
	Rank, Size int
	// Alive says that its process runs.
	Alive  bool
	Values []Value
}

// Read are the figures of all ranks of this host, by rank, and then of servers that sum, those that have died among them. Files that are none are left out.
func (b *Dir) Read() (out []Reading) {
	files, _ := os.ReadDir(b.path) // of a board that is gone there are none
	for _, file := range files {
		if !strings.HasPrefix(file.Name(), "rank-") && !strings.HasPrefix(file.Name(), "server-") {
			continue
		}
		if r, ok := b.read(filepath.Join(b.path, file.Name())); ok {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b Reading) int { return cmp.Or(cmp.Compare(a.Role, b.Role), cmp.Compare(a.Rank, b.Rank)) })
	return out
}

func (b *Dir) read(path string) (Reading, bool) {
	m, alive, err := look(path)
	if err != nil {
		return Reading{}, false
	}
	defer m.release()
	if len(m.words) < headWords || atomic.LoadUint64(&m.words[headMagic]) != magic || atomic.LoadUint64(&m.words[headVersion]) != version {
		return Reading{}, false
	}
	rank, size := atomic.LoadUint64(&m.words[headRank]), atomic.LoadUint64(&m.words[headSize])
	at := atomic.LoadUint64(&m.words[headRole])
	if size < 1 || size > maxRanks || rank >= maxRanks || at >= uint64(len(counting)) || counting[at] == OfRank && rank >= size {
		return Reading{}, false
	}
	f := &RankMetrics{role: counting[at], words: m.words, size: int(size)}
	words := 0
	if f.at, words = layout(f.role, f.size); words != len(m.words) {
		return Reading{}, false
	}
	return Reading{Role: f.role, Rank: int(rank), Size: int(size), Alive: alive, Values: f.Values()}, true
}

// Leave closes the board, and removes it if no other process has it open.
func (b *Dir) Leave() { _ = b.visit.Leave() }
