package service

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/cluster/rendezvous"
	"github.com/ringo-ml/ringo/internal/heter/message"
	"github.com/ringo-ml/ringo/internal/panics"
	"github.com/ringo-ml/ringo/internal/quantity"
)

// StepGroup is a group of heter-trainers that sum gradients. A call fails when a member is lost, or
// the group's context ends.
type StepGroup interface {
	// Sum makes x the sum over all members, with the same bits on each.
	Sum(x []float32) error
	// Trade sends each member a range of src, and receives a range from each into dst. Ranges are
	// in the order of members, with the given lengths.
	Trade(dst, src []float32, sent, received []int) error
	// Gather makes dst the values of all members, of the given lengths, by member.
	Gather(dst, src []float32, lengths []int) error
	// Copy makes x equal to that of the member with index from.
	Copy(x []float32, from int) error
	Close() error
}

// Over returns a collective group of the members as a StepGroup. leave ends it.
func Over(g *collective.Group, leave func() error) StepGroup { return over{g, leave} }

type over struct {
	g     *collective.Group
	leave func() error
}

// While a group waits, other members may still compute: the waits sleep, and leave the core or the
// quota to working processes.

func (o over) Sum(x []float32) error { return collective.StartAllReduce(o.g, x, collective.Sum).Wait() }
func (o over) Trade(dst, src []float32, sent, received []int) error {
	return collective.StartAllToAllV(o.g, dst, src, sent, received).Wait()
}
func (o over) Gather(dst, src []float32, lengths []int) error {
	return collective.StartAllGatherV(o.g, dst, src, lengths).Wait()
}
func (o over) Copy(x []float32, from int) error {
	return collective.StartBroadcast(o.g, x, from).Wait()
}
func (o over) Close() error { return o.leave() }

// GroupSpec describes a group of heter-trainers: no two have the same step and attempt.
type GroupSpec struct {
	Members []int // ascending numbers; the index in Members is that in the group
	Step    uint64
	Attempt int
	// Place is the rendezvous for the first member's address; nil without Config.Addrs.
	Place rendezvous.Backend
}

// stepCommit has the ends of steps from trainers, and the state of the agreement on one step.
//
//	             all trainers sent the same end               the group has the sum,
//	             with members that all of them have           the device is updated
//	+----------+ -------------------------------> +---------+ ----------------------> +-----------+
//	| waiting  |                                  | active  |                         | committed |
//	+----------+ <-------------+                  +---------+                         +-----------+
//	     |                     |                    |     |                                 |
//	     | some trainers lost  | RetryEnd           |     | device error, no state left,    | Commit to
//	     | a member: RetryEnd  | with attempt + 1   |     | or attempt 16                   | all trainers
//	     v                     |                    v     v                                 v
//	(attempt + 1) -------------+------- lost or void     failed: the job ends          (step + 1)
//
// A newer end of any trainer makes an active agreement void and cancels its group.
type stepCommit struct {
	ends    []message.End // last end by trainer; step 0: none
	step    uint64        // last processed step
	attempt int
	// active reports whether an agreement is running; void, whether trainers have sent a newer end
	// since then. cancel ends the group's context.
	active, void bool
	cancel       context.CancelFunc
}

// interrupt cancels a running agreement.
func (c *stepCommit) interrupt() {
	if c.void = c.active; c.void && c.cancel != nil {
		c.cancel()
	}
}

// newer reports whether a is of a later step or attempt than b.
func newer(a, b message.End) bool {
	return a.Step > b.Step || a.Step == b.Step && a.Attempt > b.Attempt
}

// follows reports whether an end may follow a trainer's previous one. The first end at a
// replacement is of any step.
func follows(e, last message.End, late bool) bool {
	switch e.Step {
	case last.Step + 1:
		return true
	case last.Step:
		return last.Step > 0 && (e.Attempt > last.Attempt || e.Attempt == last.Attempt && last.Open && !e.Open)
	}
	return late && last.Step == 0
}

