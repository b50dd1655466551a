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

// StepGroup is some heter-trainers that agree. A call fails when one of them is lost, or the
// context of the meeting ends.
type StepGroup interface {
	// Sum makes x the sum of all members', the same bits on each.
	Sum(x []float32) error
	// Copy makes x what it is on the member with a place in the group.
	Copy(x []float32, from int) error
	Close() error
}

// Over is a group of package collective, of which all members are members, as a StepGroup. leave
// ends it.
func Over(g *collective.Group, leave func() error) StepGroup { return over{g, leave} }

type over struct {
	g     *collective.Group
	leave func() error
}

// Another one may still be at its last micro-batch: operations that are started wait asleep, and leave the core to who has work, or a quota for it.

func (o over) Sum(x []float32) error { return collective.StartAllReduce(o.g, x, collective.Sum).Wait() }
func (o over) Copy(x []float32, from int) error {
	return collective.StartBroadcast(o.g, x, from).Wait()
}
func (o over) Close() error { return o.leave() }

// GroupSpec says which heter-trainers form a group, and when: no two have the same step and
// attempt.
type GroupSpec struct {
	Members []int // their numbers, ascending; the place of each in the group is that here
	Step    uint64
	Attempt int
	// Place is where the first member says at which address the others find it; nil without Config.Addrs.
	Place rendezvous.Backend
}

// stepCommit is the end of a step that trainers have said: what each said last, and what is done of
// it.
type stepCommit struct {
	ends    []message.End // by trainer; of step 0: nothing yet
	step    uint64        // the last one that was looked at
	attempt int
	// active says that the end is being settled, void that trainers have said a newer one meanwhile, and cancel ends the group that
	// settles it.
	active, void bool
	cancel       context.CancelFunc
}

// interrupt ends what is being settled.
func (c *stepCommit) interrupt() {
	if c.void = c.active; c.void && c.cancel != nil {
		c.cancel()
	}
}

// newer says that a is of a later step, or attempt, than b.
func newer(a, b message.End) bool {
	return a.Step > b.Step || a.Step == b.Step && a.Attempt > b.Attempt
}

// follows says whether an end may come after another one of the same trainer. The first one that a late heter-trainer hears is of any step.
func follows(e, last message.End, late bool) bool {
	switch e.Step {
	case last.Step + 1:
		return true
	case last.Step:
		return last.Step > 0 && (e.Attempt > last.Attempt || e.Attempt == last.Attempt && last.Open && !e.Open)
	}
	return late && last.Step == 0
}

// end notes what a trainer says of the end of its step.
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
	if first && e.Attempt > 1 { // others may not know yet
		gone := slices.DeleteFunc(slices.Clone(s.known), func(life uint64) bool { return slices.Contains(e.Members, life) })
		s.requestRetry(message.RetryEnd{Step: e.Step, Attempt: e.Attempt, Lost: gone}, trainer)
	}
	if first {
		s.closing.interrupt()
	}
	s.changed.Broadcast()
	return nil
}

// recordMembers adds to the lives of those that may have had micro-batches of the step under way.
// They are who was there when the last one ended, with those of attempts that have failed here,
// which others may take for members; and in the first step all whom trainers name. s.mu is held.
func (s *Server) recordMembers(here []uint64) {
	for _, life := range here {
		if life != 0 && !slices.Contains(s.known, life) {
			s.known = append(s.known, life)
		}
	}
}

// requestRetry asks all trainers, or all but one, to say the end of a step again. s.mu is held.
func (s *Server) requestRetry(a message.RetryEnd, but int) {
	for i, c := range s.conns {
		if c != nil && i != but {
			c.enqueueNotice(notice{message.TypeAgain, a.Append(nil)})
		}
	}
}

// agreedEnd is the end of a step as all trainers say it, and that it was not looked at yet. Who are
// its members are those that all trainers are connected to: a new one that some do not know yet has
// to wait. Where some have lost one that others have not, all are told. s.mu is held.
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

// commitStep ends a step that all trainers have ended. Where others are lost on the way trainers
// are asked to end it again.
func (s *Server) commitStep(ctx context.Context, e message.End) error {
	s.mu.Lock()
	if s.joining {
		s.step = e.Step // if this fails it tries with a later one
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
	case s.step > e.Step: // whatever has failed since
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
		return s.err // agreeing was ended for it
	case e.Attempt >= attempts:
		return fmt.Errorf("step %d: agreeing with the other heter-trainers, attempt %d: %w", e.Step, e.Attempt, err)
	}
	s.cfg.Report(fmt.Sprintf("heter-trainer %d: step %d: agreeing with the other heter-trainers: %v; it is repeated", s.cfg.Index, e.Step, err))
	s.requestRetry(message.RetryEnd{Step: e.Step, Attempt: e.Attempt + 1}, -1)
	return nil
}

// attempts is how often the end of one step is tried. Each but the first follows a loss.
const attempts = 16

// errNobody ends a job whose trainers have lost all who had the part's state.
var errNobody = errors.New("all heter-trainers that are left have come late: nobody has the part's parameters")

// deviceError is what the device says, which no other heter-trainer makes good.
type deviceError struct{ error }

func (e *deviceError) Unwrap() error { return e.error }

// agree makes the step's gradients those of all members, and moves the parameters, unless that is done.
func (s *Server) agree(ctx context.Context, e message.End) error {
	if s.cfg.Count > 1 {
		if err := s.formGroup(ctx, e); err != nil {
			s.leaveGroup()
			return err
		}
	}
	if s.step > e.Step { // another member had done it
		return nil
	}
	if s.cfg.Count > 1 {
		g := s.device.Gradients()
		s.sum = append(s.sum[:0], g...) // these are wanted again if the sum fails
		if err := s.group.Sum(s.sum); err != nil {
			s.leaveGroup()
			return err
		}
		copy(g, s.sum)
	}
	if err := panics.Do(func() error { return s.device.Update(e.Rate, 1/float32(s.cfg.Trainers)) }); err != nil {
		return &deviceError{fmt.Errorf("step %d: %w", e.Step, err)}
	}
	s.committed()
	return nil
}

// committed notes that the parameters have moved by a step.
func (s *Server) committed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.step++
}

// leaveGroup leaves the group.
func (s *Server) leaveGroup() {
	if s.group == nil {
		return
	}
	s.mu.Lock()
	s.closing.cancel()
	s.closing.cancel = nil
	s.mu.Unlock()
	_ = s.group.Close() // it has failed, or is not needed any more
	s.group = nil
}

// formGroup sees that there is a group of who is not lost, whose members all have the same
// parameters.
func (s *Server) formGroup(ctx context.Context, e message.End) error {
	members := make([]int, 0, s.cfg.Count)
	for i, life := range e.Members {
		if life != 0 {
			members = append(members, i)
		}
	}
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

// What a member has of the state, for align: nothing, as of the step before, or as of the step that is ended.
const (
	hasNothing float32 = iota
	hasBefore
	hasAfter
)

// syncState gives members that have not the newest state that there is that of one who has it: they
// have come late, or others were lost to them only after that one had the sum.
func (s *Server) syncState(e message.End, members []int) error {
	own, has := hasBefore, make([]float32, len(members))
	if s.step > e.Step {
		own = hasAfter
	} else if s.joining { // which this goroutine alone makes false
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
	for i, x := range news {
		if own < newest { // a copy that fails half-way changes nothing here
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
		clear(s.device.Gradients())
		s.committed()
	}
	return nil
}
