package jobtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/transport"
)

// sumOver sums rank+1 over a group and wants the sum of its members.
func sumOver(g *collective.Group, job *ringo.Job, ranks []int, floats int) error {
	if g.Size() != len(ranks) || ranks[g.Rank()] != job.Rank() {
		return fmt.Errorf("rank %d of %d in a group of %v", g.Rank(), g.Size(), ranks)
	}
	x, want := make([]float32, floats), float32(0)
	for i := range x {
		x[i] = float32(job.Rank() + 1)
	}
	for _, r := range ranks {
		want += float32(r + 1)
	}
	if err := collective.AllReduce(g, x, collective.Sum); err != nil {
		return err
	}
	if i := slices.IndexFunc(x, func(v float32) bool { return v != want }); i >= 0 {
		return fmt.Errorf("value %d of %v is %v, want %v", i, ranks, x[i], want)
	}
	return nil
}

// onGroups makes overlapping groups and lets all of them and the whole work at once, many times.
func onGroups(job *ringo.Job) error {
	defer job.Close()
	all := [][]int{{0, 1}, {2, 3}, {1, 2}, {3, 0}, {2, 0, 1}, {0, 1}, {3, 2, 1, 0}, {1}}
	for i := range 14 { // more than share memory
		all = append(all, []int{i % 4, (i + 1) % 4})
	}
	type made struct {
		group *collective.Group
		ranks []int
	}
	groups := []made{{job.Group(), []int{0, 1, 2, 3}}}
	for _, ranks := range all {
		g, err := job.Subgroup(ranks...)
		if slices.Contains(ranks, job.Rank()) {
			if err != nil {
				return err
			}
			groups = append(groups, made{g, ranks})
		} else if err == nil {
			return fmt.Errorf("rank %d is in a group of %v", job.Rank(), ranks)
		}
	}
	if how := groups[1].group.Choice("allreduce", 1<<20); (how == collective.Direct) != (job.Transport() == ringo.TransportSHM) {
		return fmt.Errorf("over %s group %v reduces by %s", job.Transport(), groups[1].ranks, how)
	}
	errs := make(chan error, len(groups))
	for _, m := range groups {
		go func() {
			var err error
			for turn := 0; turn < 20 && err == nil; turn++ {
				err = sumOver(m.group, job, m.ranks, []int{1, 100, 30_000}[turn%3])
			}
			if err == nil && len(m.ranks) == 2 { // messages of two ranks, in each group its own
				x := []float32{float32(job.Rank())}
				if m.group.Rank() == 0 {
					err = collective.Send(m.group, x, 1)
				} else if err = collective.Receive(m.group, x, 0); err == nil && x[0] != float32(m.ranks[0]) {
					err = fmt.Errorf("a message of rank %v, want %d", x[0], m.ranks[0])
				}
			}
			if err == nil {
				var dup *collective.Group
				if dup, err = m.group.Dup(); err == nil {
					err = errors.Join(sumOver(dup, job, m.ranks, 10), dup.Close())
				}
			}
			errs <- err
		}()
	}
	var out []error
	for range groups {
		out = append(out, <-errs)
	}
	if err := errors.Join(out...); err != nil {
		return err
	}
	if g, err := job.Subgroup(); err != nil || g != job.Group() {
		return fmt.Errorf("no ranks: %v, %v", g, err)
	}
	return collective.Barrier(job.Group())
}

// Several groups with common ranks work at once, over every transport.
func TestSubgroups(t *testing.T) {
	t.Run("mem", func(t *testing.T) {
		leakcheck.Check(t)
		if err := ringo.Local(context.Background(), 4, ringo.Config{}, onGroups); err != nil {
			t.Error(err)
		}
	})
	for _, kind := range []string{ringo.TransportTCP, ringo.TransportSHM} {
		t.Run(kind, func(t *testing.T) {
			leakcheck.Check(t)
			cfgs := byHand(t, 4)
			for i := range cfgs {
				cfgs[i].Transport = kind
			}
			for rank, err := range runAll(t, cfgs, onGroups) {
				if err != nil {
					t.Errorf("rank %d: %v", rank, err)
				}
			}
		})
	}
}

