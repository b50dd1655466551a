package launch

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/placement"
	"github.com/ringo-ml/ringo/internal/watch/failure"
	"github.com/ringo-ml/ringo/transport"
)

// With Config.MinRanks a job continues after the loss of a rank, in a new epoch with its own ticket
// and coordinator: no connection of an earlier epoch is accepted. The other ranks leave the ended
// epoch, read their next place from a pipe (Places), and join again in the same process. New
// processes take the places without a rank. An epoch also ends after a step on which all ranks
// agree, if a rank is asked to leave the job.

// epoch is the membership of the ranks between two changes.
type epoch struct {
	number   int
	began    time.Time
	losses   []*LostProcessError // losses and departures since all ranks had last joined
	lostAt   time.Time           // time of the first of them
	killedAt time.Time           // time of the lost process's kill; zero: it had ended
	ending   bool                // all ranks have been asked to leave, and to join again

	lost       <-chan error // channels of the coordinator; nil channels without a coordinator
	stopping   <-chan cluster.StoppedError
	complete   <-chan struct{}
	departures <-chan cluster.Departure
	rejoined   <-chan struct{}
	former     []*cluster.Coordinator // of earlier epochs, which inform late ranks of the end
}

// changePause is the time to collect changes, such as signals to several processes, and between
// attempts while ranks start.
const changePause = 100 * time.Millisecond

// nextPlaces returns the present rank of each rank of the next epoch, or -1 for a new process.
// present are the remaining ranks of size; lost ones are gone, and the rest has finished. Ranks
// keep their numbers if possible, and higher ones are moved to the first free places.
func nextPlaces(size, lost, least int, present []int) []int {
	next, moved := make([]int, max(size-lost, least)), []int(nil)
	for i := range next {
		next[i] = -1
	}
	for _, r := range present {
		if r < len(next) {
			next[r] = r
		} else {
			moved = append(moved, r)
		}
	}
	for _, r := range moved {
		next[slices.Index(next, -1)] = r
	}
	return next
}

// coordinate makes the coordinator of a new epoch.
func (j *job) coordinate() error {
	c, err := j.cfg.coordinate()
	if err != nil {
		return err
	}
	e := &j.epoch
	if e.number++; j.coordinator != nil {
		e.former = append(e.former, j.coordinator)
	}
	j.coordinator, e.began, e.killedAt, e.ending = c, time.Now(), time.Time{}, false
	e.lost, e.stopping, e.complete, e.departures, e.rejoined = c.Lost(), c.Stopping(), c.Complete(), c.Departures(), c.Rejoined()
	return nil
}

// continues begins the next epoch if the verdict names a lost rank and the job can continue
// without it. A lost process that still runs is killed, and its end begins the epoch. The result is
// false if the job ends.
func (j *job) continues() bool {
	j.placing.Lock()
	defer j.placing.Unlock()
	var lost *transport.LostError
	if j.cfg.MinRanks == 0 || j.next.begun() || j.interrupted || j.stopRequest != nil || !errors.As(j.verdict(), &lost) {
		return false
	}
	p, e := j.procs[lost.Rank], &j.epoch
	if len(e.losses) == 0 {
		e.lostAt = time.Now()
	}
	cancelled := func(x failure.Exit) bool { return x.Rank == p.number && x.Stopped } // by a signal
	if j.lostProcess(p, lost.Reason).Failed != "" && !slices.ContainsFunc(j.ends(), cancelled) {
		return false // the error would come again
	}
	if !p.gone {
		p.signal(syscall.SIGKILL)
		e.killedAt = time.Now()
		return true
	}
	return j.nextEpoch(p, lost.Reason)
}

