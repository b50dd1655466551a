// Package schema describes the tables of parameter servers, and their division between servers.
// Trainers and servers compare the hash of their schemas.
package schema

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/ringo-ml/ringo/internal/faults"
	"github.com/ringo-ml/ringo/internal/rowinit"
	"github.com/ringo-ml/ringo/optim"
)

const (
	MaxTables    = 1024    // maximum of each kind
	MaxDim       = 1 << 16 // maximum weights in a row
	MaxLen       = 1 << 40 // maximum values of a dense array
	MaxNameBytes = 256     // maximum bytes of a name
)

// Schema describes a job's tables and arrays on servers. Their index identifies them.
type Schema struct {
	Sparse []Sparse `json:"sparse,omitempty"`
	Dense  []Dense  `json:"dense,omitempty"`
	// Inputs are the names of the model's inputs and outputs in order, if they have names. Inputs
	// are not part of the hash, but a job that starts from another job's tables needs equal Inputs.
	Inputs []string `json:"inputs,omitempty"`
}

// Sparse is a table of rows by 64-bit key, divided between servers by [Owner]. The first access
// creates a row.
type Sparse struct {
	Name string `json:"name"`           // initial weights depend on Name
	Dim  int    `json:"dim"`            // weights in a row, 1 to MaxDim
	Rule Rule   `json:"rule"`           // updates rows
	Init Init   `json:"init"`           // initialises rows
	Seed uint64 `json:"seed,omitempty"` // seed of Init's streams
	// Admission selects the keys that get a row, in the format of shard.Admission. A server's
	// setting for this table has precedence. "": the server's setting for all tables.
	Admission string `json:"admission,omitempty"`
}

// Dense is a float32 array, such as a model's dense parameters; [Cut] divides it between servers.
type Dense struct {
	Name string `json:"name"`
	Len  int    `json:"len"`  // values, 1 to MaxLen
	Rule Rule   `json:"rule"` // updates values
}

// Init describes the initial weights of rows, equal to those of a model's local tables.
type Init = rowinit.Spec

// Validate returns all errors together.
func (s *Schema) Validate() error {
	bad := faults.In("schema: ")
	bad.If(len(s.Sparse)+len(s.Dense) == 0, "no table and no array: there is nothing to serve")
	bad.If(len(s.Sparse) > MaxTables || len(s.Dense) > MaxTables, "%d tables and %d arrays: want at most %d each", len(s.Sparse), len(s.Dense), MaxTables)
	seen := map[string]bool{}
	name := func(kind string, i int, name string) {
		bad.If(name == "" || len(name) > MaxNameBytes, "%s %d has a name of %d bytes: want 1 to %d", kind, i, len(name), MaxNameBytes)
		bad.If(name != "" && seen[name], "two are named %q", name)
		seen[name] = true
	}
	for i, t := range s.Sparse {
		name("table", i, t.Name)
		bad.If(t.Dim < 1 || t.Dim > MaxDim, "table %q: rows of %d weights: want 1 to %d", t.Name, t.Dim, MaxDim)
		if _, err := t.Rule.Rows(); err != nil {
			bad.If(true, "table %q: %w", t.Name, err)
		}
		if _, err := t.Init.Init(); err != nil {
			bad.If(true, "table %q: %w", t.Name, err)
		}
	}
	for i, d := range s.Dense {
		name("array", i, d.Name)
		bad.If(d.Len < 1 || d.Len > MaxLen, "array %q: %d values: want 1 to %d", d.Name, d.Len, MaxLen)
		if _, err := d.Rule.Dense(); err != nil {
			bad.If(true, "array %q: %w", d.Name, err)
		}
	}
	return bad.Err()
}

// Hash returns the SHA-256 of the schema's canonical form in hexadecimal, equal for equivalent
// schemas. A schema that Validate rejects may return "".
func (s *Schema) Hash() string {
	c := Schema{Sparse: append([]Sparse{}, s.Sparse...), Dense: s.Dense}
	for i := range c.Sparse {
		if init := &c.Sparse[i].Init; init.Name == "zeros" {
			init.Name = ""
		}
	}
	b, err := json.Marshal(c) // sorted map keys, shortest form of numbers
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Counts returns the number of values after a row's gradient in a push to the table: see
// optim.CountedRule. It is 0 for most tables, and for an invalid table.
func (t *Sparse) Counts() int {
	rule, err := t.Rule.Rows()
	if err != nil {
		return 0
	}
	return optim.Counts(rule)
}

// Parts returns the parts of a row's state, such as a momentum; weights are not included.
func (t *Sparse) Parts() ([]optim.RowPart, error) {
	rule, err := t.Rule.Rows()
	if err != nil {
		return nil, err
	}
	return rule.Parts(t.Dim), nil
}
