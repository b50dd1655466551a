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

// Dir is the folder with the metrics of a job's processes on one host: a file of a few KiB per
// process, in memory if the system has /dev/shm. Each rank holds a lock on its file, released by
// the system when the process ends in any way.
type Dir struct {
	path  string
	visit *dirlock.Visit
}

// prefix is the prefix of folder names, followed by the user's number and the job's name.
const prefix = "ringo-metrics-"

func base() string {
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		return "/dev/shm"
	}
	return os.TempDir()
}

// PathOf returns the folder of the job with a secret, without revealing the secret: all processes
// of a job, of one user on one host, get the same path.
func PathOf(secret []byte) string {
	sum := sha256.Sum256(append([]byte("ringo metrics "), secret...))
	return filepath.Join(base(), fmt.Sprintf("%s%d-%x", prefix, os.Getuid(), sum[:8]))
}

// Open creates or opens the folder. A folder created by, or readable for, another user is an error.
// The folder exists until all processes that opened it have left or ended.
func Open(path string) (*Dir, error) {
	visit, err := dirlock.Enter(path)
	if err != nil {
		return nil, fmt.Errorf("metrics: a folder for figures: %w", err)
	}
	return &Dir{path: path, visit: visit}, nil
}

// Sweep removes the folders of this user's killed jobs, called by a single process before Open.
func Sweep() {
	all, _ := filepath.Glob(filepath.Join(base(), fmt.Sprintf("%s%d-*", prefix, os.Getuid())))
	for _, path := range all {
		dirlock.Clear(path)
	}
}

// Path returns the folder's path.
func (b *Dir) Path() string { return b.path }

// answering is the lock file of the process that answers requests for metrics.
const answering = "answers"

// Rank starts the metrics of a rank in a job of size ranks, dropping the values of an earlier
// process of the rank. An error means that another process has the rank.
func (b *Dir) Rank(rank, size int) (*RankMetrics, error) {
	if size < 1 || size > maxRanks || rank < 0 || rank >= size {
		return nil, fmt.Errorf("metrics: rank %d of %d: want 0 to %d", rank, size, maxRanks-1)
	}
	return b.begin(OfRank, "rank", rank, size)
}

// Aggregator starts the metrics of an aggregation server for size ranks, as Rank does.
func (b *Dir) Aggregator(server, size int) (*RankMetrics, error) {
	if size < 1 || size > maxRanks || server < 0 || server >= maxRanks {
		return nil, fmt.Errorf("metrics: server %d of %d ranks: want 0 to %d", server, size, maxRanks-1)
	}
	return b.begin(OfAggregator, "server", server, size)
}

// begin claims the file of a process by role and number, and starts the metrics. Readers find the
// file by name; the contents have the role and number.
func (b *Dir) begin(role Role, what string, number, size int) (*RankMetrics, error) {
	_, words := layout(role, size)
	m, err := b.claim(fmt.Sprintf("%s-%d", what, number), words)
	if err != nil {
		return nil, fmt.Errorf("metrics: the figures of %s %d: %w", what, number, err)
	}
	f := newFigures(role, m.words, number, size, os.Getpid())
	f.done = func() error {
		defer runtime.KeepAlive(b) // the process is in the folder while it counts
		return m.release()
	}
	return f, nil
}

// Answer makes this process answer requests until release; ok is false if another process does.
func (b *Dir) Answer() (release func() error, ok bool, err error) {
	m, err := b.claim(answering, 1)
	if errors.Is(err, errHeld) {
		return nil, false, nil
	} else if err != nil {
		return nil, false, fmt.Errorf("metrics: %w", err)
	}
	return m.release, true, nil
}

// errHeld means that another process holds a file.
var errHeld = errors.New("another process has them")

// Reading is the metrics of a rank or an aggregation server.
type Reading struct {
	// Role is OfRank or OfAggregator, Rank the rank's or server's number, Size the world size.
	Role       Role
	Rank, Size int
	// Alive reports whether the process runs.
	Alive  bool
	Values []Value
}

// Read returns the metrics of all ranks of this host, by rank, and then of aggregation servers,
// including dead processes. Invalid files are left out.
func (b *Dir) Read() (out []Reading) {
	files, _ := os.ReadDir(b.path) // a removed folder has no files
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

// Leave closes the folder, and removes it if no other process uses the folder.
func (b *Dir) Leave() { _ = b.visit.Leave() }
