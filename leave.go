package ringo

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/watch/record"
	"github.com/ringo-ml/ringo/transport"
)

// Close leaves the job in good order and frees what it holds. Operations of
// other ranks that need this one fail from now on.
//
// A rank with a failed operation does not leave in good order, even if its program ignores the
// error: the job fails.
func (j *Job) Close() error {
	return j.close(j.broken)
}

// close leaves the job, or ends it because of a fault that was not reported before.
func (j *Job) close(broken func() error) error {
	j.closed.Do(func() {
		if fault := broken(); fault != nil {
			j.member.Fail(during{fault})
		}
		j.closeErr = errors.Join(j.notServedError(), j.release())
	})
	return j.closeErr
}

// reported is for close after the fault was reported.
func reported() error { return nil }

// broken is the fault of an operation of this rank, which has ended those of the other ranks; nil
// if there is none.
func (j *Job) broken() error {
	if j.member == nil || j.group == nil {
		return nil
	}
	fault := cmp.Or(j.group.Fail(nil), j.subs.broken())
	if fault == nil || errors.Is(fault, transport.ErrClosed) { // it was closed before its operations had ended
		return nil
	}
	return j.Err(fault)
}

// last names the last step of this rank, or without steps its last operation, "allreduce 98"; "" if
// there was none, or if several groups have operations, since their numbers cannot be compared.
func (j *Job) last() string {
	switch {
	case j.group == nil || j.size == 1:
		return ""
	case j.recorder.Step() >= 0:
		return fmt.Sprintf("step %d", j.recorder.Step())
	}
	begun := j.group.Begun()
	several := slices.ContainsFunc(j.recorder.Recent(nil, 1), func(e record.Event) bool { return e.Group != j.collective.ID })
	if len(begun) == 0 || several {
		return ""
	}
	name := begun[len(begun)-1].Operation
	for _, more := range []string{" (", " of ", " with ", " by "} {
		name, _, _ = strings.Cut(name, more)
	}
	return fmt.Sprintf("%s %d", name, begun[len(begun)-1].Seq)
}

func (j *Job) release() error {
	last := j.last()
	if j.stops != nil {
		j.stops.leave(j.rank, last)
	}
	j.cancel(errDone)
	j.watching.Wait()
	var errs []error
	if j.uncount != nil {
		j.uncount()
		errs = append(errs, j.figures.Close())
	}
	if j.client != nil {
		errs = append(errs, j.client.Close())
	}
	errs = append(errs, j.subs.close())
	if j.group != nil {
		errs = append(errs, j.group.Close())
	}
	if j.mesh != nil {
		errs = append(errs, j.mesh.Close())
	}
	if j.member != nil {
		errs = append(errs, j.member.Leave(last))
	}
	if j.coordinator != nil {
		errs = append(errs, j.coordinator.Close())
	}
	if j.withdraw != nil {
		j.withdraw()
	}
	if j.board != nil {
		j.board.Leave()
	}
	if j.unbind != nil {
		j.unbind()
	}
	j.heter.end()
	j.unrecord()
	return errors.Join(errs...)
}