func (s *Server) end(trainer int, e message.End) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.closing.ends[trainer]
	switch {
	case !follows(e, last, s.joining):
		return message.Malformed("trainer %d ends step %d in attempt %d, it has ended %d in attempt %d", trainer, e.Step, e.Attempt, last.Step, last.Attempt)
	case len(e.Members) != s.cfg.Count:
		return message.Malformed("trainer %d knows of %d heter-trainers, there are %d", trainer, len(e.Members), s.cfg.Count)
	case e.Members[s.cfg.Index] != s.incarnation:
		return fmt.Errorf("trainer %d has lost this heter-trainer, and goes on without it", trainer)
	}
	first := true
	for i, other := range s.closing.ends {
		if other.Step == e.Step && other.Rate != e.Rate {
			return message.Malformed("trainer %d ends step %d at the learning rate %s, trainer %d at %s", trainer, e.Step, quantity.Exact(e.Rate), i, quantity.Exact(other.Rate))
		}
		first = first && newer(e, other)
	}
	s.closing.ends[trainer] = e
	if e.Step == 1 {
		s.recordMembers(e.Members)
	}
	if first && e.Attempt > 1 { // others may not have detected the loss
		gone := slices.DeleteFunc(slices.Clone(s.known), func(life uint64) bool { return slices.Contains(e.Members, life) })
		s.requestRetry(message.RetryEnd{Step: e.Step, Attempt: e.Attempt, Lost: gone}, trainer)
	}
	if first {
		s.closing.interrupt()
	}
	s.changed.Broadcast()
	return nil
}

// recordMembers adds the incarnations that may have micro-batches of the current step: the members
// at the last end and in failed attempts, and in the first step all that trainers have connected
// to. s.mu is held.
func (s *Server) recordMembers(here []uint64) {
	for _, life := range here {
		if life != 0 && !slices.Contains(s.known, life) {
			s.known = append(s.known, life)
		}
	}
}

// requestRetry requests a step's end again from all trainers, or all except one. s.mu is held.
func (s *Server) requestRetry(a message.RetryEnd, but int) {
	for i, c := range s.conns {
		if c != nil && i != but {
			c.enqueueNotice(notice{message.TypeAgain, a.Append(nil)})
		}
	}
}

// agreedEnd returns the end of a step on which all trainers agree, once. Its members are connected
// to all trainers: a replacement unknown to a trainer has to wait. If only some trainers have lost
// a member, all are informed. s.mu is held.
func (s *Server) agreedEnd() (message.End, bool) {
	c := &s.closing
	e := c.ends[0]
	for _, other := range c.ends {
		if other.Open || other.Step != e.Step || other.Attempt != e.Attempt {
			return e, false
		}
	}
	if e.Step == 0 || e.Step == c.step && e.Attempt <= c.attempt || e.Step < c.step {
		return e, false
	}
	c.step, c.attempt = e.Step, e.Attempt
	gone := slices.DeleteFunc(slices.Clone(s.known), func(life uint64) bool {
		lists := func(other message.End) bool { return slices.Contains(other.Members, life) }
		return !slices.ContainsFunc(c.ends, lists) || allOf(c.ends, lists)
	})
	if len(gone) > 0 {
		s.requestRetry(message.RetryEnd{Step: e.Step, Attempt: e.Attempt + 1, Lost: gone}, -1)
	}
	e.Members = slices.Clone(e.Members)
	for i, life := range e.Members {
		if !allOf(c.ends, func(other message.End) bool { return other.Members[i] == life }) {
			e.Members[i] = 0
		}
	}
	if c.active, c.void = len(gone) == 0, false; c.active {
		s.recordMembers(e.Members)
	}
	return e, c.active
}

func allOf[T any](x []T, is func(T) bool) bool {
	return !slices.ContainsFunc(x, func(v T) bool { return !is(v) })
}

// commitStep ends a step that all trainers have ended. After a loss during the agreement it
// requests a retry from the trainers.
func (s *Server) commitStep(ctx context.Context, e message.End) error {
	s.mu.Lock()
	if s.joining {
		s.step = e.Step // a retry uses a later step
	}
	s.mu.Unlock()
	err := s.agree(ctx, e)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing.active = false
	var local *deviceError
	switch {
	case errors.As(err, &local), errors.Is(err, errNobody):
		return err
	case s.step > e.Step: // committed, despite later errors
		if s.joining {
			s.cfg.Report(fmt.Sprintf("heter-trainer %d: it has the others' parameters, and takes part from step %d on", s.cfg.Index, s.step))
		}
		s.figures.Steps, s.known, s.joining = e.Step, nil, false
		s.recordMembers(e.Members)
		for _, c := range s.conns {
			if c != nil {
				c.enqueueNotice(notice{message.TypeCommit, message.Commit(e.Step).Append(nil)})
			}
		}
		return nil
	case s.err != nil:
		return s.err // cause of the cancelled agreement
	case e.Attempt >= attempts:
		return fmt.Errorf("step %d: agreeing with the other heter-trainers, attempt %d: %w", e.Step, e.Attempt, err)
	}
	s.cfg.Report(fmt.Sprintf("heter-trainer %d: step %d: agreeing with the other heter-trainers: %v; it is repeated", s.cfg.Index, e.Step, err))
	s.requestRetry(message.RetryEnd{Step: e.Step, Attempt: e.Attempt + 1}, -1)
	return nil
}

