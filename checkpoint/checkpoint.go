// Package checkpoint saves and loads the state of a run: a description, and
// named arrays of numbers. It knows nothing of what they mean.
//
// A checkpoint is one file, the same on every architecture; numbers are
// little-endian:
//
//	offset  bytes
//	0       8     "RINGOCKP"
//	8       4     version of the format, 1
//	12      4     h, the header's length, at most 16 MiB
//	16      h     the header: JSON, with the names, kinds and lengths of arrays
//	16+h    4     CRC-32C of all bytes before
//	then for each array, in the header's order:
//	        n     its values
//	        4     CRC-32C of its values
//
// and nothing after. Every byte is covered by a checksum, and the length of the
// file follows from the header. Arrays whose names begin with a rank, such as
// "rank3/residual", are that rank's alone; see [RankName].
package checkpoint

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/internal/setting"
)

// Header describes a run at the moment of its checkpoint.
type Header struct {
	// Model is the model's name.
	Model string `json:"model"`
	// Step is how many steps have been done since the run's beginning, and
	// gives the file its name.
	Step int64 `json:"step"`
	// Epoch is how many epochs have been done, and Position how many steps of
	// the next one.
	Epoch    int64 `json:"epoch"`
	Position int64 `json:"position"`
	// NP is the number of ranks, and Strategy how they agreed on gradients.
	NP       int    `json:"np"`
	Strategy string `json:"strategy"`
	// Settings are the run's settings.
	Settings setting.Values `json:"settings,omitempty"`
	// Shapes are those of arrays that have one, by name.
	Shapes map[string][]int `json:"shapes,omitempty"`
	// More is for what has no field of its own.
	More map[string]string `json:"more,omitempty"`
}

// State is what a checkpoint holds.
type State struct {
	Header Header
	// Arrays have unique names. They are written from where they lie and must
	// not change meanwhile.
	Arrays []Array
	// Keep is how many checkpoints remain in the folder after Save, those of
	// the highest steps; 0 keeps all. The one just saved always remains.
	Keep int
	// Spare are steps whose checkpoints remain besides.
	Spare []int64
	// Create makes a file for Save, which must not exist, that path names when it is whole; nil: one of the
	// file system. With others, disks that fail can be tried.
	Create func(path string) (WriteFile, error)
}

// DefaultKeep is a good value for State.Keep: it leaves a choice when the
// newest file is damaged.
const DefaultKeep = 3

// kind is the type of an array's values.
type kind string

const (
	float32s kind = "float32"
	uint64s  kind = "uint64"
	bytes    kind = "bytes"
)

// width is how many bytes a value has; 0 for an unknown kind.
func (k kind) width() int {
	switch k {
	case float32s:
		return 4
	case uint64s:
		return 8
	case bytes:
		return 1
	}
	return 0
}

// Array is a named slice: what Save writes and what Read fills.
type Array struct {
	name   string
	kind   kind
	floats []float32
	words  []uint64
	bytes  []byte

	n    int // of one that is nowhere whole
	pass func(part []float32) error
}

// Floats is an array of float32, such as parameters.
func Floats(name string, data []float32) Array {
	return Array{name: name, kind: float32s, floats: data}
}

// Passing is an array of n float32 that is nowhere whole in memory, such as what
// another machine holds. It goes by in parts, in order: Save calls pass to fill
// each, File.Read to hand each out. An error of pass ends the operation. Parts of
// one array have the same length, but for the last, in both: PassingPart.
func Passing(name string, n int, pass func(part []float32) error) Array {
	return Array{name: name, kind: float32s, n: n, pass: pass}
}

// buffer is memory for a part of an array that is nowhere whole.
func (a Array) buffer() []float32 {
	if a.pass == nil {
		return nil
	}
	return make([]float32, min(a.n, PassingPart))
}

// window is where values [lo, hi) are while they are written or read: in a itself,
// from lo on, or in room.
func (a Array) window(lo, hi int, room []float32) (in Array, at int) {
	if a.pass == nil {
		return a, lo
	}
	return Floats(a.name, room[:hi-lo]), 0
}

// PassingPart is how many values of an array of Passing go by at a time.
const PassingPart = chunkBytes / 4

// Words is an array of uint64, such as counters and a generator's state.
func Words(name string, data []uint64) Array {
	return Array{name: name, kind: uint64s, words: data}
}

// Bytes is an array of bytes.
func Bytes(name string, data []byte) Array {
	return Array{name: name, kind: bytes, bytes: data}
}

func (a Array) len() int { return max(a.n, len(a.floats), len(a.words), len(a.bytes)) }

func (a Array) info() Info { return Info{Name: a.name, Kind: string(a.kind), Len: int64(a.len())} }

// Info says what array a file holds.
type Info struct {
	Name string `json:"name"`
	Kind string `json:"kind"` // "float32", "uint64" or "bytes"
	Len  int64  `json:"len"`  // in values
}

// String is such as "10 float32".
func (i Info) String() string { return fmt.Sprintf("%d %s", i.Len, i.Kind) }

// RankName is the name of an array that belongs to one rank, such as
// "rank3/residual". Other ranks need not read it.
func RankName(rank int, name string) string { return fmt.Sprintf("rank%d/%s", rank, name) }

// ofRank tells whether a name is one of RankName's.
func ofRank(name string) bool {
	prefix, _, ok := strings.Cut(name, "/")
	digits, rank := strings.CutPrefix(prefix, "rank")
	_, err := strconv.ParseUint(digits, 10, 31)
	return ok && rank && err == nil
}

// check reports what Save cannot write.
func (s State) check() error {
	var errs []error
	if s.Header.Step < 0 {
		errs = append(errs, fmt.Errorf("step %d: want 0 or more", s.Header.Step))
	}
	if s.Keep < 0 {
		errs = append(errs, fmt.Errorf("keep %d: want 0 (all) or more", s.Keep))
	}
	errs = append(errs, unique(s.Arrays)...)
	return errors.Join(errs...)
}

func unique(arrays []Array) (errs []error) {
	seen := map[string]bool{}
	for _, a := range arrays {
		if a.name == "" || seen[a.name] {
			errs = append(errs, fmt.Errorf("array %q of %v: want a name that no other array has", a.name, a.info()))
		}
		seen[a.name] = true
	}
	return errs
}
