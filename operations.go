package ringo

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/exchange"
	"github.com/ringo-ml/ringo/internal/exchange/aggregate"
	"github.com/ringo-ml/ringo/internal/subgroup"
	"github.com/ringo-ml/ringo/internal/watch/record"
	"github.com/ringo-ml/ringo/transport"
)

// operations has the parts of a job in which ranks compute together: the group of all ranks,
// subgroups, and sums on aggregation servers.
type operations struct {
	group  *collective.Group // nil in a server
	subs   *subgroup.Set     // nil in a server
	client *aggregate.Client // nil without aggregation servers
	server *aggregate.Server // nil in a rank
}

// start makes a rank's group and its client of aggregation servers, or such a server.
func (o *operations) start(j *Job, cfg Config) (err error) {
	cfg.Aggregate = cfg.aggregation(j.size)
	cfg.Aggregate.Record, cfg.Collective.Record = j.records.recorder, j.records.recorder
	mesh := j.links.mesh
	if j.isServer() {
		o.server, err = aggregate.NewServer(mesh, cfg.Aggregate)
		return err
	}
	if j.aggregators > 0 {
		cfg.Collective.Ranks = collective.Ranks(j.size)
	}
	if o.group, err = collective.New(mesh, cfg.Collective); err != nil {
		return err
	}
	o.subs = subgroup.New(mesh, j.rank, j.size, cfg.Collective)
	if j.aggregators > 0 {
		o.client, err = aggregate.NewClient(mesh, cfg.Aggregate)
	}
	return err
}

// waiting returns this process's longest wait for another process. If the wait is longer than slow,
// which may be a deadlock, the result also lists the operations in progress.
func (o *operations) waiting(slow time.Duration) (cluster.Wait, bool) {
	var longest collective.Wait
	found := false
	observe := func(w collective.Wait, ok bool) {
		if ok && (!found || w.Since.Before(longest.Since)) {
			longest, found = w, true
		}
	}
	if o.group != nil {
		observe(o.group.Waiting())
		o.subs.Waiting(observe)
	}
	if o.client != nil {
		observe(o.client.Waiting())
	}
	if o.server != nil {
		observe(o.server.Waiting())
	}
	if !found {
		return cluster.Wait{}, false // the frequent case allocates no memory
	}
	out := cluster.Wait{Peer: longest.Peer, Since: longest.Since, In: fmt.Sprintf("%s %d", longest.Op, longest.Seq)}
	if o.group != nil && time.Since(longest.Since) >= slow {
		for _, b := range o.group.Begun() {
			out.Begun = append(out.Begun, cluster.Begun{Number: b.Seq, Operation: b.Operation})
		}
	}
	return out, true
}

// close ends all operations.
func (o *operations) close() error {
	var errs []error
	if o.client != nil {
		errs = append(errs, o.client.Close())
	}
	if o.subs != nil {
		errs = append(errs, o.subs.Close())
	}
	if o.group != nil {
		errs = append(errs, o.group.Close())
	}
	return errors.Join(errs...)
}

// Group returns the group of all ranks, or of this rank alone in a job without connections among
// ranks. Subgroup makes other groups.
func (j *Job) Group() *collective.Group { return j.ops.group }

// Reducer returns the reducer that sums gradients on the job's aggregation servers, for
// distopt.Config, or nil without servers. The job closes the reducer.
func (j *Job) Reducer() exchange.Reducer {
	if j.ops.client == nil {
		return nil
	}
	return j.ops.client
}

// Subgroup makes a group of some of the job's ranks, numbered in the order given; without ranks it
// returns Group(). Only members call Subgroup, with equal arguments, and wait for each other. Two
// ranks with several common subgroups make them in the same order; disjoint subgroups may be made
// simultaneously. The order of operations in a subgroup is independent of other groups; an error in
// one group ends all groups and the job. At most 16 subgroups at a time use the shared memory of a
// host; further subgroups use connections. A subgroup lasts until its Close, or the job's.
//
// Errors: ranks has a nonexistent or duplicate rank, or not the caller; members passed different
// ranks; a rank is lost, or calls later than Config.Collective.Timeout; the job is closed.
func (j *Job) Subgroup(ranks ...int) (*collective.Group, error) {
	if len(ranks) == 0 {
		return j.ops.group, nil
	}
	g, err := j.subgroup(ranks)
	if err != nil {
		return nil, fmt.Errorf("a group of ranks %v: %w", ranks, err)
	}
	return g, nil
}

func (j *Job) subgroup(ranks []int) (*collective.Group, error) {
	switch {
	case j.isServer():
		return nil, errors.New("this process is a server, which is in no group")
	case j.serversOnly && j.size > 1:
		return nil, errors.New("the job has no mesh among its ranks (Config.ServersOnly), which groups need")
	}
	return j.ops.subs.Make(ranks)
}

// unreportedError returns the error of an operation of this rank that also made the other ranks'
// operations fail, or nil.
func (j *Job) unreportedError() error {
	if j.members.member() == nil || j.ops.group == nil {
		return nil
	}
	err := cmp.Or(j.ops.group.Fail(nil), j.ops.subs.Err())
	if err == nil || errors.Is(err, transport.ErrClosed) { // closed before its operations had ended
		return nil
	}
	return j.Err(err)
}

// lastOperation names this rank's last step, or without steps the last operation, "allreduce 98".
// The result is empty if this rank has done no operation, or operations of several groups, because
// their numbers are not comparable.
func (j *Job) lastOperation() string {
	recorder := j.records.recorder
	switch {
	case j.ops.group == nil || j.size == 1:
		return ""
	case recorder.Step() >= 0:
		return fmt.Sprintf("step %d", recorder.Step())
	}
	begun := j.ops.group.Begun()
	several := slices.ContainsFunc(recorder.Recent(nil, 1), func(e record.Event) bool { return e.Group != 0 })
	if len(begun) == 0 || several {
		return ""
	}
	name := begun[len(begun)-1].Operation
	for _, more := range []string{" (", " of ", " with ", " by "} {
		name, _, _ = strings.Cut(name, more)
	}
	return fmt.Sprintf("%s %d", name, begun[len(begun)-1].Seq)
}