// attempts is the maximum number of attempts per step. Each except the first follows a loss.
const attempts = 16

// errNobody ends a job after the loss of all heter-trainers with the stage's state.
var errNobody = errors.New("all heter-trainers that are left have come late: nobody has the part's parameters")

// deviceError is an error of the device, which other members cannot repair.
type deviceError struct{ error }

func (e *deviceError) Unwrap() error { return e.error }

// agree sums the step's gradients over all members and updates the parameters, unless done.
func (s *Server) agree(ctx context.Context, e message.End) error {
	if s.cfg.Count > 1 {
		if err := s.formGroup(ctx, e); err != nil {
			s.leaveGroup()
			return err
		}
	}
	if s.step > e.Step { // done by another member
		return nil
	}
	if g := s.device.Gradients(); s.cfg.Count == 1 {
		fold(g, s.sums.parts)
	} else if err := s.sums.exchange(s.group, len(connected(e.Members)), len(connected(e.Members[:s.cfg.Index])), g); err != nil {
		s.leaveGroup()
		return err
	}
	if err := panics.Do(func() error { return s.device.Update(e.Rate, 1/float32(s.cfg.Trainers)) }); err != nil {
		return &deviceError{fmt.Errorf("step %d: %w", e.Step, err)}
	}
	s.committed()
	return nil
}

// committed starts the next step.
func (s *Server) committed() {
	s.sums.reset()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.step++
}

func (s *Server) leaveGroup() {
	if s.group == nil {
		return
	}
	s.mu.Lock()
	s.closing.cancel()
	s.closing.cancel = nil
	s.mu.Unlock()
	_ = s.group.Close() // failed, or no longer needed
	s.group = nil
}

// connected returns the numbers of heter-trainers that are not lost.
func connected(lives []uint64) (members []int) {
	for i, life := range lives {
		if life != 0 {
			members = append(members, i)
		}
	}
	return members
}

// formGroup ensures a group of the remaining members with equal parameters.
func (s *Server) formGroup(ctx context.Context, e message.End) error {
	members := connected(e.Members)
	if s.group != nil && e.Attempt == 1 && slices.Equal(e.Members, s.incarnations) {
		return nil
	}
	s.leaveGroup()
	ctx, cancel := context.WithCancel(ctx)
	s.mu.Lock()
	if s.closing.cancel = cancel; s.closing.void || s.err != nil {
		cancel()
	}
	s.mu.Unlock()
	m := GroupSpec{Members: members, Step: e.Step, Attempt: e.Attempt}
	m.Place = s.place(m)
	g, err := s.cfg.Meet(ctx, m)
	if err != nil {
		cancel()
		return err
	}
	s.group, s.incarnations = g, e.Members
	return s.syncState(e, members)
}

// hasNothing, hasBefore and hasAfter describe a member's state in syncState: none, that of the
// previous step, or that of the ended step.
const (
	hasNothing float32 = iota
	hasBefore
	hasAfter
)

// syncState copies the newest state to members without it: replacements, and members without a sum
// that another member had.
func (s *Server) syncState(e message.End, members []int) error {
	own, has := hasBefore, make([]float32, len(members))
	if s.step > e.Step {
		own = hasAfter
	} else if s.joining { // only this goroutine clears it
		own = hasNothing
	}
	has[slices.Index(members, s.cfg.Index)] = own
	if err := s.group.Sum(has); err != nil {
		return err
	}
	newest := slices.Max(has)
	switch {
	case newest == slices.Min(has) && newest > hasNothing:
		return nil
	case newest == hasNothing:
		return fmt.Errorf("step %d: %w", e.Step, errNobody)
	}
	news := s.device.State()
	if err := s.device.Err(); err != nil {
		return &deviceError{fmt.Errorf("step %d: reading the state: %w", e.Step, err)}
	}
	for i, x := range news {
		if own < newest { // a failed copy must not change the state
			news[i] = slices.Clone(x)
		}
		if err := s.group.Copy(news[i], slices.Index(has, newest)); err != nil {
			return err
		}
	}
	if own == newest {
		return nil
	}
	for i, x := range s.device.State() {
		copy(x, news[i])
	}
	if newest == hasAfter {
		s.committed()
	}
	return nil
}