// nextEpoch begins the next epoch after the loss of a process, with the coordinator's reason, or,
// with nil, after all ranks have left. The result is false if the job ends. j.placing is held.
func (j *job) nextEpoch(p *process, why string) bool {
	var present []int
	e, lost := &j.epoch, 0
	for _, q := range j.procs {
		reason := ""
		if q == p {
			reason = why
		}
		switch {
		case q.leaves != "" && q != p && (!q.gone || q.how == ""):
			lost++
			e.losses = append(e.losses, &LostProcessError{Name: q.name(), Leaves: q.leaves})
		case !q.gone && (e.ending || !j.coordinator.HasLeft(q.number)):
			present = append(present, q.number)
		case q == p || q.gone && q.how != "" && !q.continuedWithout:
			lost++
			e.losses = append(e.losses, j.lostProcess(q, reason))
		}
	}
	from := nextPlaces(len(j.procs), lost, j.cfg.MinRanks, present)
	if j.cfg.Stateful && (len(present)+lost < len(j.procs) || !j.lead(from)) {
		return false // a rank has finished, or the state is lost
	}
	role, spec, ok := j.cfg.Continue(e.losses, len(from))
	if ok {
		if j.fault = j.begin(from, role, spec); j.fault != nil {
			j.next.hurry()
		}
	}
	return ok && j.fault == nil
}

// lead makes a rank that has the job's state the next rank 0: the oldest that has been in a
// complete epoch. The result is false if there is none.
func (j *job) lead(from []int) bool {
	lead := -1
	for at, was := range from {
		if was >= 0 && j.procs[was].informed && (lead < 0 || j.procs[was].restarts < j.procs[from[lead]].restarts) {
			lead = at
		}
	}
	if lead < 0 {
		return false
	}
	from[0], from[lead] = from[lead], from[0]
	return true
}

// asked notes that a rank is asked to leave the job, which continues without the rank.
func (j *job) asked(d cluster.Departure) {
	j.procs[d.Rank].leaves = d.Reason
	j.change.Reset(changePause)
}

// departing returns the signal of a rank that is asked to leave, "" without any, and reports
// whether all ranks are.
func (j *job) departing() (why string, all bool) {
	all = true
	for _, p := range j.procs {
		why, all = cmp.Or(why, p.leaves), all && p.leaves != ""
	}
	return why, all
}

// changeMembers has all ranks leave after the same step if one of them is asked to leave, and stops
// the job if all are, or if the launcher was asked to during a change.
func (j *job) changeMembers() {
	e := &j.epoch
	why, all := j.departing()
	switch {
	case e.ending || j.next.begun() || j.interrupted || j.verdict() != nil:
	case j.stopRequest != nil:
		if !j.coordinator.Stop(j.stopRequest.Reason) {
			j.change.Reset(changePause)
		}
	case all:
		j.told(why)
	case why == "":
	default:
		j.placing.Lock()
		e.ending = j.coordinator.Rejoin()
		j.placing.Unlock()
		if !e.ending {
			j.change.Reset(changePause)
		}
	}
}

// rejoin begins the next epoch when all ranks have left the epoch before.
func (j *job) rejoin() {
	j.placing.Lock()
	defer j.placing.Unlock()
	if j.epoch.rejoined = nil; j.next.begun() {
		return
	}
	if len(j.epoch.losses) == 0 {
		j.epoch.lostAt = time.Now()
	}
	if why, all := j.departing(); all {
		for _, p := range j.procs {
			p.leaves = "" // the same processes join again, and save the run
		}
		j.told(why)
	}
	if !j.nextEpoch(nil, "") {
		j.fault = cmp.Or(j.fault, errors.New("launch: the job cannot continue with other ranks"))
		j.next.hurry()
	}
}

// begin begins an epoch, in which the process of rank from[r] becomes rank r. j.placing is held.
func (j *job) begin(from []int, role Role, spec string) error {
	j.screen.close() // ends an unfinished line of rank 0
	c, old, rebind := j.crews[0], j.procs, len(from) != len(j.procs)
	c.Role, j.cfg.Roles, j.cfg.JobSpec, j.cfg.Ticket = role, []Role{role}, spec, transport.NewTicket()
	if err := errors.Join(j.coordinate(), c.settle()); err != nil {
		return err
	}
	j.mu.Lock()
	j.first = nil
	j.mu.Unlock()
	j.procs = slices.Clone(old[:min(len(from), len(old))])
	for rank, was := range from {
		if was >= 0 {
			j.procs[rank] = old[was]
			j.move(old[was], rank, rebind)
		}
	}
	for n := len(from); n < len(old); n++ {
		j.cfg.Sight.Set(n, ProcessInfo{})
	}
	for rank, was := range from {
		if was >= 0 {
			continue
		}
		if err := j.startRank(rank); err != nil {
			return err
		}
	}
	for _, p := range old {
		p.past = !slices.Contains(j.procs, p)
		switch {
		case p.gone:
			_ = errors.Join(p.memory.Close(), p.places.Close()) // no black box needs the record
		case p.past:
			_ = p.places.Close() // ends the process
			time.AfterFunc(giveUp, func() { p.signal(syscall.SIGKILL) })
		}
	}
	j.change.Reset(changePause)
	return nil
}

