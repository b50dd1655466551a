// Package schema says what tables a parameter server holds, and which server holds
// what of them. Trainers and servers read the same schema: its hash tells that they
// do.
package schema

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ringo-ml/ringo/internal/rowinit"
	"github.com/ringo-ml/ringo/optim"
)

// Limits of a schema.
const (
	MaxTables    = 1024    // of each kind
	MaxDim       = 1 << 16 // weights in a row
	MaxLen       = 1 << 40 // values of a dense array
	MaxNameBytes = 256
)

// Schema is what a job keeps on its servers. Tables and arrays are known by their
// place in it.
type Schema struct {
	Sparse []Sparse `json:"sparse,omitempty"`
	Dense  []Dense  `json:"dense,omitempty"`
	// Inputs describe the inputs and outputs of the model in their order, as far as they have
	// names. They are no part of the hash; a job that begins with another job's tables needs the
	// same ones.
	Inputs []string `json:"inputs,omitempty"`
}

// Sparse is a table of rows by 64-bit key, cut over the servers by [Owner]. Rows are
// made when they are first touched.
type Sparse struct {
	Name string `json:"name"`           // initial weights depend on it
	Dim  int    `json:"dim"`            // weights in a row, 1 to MaxDim
	Rule Rule   `json:"rule"`           // moves rows
	Init Init   `json:"init"`           // begins them
	Seed uint64 `json:"seed,omitempty"` // of Init's streams
	// Admission says which keys get a row, as shard.Admission reads it, where the server's settings
	// say nothing of this table. "": what they say of all.
	Admission string `json:"admission,omitempty"`
}

// Dense is an array of float32, such as all dense parameters of a model, cut over
// the servers by [Cut].
type Dense struct {
	Name string `json:"name"`
	Len  int    `json:"len"`  // values, 1 to MaxLen
	Rule Rule   `json:"rule"` // moves them
}

// Init says with what weights rows begin. A model's own tables begin with the same.
type Init = rowinit.Spec

// Validate reports everything that is wrong, together.
func (s *Schema) Validate() error {
	var errs []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("schema: "+format, args...))
		}
	}
	fault(len(s.Sparse)+len(s.Dense) == 0, "no table and no array: there is nothing to serve")
	fault(len(s.Sparse) > MaxTables || len(s.Dense) > MaxTables, "%d tables and %d arrays: want at most %d each", len(s.Sparse), len(s.Dense), MaxTables)
	seen := map[string]bool{}
	name := func(kind string, i int, name string) {
		fault(name == "" || len(name) > MaxNameBytes, "%s %d has a name of %d bytes: want 1 to %d", kind, i, len(name), MaxNameBytes)
		fault(name != "" && seen[name], "two are named %q", name)
		seen[name] = true
	}
	for i, t := range s.Sparse {
		name("table", i, t.Name)
		fault(t.Dim < 1 || t.Dim > MaxDim, "table %q: rows of %d weights: want 1 to %d", t.Name, t.Dim, MaxDim)
		if _, err := t.Rule.Rows(); err != nil {
			fault(true, "table %q: %w", t.Name, err)
		}
		if _, err := t.Init.Init(); err != nil {
			fault(true, "table %q: %w", t.Name, err)
		}
	}
	for i, d := range s.Dense {
		name("array", i, d.Name)
		fault(d.Len < 1 || d.Len > MaxLen, "array %q: %d values: want 1 to %d", d.Name, d.Len, MaxLen)
		if _, err := d.Rule.Dense(); err != nil {
			fault(true, "array %q: %w", d.Name, err)
		}
	}
	return errors.Join(errs...)
}

// Hash is the SHA-256 of the schema's canonical form in hexadecimal: equal for
// schemas that mean the same. A schema that Validate refuses may have none: "".
func (s *Schema) Hash() string {
	c := Schema{Sparse: append([]Sparse{}, s.Sparse...), Dense: s.Dense}
	for i := range c.Sparse {
		if init := &c.Sparse[i].Init; init.Name == "zeros" {
			init.Name = ""
		}
	}
	b, err := json.Marshal(c) // the keys of maps are sorted, numbers have their shortest form
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Counts is how many values follow a row's gradient in a push to the table: see
// optim.CountedRule. It is 0 for most, and for one that Validate refuses.
func (t *Sparse) Counts() int {
	rule, err := t.Rule.Rows()
	if err != nil {
		return 0
	}
	return optim.Counts(rule)
}

// Parts are the parts of the state that a table's rows have beside their weights.
func (t *Sparse) Parts() ([]optim.RowPart, error) {
	rule, err := t.Rule.Rows()
	if err != nil {
		return nil, err
	}
	return rule.Parts(t.Dim), nil
}