// What makes no group is an error on every rank that asks for it.
func TestSubgroupFaults(t *testing.T) {
	leakcheck.Check(t)
	err := ringo.Local(context.Background(), 3, ringo.Config{}, func(job *ringo.Job) error {
		for _, c := range []struct {
			ranks []int
			want  string
		}{
			{[]int{job.Rank(), 3}, "3 is not among the job's ranks, 0 to 2"},
			{[]int{job.Rank(), -1}, "-1 is not among"},
			{[]int{job.Rank(), job.Rank()}, "is there twice"},
			{[]int{(job.Rank() + 1) % 3}, fmt.Sprintf("this rank, %d, is not a member", job.Rank())},
		} {
			_, err := job.Subgroup(c.ranks...)
			checkText(t, err, c.want, fmt.Sprint(c.ranks))
		}
		if job.Rank() < 2 { // they do not agree
			ranks := [][]int{{0, 1}, {0, 1, 2}}[job.Rank()]
			_, err := job.Subgroup(ranks...)
			checkText(t, err, "another member asks for other ranks")
		}
		return collective.Barrier(job.Group())
	})
	if err != nil {
		t.Error(err)
	}
	err = ringo.Local(context.Background(), 2, ringo.Config{}, func(job *ringo.Job) error {
		if job.Rank() == 1 {
			return errBoom
		}
		_, err := job.Subgroup(0, 1)
		if !errors.Is(err, transport.ErrAborted) {
			t.Errorf("a member is lost: %v", err)
		}
		return err
	})
	if !errors.Is(err, errBoom) {
		t.Error(err)
	}
}

// Groups that are made and closed one after the other all share memory, whoever closes them first and whichever ranks they have: rooms are used
// again, and never while a rank has not closed the group before.
func TestSubgroupsUseRoomsAgain(t *testing.T) {
	cfgs := byHand(t, 3)
	for i := range cfgs {
		cfgs[i].Transport = ringo.TransportSHM
	}
	for rank, err := range runAll(t, cfgs, func(job *ringo.Job) error {
		defer job.Close()
		var open []*collective.Group // this rank's; some ranks close later than others
		for i := range 60 {
			ranks := [][]int{{0, 1}, {2, 1, 0}, {1, 2}, {2, 0}}[i%4]
			if !slices.Contains(ranks, job.Rank()) {
				continue
			}
			g, err := job.Subgroup(ranks...)
			if err != nil {
				return err
			}
			if how := g.Choice("allreduce", 1<<20); how != collective.Direct {
				return fmt.Errorf("group %d, of %v, reduces by %s", i, ranks, how)
			}
			for _, n := range []int{1, 5000} {
				if err := sumOver(g, job, ranks, n); err != nil {
					return fmt.Errorf("group %d: %w", i, err)
				}
			}
			if open = append(open, g); len(open) > 1+job.Rank() {
				if err := open[0].Close(); err != nil {
					return err
				}
				open = open[1:]
			}
		}
		return collective.Barrier(job.Group())
	}) {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// A job that was closed makes no group, and does not look at the memory that it shared for one.
func TestSubgroupOfClosedJob(t *testing.T) {
	cfgs := byHand(t, 2)
	for i := range cfgs {
		cfgs[i].Transport = ringo.TransportSHM
	}
	for rank, err := range runAll(t, cfgs, func(job *ringo.Job) error {
		g, err := job.Subgroup(0, 1)
		if err != nil {
			return err
		}
		if err := errors.Join(sumOver(g, job, []int{0, 1}, 10), collective.Barrier(job.Group()), job.Close()); err != nil {
			return err
		}
		_, err = job.Subgroup(0, 1)
		checkText(t, err, "the job was closed")
		return nil
	}) {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}
