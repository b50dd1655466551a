// Package checkpoint saves and loads the state of a run: a description, and named arrays of
// numbers, independent of their meaning.
//
// A checkpoint is a single file, equal on every architecture; numbers are little-endian:
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
// The file ends there. Checksums cover every byte, and the header determines the length of the
// file. Arrays with a rank's prefix, such as "rank3/residual", belong to this rank; see [RankName].
package checkpoint

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/internal/faults"
	"github.com/ringo-ml/ringo/internal/setting"
)

// Header describes a run at the moment of its checkpoint.
type Header struct {
	// Model is the model's name.
	Model string `json:"model"`
	// Step is the number of steps since the run's beginning, and names the file.
	Step int64 `json:"step"`
	// Epoch is the number of completed epochs, and Position the number of completed steps of the
	// epoch after them.
	Epoch    int64 `json:"epoch"`
	Position int64 `json:"position"`
	// NP is the number of ranks, and Strategy the name of the ranks' exchange strategy.
	NP       int    `json:"np"`
	Strategy string `json:"strategy"`
	// Settings are the run's settings.
	Settings setting.Values `json:"settings,omitempty"`
	// Shapes are arrays' shapes, if known, by name.
	Shapes map[string][]int `json:"shapes,omitempty"`
	// More has further entries by name; package checkpoint does not interpret them.
	More map[string]string `json:"more,omitempty"`
}

// State is the content of a checkpoint.
type State struct {
	Header Header
	// Arrays have unique names. Save writes them from their memory, so that they must not change
	// during Save.
	Arrays []Array
	// Keep is the number of checkpoints left in the folder after Save, the ones of the highest
	// steps; 0 keeps all. The new one always stays.
	Keep int
	// Spare lists steps; their checkpoints are kept in addition to the newest Keep.
	Spare []int64
	// Create creates a new file for Save under a temporary name; path is the final name. nil means
	// a file of the file system. Tests inject failing disks.
	Create func(path string) (WriteFile, error)
}

// DefaultKeep is a good value for State.Keep: older files remain if the newest is damaged.
const DefaultKeep = 3

// kind is the type of an array's values.
type kind string

const (
	float32s kind = "float32"
	uint64s  kind = "uint64"
	bytes    kind = "bytes"
)

// width is the size of a value in bytes; 0 for an unknown kind.
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

// Array is a named slice, for Save to write and Read to fill.
type Array struct {
	name   string
	kind   kind
	floats []float32
	words  []uint64
	bytes  []byte

	n    int // number of values, if pass is set
	pass func(part []float32) error
}

// Floats is an array of float32, such as parameters.
func Floats(name string, data []float32) Array {
	return Array{name: name, kind: float32s, floats: data}
}

// Passing is an array of n float32 that is never whole in memory, such as data from another
// machine. Save calls pass, in order, to fill each part; File.Read calls pass with each part that
// it has read. An error of pass ends the operation. All parts of an array but the last have the
// same length: PassingPart.
func Passing(name string, n int, pass func(part []float32) error) Array {
	return Array{name: name, kind: float32s, n: n, pass: pass}
}

// buffer is memory for a part of a streamed array.
func (a Array) buffer() []float32 {
	if a.pass == nil {
		return nil
	}
	return make([]float32, min(a.n, PassingPart))
}

// window returns an array that has values [lo, hi) during a write or read, and the index of value
// lo in it: a itself, or, for a Passing array, the buffer room.
func (a Array) window(lo, hi int, room []float32) (in Array, at int) {
	if a.pass == nil {
		return a, lo
	}
	return Floats(a.name, room[:hi-lo]), 0
}

// PassingPart is the number of values in a part of a Passing array.
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

// Info describes an array of a file.
type Info struct {
	Name string `json:"name"`
	Kind string `json:"kind"` // "float32", "uint64" or "bytes"
	Len  int64  `json:"len"`  // number of values
}

// String returns a text such as "10 float32".
func (i Info) String() string { return fmt.Sprintf("%d %s", i.Len, i.Kind) }

// RankName is the name of one rank's array, such as "rank3/residual". Other ranks may skip it.
func RankName(rank int, name string) string { return fmt.Sprintf("rank%d/%s", rank, name) }

// ofRank reports whether a name is from RankName.
func ofRank(name string) bool {
	prefix, _, ok := strings.Cut(name, "/")
	digits, rank := strings.CutPrefix(prefix, "rank")
	_, err := strconv.ParseUint(digits, 10, 31)
	return ok && rank && err == nil
}

// check reports states that Save cannot write.
func (s State) check() error {
	var bad faults.List
	bad.If(s.Header.Step < 0, "step %d: want 0 or more", s.Header.Step)
	bad.If(s.Keep < 0, "keep %d: want 0 (all) or more", s.Keep)
	bad.Add(unique(s.Arrays)...)
	return bad.Err()
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