// startRank starts a new process as a rank of the present epoch.
func (j *job) startRank(rank int) error {
	return j.onOneThread(func() error {
		p, err := j.start(j.crews[0], rank, j.epoch.number)
		if err == nil {
			j.procs[rank] = p
			j.running, j.leading = j.running+1, j.leading+1
		}
		return err
	})
}

// move makes a process rank rank of the present epoch.
func (j *job) move(p *process, rank int, rebind bool) {
	p.index, p.number = rank, rank
	j.coordinator.Process(rank, p.used)
	j.cfg.Sight.Set(rank, p.info(false))
	if rebind {
		cpus := placement.Allowed()
		if p.role.plan.Bound() {
			cpus = p.role.plan.Shares[rank]
		}
		_ = placement.BindProcess(p.pid(), cpus) // an ended process needs none
	}
	line, err := json.Marshal(append(j.place(p), JobVar+"="+j.cfg.JobSpec))
	if err == nil {
		_ = p.places.SetWriteDeadline(time.Now().Add(time.Second))
		_, err = p.places.Write(append(line, '\n'))
	}
	if err != nil {
		p.hang("it does not read its next place")
	}
}

// joined ends the wait for the ranks of an epoch.
func (j *job) joined() {
	e := &j.epoch
	e.complete = nil
	for _, p := range j.procs {
		p.informed = true
	}
	for _, c := range e.former {
		j.closing.Go(func() { _ = c.Close() })
	}
	if e.former = nil; len(e.losses) > 0 {
		j.cfg.OnContinue(time.Since(e.lostAt))
		e.losses = nil
	}
}

// replaceLate kills processes that do not leave the epoch before, such as during the loading of
// data, and ends the job if a lost process cannot be killed. With Config.Stateful late processes
// end the job after Times.Join, also if no rank has joined: a new process would not have their
// state.
func (j *job) replaceLate() {
	e := &j.epoch
	if !e.killedAt.IsZero() && time.Since(e.killedAt) > giveUp {
		j.next.hurry()
	}
	if len(e.losses) == 0 || e.complete == nil || j.verdict() != nil || time.Since(e.began) < j.cfg.Grace {
		return
	}
	if j.cfg.Stateful {
		if wait := j.cfg.Times.Join + giveUp; time.Since(e.began) > wait && !j.next.begun() {
			j.fault = fmt.Errorf("launch: the ranks have not joined again within %v", wait)
			j.next.hurry()
		}
		return
	}
	j.placing.Lock()
	defer j.placing.Unlock()
	for rank, p := range j.procs {
		if p.gone || p.late || p.restarts == e.number || j.coordinator.HasJoined(rank) {
			continue
		}
		p.late = true
		p.signal(syscall.SIGKILL)
		j.cfg.Report(fmt.Sprintf("%s has not joined again within %v: a new process replaces it", p.name(), j.cfg.Grace))
	}
}

// replaced starts the process that replaces p, which was late and has ended: only now are its
// memory and the folder of checkpoints free.
func (j *job) replaced(p *process) bool {
	if !p.late || p.past || j.next.begun() {
		return false
	}
	j.placing.Lock()
	defer j.placing.Unlock()
	if j.fault = j.startRank(p.number); j.fault != nil {
		j.next.hurry()
		return false
	}
	_ = errors.Join(p.memory.Close(), p.places.Close())
	j.running, j.leading = j.running-1, j.leading-1
	return true
}

// closePlaces makes ranks that wait for their next place end.
func (j *job) closePlaces() {
	for _, p := range j.procs {
		_ = p.places.Close() // again without effect
	}
}

// closeCoordinators ends the coordinators of all epochs.
func (j *job) closeCoordinators() {
	for _, c := range append(j.epoch.former, j.coordinator) {
		_ = c.Close()
	}
	j.closing.Wait()
}
