package cluster

import (
	"fmt"
	"slices"
	"strings"
)

// MismatchError means that the ranks run different operations.
type MismatchError struct {
	Number    uint32   // number of the first difference
	Operation []string // different operations
	Ranks     [][]int  // ranks of each operation
}

// Error returns the operations with their ranks.
func (e *MismatchError) Error() string {
	var parts []string
	for i, what := range e.Operation {
		parts = append(parts, fmt.Sprintf("%s in %s", rankList(e.Ranks[i]), what))
	}
	return fmt.Sprintf("the ranks differ in operation %d: %s; all ranks must start the same operations, in the same order, with the same sizes",
		e.Number, strings.Join(parts, ", "))
}

// FindMismatch compares the started operations of all ranks and returns the first operation with
// different descriptions, or nil. A mesh detects differences when a message meets a receive of
// another operation; FindMismatch needs no messages. Cost: O(N) for N ranks.
func FindMismatch(begun [][]Begun) error {
	type seen struct {
		what string
		rank int
	}
	first := map[uint32]seen{}
	least, found := uint32(0), false
	for r, ops := range begun {
		for _, op := range ops {
			switch s, ok := first[op.Number]; {
			case !ok:
				first[op.Number] = seen{op.Operation, r}
			case s.what != op.Operation && (!found || op.Number < least):
				least, found = op.Number, true
			}
		}
	}
	if !found {
		return nil
	}
	e := &MismatchError{Number: least}
	for r, ops := range begun {
		for _, op := range ops {
			if op.Number != least {
				continue
			}
			i := slices.Index(e.Operation, op.Operation)
			if i < 0 {
				i = len(e.Operation)
				e.Operation, e.Ranks = append(e.Operation, op.Operation), append(e.Ranks, nil)
			}
			e.Ranks[i] = append(e.Ranks[i], r)
		}
	}
	return e
}
