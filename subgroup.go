package ringo

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math/bits"
	"slices"
	"sync"

	"github.com/ringo-ml/ringo/collective"
)

// subgroups are a job's groups of some of its ranks.
type subgroups struct {
	mu       sync.Mutex
	forming  *collective.Group     // of all ranks, for messages between two alone; nil until it is needed
	next     uint32                // the lowest ID that no group of this rank has had
	shmSlots [16]*collective.Group // the last one in each room of the memory that ranks share
	all      []*collective.Group   // that were not found closed when the last one was made
	closed   bool                  // with the job: the memory that its ranks share may be gone
}

// formingID is that of the messages by which members agree on an ID.
const formingID = 1<<30 - 1

// Subgroup makes a group of some of the job's ranks, numbered in the order given; without
// ranks it returns Group(). Its members alone call it, all with the same ranks in the same
// order, and wait for each other. Two ranks that are both members of several subgroups make
// these in the same order; those that have no rank in common may be made at the same time, in any
// order. Each has operations and sequence numbers of its own; a fault of one ends them all, as it ends
// the job. Ranks of one host share memory in 16 groups at a time that a rank is in, and talk over connections
// in more; one that all of its ranks there have closed makes room for another. It lasts until its Close, or the job's.
//
// Errors: a rank that is none, or is there twice, or this one not being a member; members that
// ask for different ranks; one that does not come within Config.Collective.Timeout, or is lost; a job that was closed.
func (j *Job) Subgroup(ranks ...int) (*collective.Group, error) {
	if len(ranks) == 0 {
		return j.group, nil
	}
	j.subs.mu.Lock()
	defer j.subs.mu.Unlock()
	g, err := j.subgroup(slices.Clone(ranks))
	if err != nil {
		return nil, fmt.Errorf("a group of ranks %v: %w", ranks, err)
	}
	j.subs.all = append(slices.DeleteFunc(j.subs.all, (*collective.Group).Closed), g) // a job may make any number, one after the other
	return g, nil
}

// subgroup is Subgroup of ranks that are this rank's to keep.
func (j *Job) subgroup(ranks []int) (*collective.Group, error) {
	if err := j.canGroup(ranks); err != nil {
		return nil, err
	}
	s := &j.subs
	if s.forming == nil {
		cfg := j.collective
		cfg.Ranks, cfg.ID, cfg.Algorithm, cfg.Profile, cfg.Rules = collective.Ranks(j.size), formingID, "", nil, nil
		g, err := collective.New(j.mesh, cfg)
		if err != nil {
			return nil, err
		}
		s.forming, s.next = g, collective.FirstSubgroup
	}
	id, room, err := s.agree(j.rank, ranks)
	if err != nil {
		return nil, err
	}
	s.next = id + 1
	cfg := j.collective
	cfg.Ranks, cfg.ID, cfg.ShmSlot, cfg.Profile, cfg.Rules = ranks, id, room, nil, nil
	g, err := collective.New(j.mesh, cfg)
	if err == nil && room > 0 {
		s.shmSlots[room-1] = g
	}
	return g, err
}

// canGroup reports ranks that make no group, and a job that makes none. subs.mu is held.
func (j *Job) canGroup(ranks []int) error {
	switch {
	case j.subs.closed:
		return errors.New("the job was closed")
	case j.serves():
		return errors.New("this process is a server, which is in no group")
	case j.serversOnly && j.size > 1:
		return errors.New("the job has no mesh among its ranks (Config.ServersOnly), which groups need")
	}
	var errs []error
	for i, r := range ranks {
		if r < 0 || r >= j.size {
			errs = append(errs, fmt.Errorf("%d is not among the job's ranks, 0 to %d", r, j.size-1))
		} else if slices.Contains(ranks[:i], r) {
			errs = append(errs, fmt.Errorf("rank %d is there twice", r))
		}
	}
	if !slices.Contains(ranks, j.rank) {
		errs = append(errs, fmt.Errorf("this rank, %d, is not a member: its members alone make a group", j.rank))
	}
	return errors.Join(errs...)
}

// free are the rooms that this rank can offer another group, a bit each.
func (s *subgroups) free() (rooms int64) {
	for i, last := range s.shmSlots {
		if last == nil || last.ShmReleased() {
			rooms |= 1 << i
		}
	}
	return rooms
}

// agree finds the lowest ID that no group of any member has had, and the first room that is free at all of them: groups without a
// common rank may have the same. The first member asks the others for theirs. It takes two messages for each of them.
func (s *subgroups) agree(rank int, ranks []int) (id uint32, room int, err error) {
	lead, mine := ranks[0], []int64{int64(s.next), s.free(), hashOf(ranks)}
	if rank != lead {
		answer := make([]int64, 2)
		if err := errors.Join(collective.Send(s.forming, mine, lead), collective.Receive(s.forming, answer, lead)); err != nil {
			return 0, 0, err
		}
		return agreed(answer)
	}
	theirs, answer := make([]int64, 3), mine[:2]
	for _, r := range ranks[1:] {
		if err := collective.Receive(s.forming, theirs, r); err != nil {
			return 0, 0, err
		}
		if answer[0] = max(answer[0], theirs[0]); theirs[2] != mine[2] {
			answer[0] = -1
			break // those that follow may be elsewhere
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
	return agreed(answer)
}

// agreed is what an answer says: an ID, and the rooms that are free at all members.
func agreed(answer []int64) (uint32, int, error) {
	id, room := answer[0], -1
	if id < 0 {
		return 0, 0, errors.New("another member asks for other ranks, or for these in another order: all are to make the groups that they have in common in the same order")
	}
	if answer[1] != 0 {
		room = bits.TrailingZeros64(uint64(answer[1])) + 1
	}
	return uint32(id), room, nil
}

func hashOf(ranks []int) int64 {
	h := fnv.New64a()
	for _, r := range ranks {
		_ = binary.Write(h, binary.LittleEndian, int64(r)) // never fails
	}
	return int64(h.Sum64())
}

// waiting is the longest wait in a subgroup.
func (s *subgroups) waiting(look func(collective.Wait, bool)) {
	if !s.mu.TryLock() { // one is being made: its wait is not told
		return
	}
	defer s.mu.Unlock()
	for _, g := range s.all {
		look(g.Waiting())
	}
}

// broken is the first fault of one of them, nil without one.
func (s *subgroups) broken() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.all {
		if fault := g.Fail(nil); fault != nil {
			return fault
		}
	}
	return nil
}

// close ends them all, and lets no more be made.
func (s *subgroups) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	var errs []error
	for _, g := range s.all {
		errs = append(errs, g.Close())
	}
	if s.forming != nil {
		errs = append(errs, s.forming.Close())
	}
	return errors.Join(errs...)
}
