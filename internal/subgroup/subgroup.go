// Package subgroup makes groups of some of a job's ranks: their members agree on an ID for
// messages and on a slot in shared memory.
package subgroup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math/bits"
	"slices"
	"sync"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/transport"
)

// Set holds the subgroups of one rank.
type Set struct {
	mesh       transport.Mesh
	rank, size int
	cfg        collective.Config

	mu       sync.Mutex
	forming  *collective.Group     // all ranks, for pairwise messages; nil: no subgroup yet
	next     uint32                // lowest ID that no group of this rank has had
	shmSlots [16]*collective.Group // last user of each slot in shared memory
	open     []*collective.Group   // subgroups without those found closed at the last Make
	closed   bool                  // Close was called: shared memory may be unmapped
}

// formingID is the group ID of the messages by which members agree on an ID.
const formingID = 1<<30 - 1

// New returns an empty set of a rank of size. cfg is the configuration of the group of all ranks.
func New(mesh transport.Mesh, rank, size int, cfg collective.Config) *Set {
	return &Set{mesh: mesh, rank: rank, size: size, cfg: cfg}
}

// Make returns a new group of ranks, after all of these ranks have called Make. Errors: invalid
// ranks, members that give other ranks, a lost rank, a timeout, a closed set.
func (s *Set) Make(ranks []int) (*collective.Group, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, err := s.form(slices.Clone(ranks))
	if err == nil {
		s.open = append(slices.DeleteFunc(s.open, (*collective.Group).Closed), g) // a job may make any number, sequentially
	}
	return g, err
}

// form is Make for ranks that the set retains.
func (s *Set) form(ranks []int) (*collective.Group, error) {
	if err := s.validate(ranks); err != nil {
		return nil, err
	}
	if s.forming == nil {
		cfg := s.cfg
		cfg.Ranks, cfg.ID, cfg.Algorithm, cfg.Profile, cfg.Rules = collective.Ranks(s.size), formingID, "", nil, nil
		g, err := collective.New(s.mesh, cfg)
		if err != nil {
			return nil, err
		}
		s.forming, s.next = g, collective.FirstSubgroup
	}
	id, slot, err := s.agree(ranks)
	if err != nil {
		return nil, err
	}
	s.next = id + 1
	cfg := s.cfg
	cfg.Ranks, cfg.ID, cfg.ShmSlot, cfg.Profile, cfg.Rules = ranks, id, slot, nil, nil
	g, err := collective.New(s.mesh, cfg)
	if err == nil && slot > 0 {
		s.shmSlots[slot-1] = g
	}
	return g, err
}

// validate reports ranks that cannot be a group of this rank.
func (s *Set) validate(ranks []int) error {
	if s.closed {
		return errors.New("the job was closed")
	}
	var errs []error
	for i, r := range ranks {
		if r < 0 || r >= s.size {
			errs = append(errs, fmt.Errorf("%d is not among the job's ranks, 0 to %d", r, s.size-1))
		} else if slices.Contains(ranks[:i], r) {
			errs = append(errs, fmt.Errorf("rank %d is there twice", r))
		}
	}
	if !slices.Contains(ranks, s.rank) {
		errs = append(errs, fmt.Errorf("this rank, %d, is not a member: its members alone make a group", s.rank))
	}
	return errors.Join(errs...)
}

// freeSlots returns the slots that this rank offers to a new group, one bit each.
func (s *Set) freeSlots() (slots int64) {
	for i, last := range s.shmSlots {
		if last == nil || last.ShmReleased() {
			slots |= 1 << i
		}
	}
	return slots
}

// agree returns the lowest ID that no group of any member has had, and the lowest slot that is free
// in all members. Groups without a common rank may have the same ID. The first member collects the
// other members' values. Cost: two messages for each other member.
func (s *Set) agree(ranks []int) (id uint32, slot int, err error) {
	lead, mine := ranks[0], []int64{int64(s.next), s.freeSlots(), hashOf(ranks)}
	if s.rank != lead {
		answer := make([]int64, 2)
		if err := errors.Join(collective.Send(s.forming, mine, lead), collective.Receive(s.forming, answer, lead)); err != nil {
			return 0, 0, err
		}
		return parseAnswer(answer)
	}
	theirs, answer := make([]int64, 3), mine[:2]
	for _, r := range ranks[1:] {
		if err := collective.Receive(s.forming, theirs, r); err != nil {
			return 0, 0, err
		}
		if answer[0] = max(answer[0], theirs[0]); theirs[2] != mine[2] {
			answer[0] = -1
			break // the next ranks may be forming another group
		}
		answer[1] &= theirs[1]
	}
	var errs []error
	for _, r := range ranks[1:] {
		errs = append(errs, collective.Send(s.forming, answer, r))
	}
	if err := errors.Join(errs...); err != nil {
		return 0, 0, err
	}
	return parseAnswer(answer)
}

// parseAnswer returns the ID and the first free slot of an answer; slot -1: none is free.
func parseAnswer(answer []int64) (uint32, int, error) {
	id, slot := answer[0], -1
	if id < 0 {
		return 0, 0, errors.New("another member asks for other ranks, or for these in another order: all are to make the groups that they have in common in the same order")
	}
	if answer[1] != 0 {
		slot = bits.TrailingZeros64(uint64(answer[1])) + 1
	}
	return uint32(id), slot, nil
}

// hashOf returns a hash of ranks and their order.
func hashOf(ranks []int) int64 {
	h := fnv.New64a()
	for _, r := range ranks {
		_ = binary.Write(h, binary.LittleEndian, int64(r)) // never fails
	}
	return int64(h.Sum64())
}

// Waiting calls observe for each subgroup with its longest wait. It skips all while one is forming.
func (s *Set) Waiting(observe func(collective.Wait, bool)) {
	if !s.mu.TryLock() {
		return
	}
	defer s.mu.Unlock()
	for _, g := range s.open {
		observe(g.Waiting())
	}
}

// Err returns the first error of a subgroup, or nil.
func (s *Set) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.open {
		if err := g.Fail(nil); err != nil {
			return err
		}
	}
	return nil
}

// Close closes all subgroups. Make then fails.
func (s *Set) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	var errs []error
	for _, g := range s.open {
		errs = append(errs, g.Close())
	}
	if s.forming != nil {
		errs = append(errs, s.forming.Close())
	}
	return errors.Join(errs...)
}
