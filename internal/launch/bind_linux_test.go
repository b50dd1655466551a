package launch

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/placement"
)

// Ranks run where the plan for this machine says, they and the caller are told, and the launcher is free again afterwards.
func TestRanksAreBound(t *testing.T) {
	leakcheck.Check(t)
	all := placement.Allowed()
	for _, c := range []struct {
		ranks, each int
		bind        Bind
	}{{len(all), 1, BindAuto}, {len(all), 0, BindCore}, {2 * len(all), 1, BindAuto}, {2*len(all) + 1, 1, BindAuto}, {2 * len(all), 2, BindAuto}, {len(all), 1, BindNone}, {len(all), 1, ""}} {
		plan, err := placement.Decide(placement.LocalMachine(), placement.Request{Processes: c.ranks, Threads: c.each, Mode: c.bind})
		if c.bind == "" {
			plan = placement.Plan{}
		}
		if err != nil {
			t.Skip(err) // such as hardware threads, which are no cores
		}
		told := ""
		l := launch(t, context.Background(), c.ranks, "placed", nil, func(cfg *Config) {
			cfg.Roles[0].Bind, cfg.Roles[0].CoresEach = c.bind, c.each
			cfg.OnPlace = func(role, placed string) { told += role + " " + placed }
		})
		if want := "rank " + plan.String(); l.err != nil || told != want && c.bind != "" || c.bind == "" && told != "" {
			t.Errorf("%+v: told %q, want %q; %v", c, told, want, l.err)
		}
		for rank := range c.ranks {
			own := all
			if plan.Bound() {
				own = plan.Shares[rank]
			}
			if want := fmt.Sprintf("%d on %v, %v\n", rank, own, plan); !strings.Contains(l.out, want) {
				t.Errorf("%+v: no %q in\n%s", c, want, l.out)
			}
		}
	}
	if now := placement.Allowed(); !slices.Equal(now, all) {
		t.Errorf("afterwards the launcher is bound to %v, want %v", now, all)
	}
}

// A core for each that cannot be had is an error before anything is started, and says why.
func TestCoresThatCannotBeHad(t *testing.T) {
	n := len(placement.Allowed()) + 1
	l := launch(t, context.Background(), n, "placed", nil, func(cfg *Config) { cfg.Roles[0].Bind = BindCore })
	if want := fmt.Sprintf("binding the processes of role \"rank\": no core for each thread: %d ranks on ", n); l.err == nil || !strings.Contains(l.err.Error(), want) || len(l.pids) > 0 {
		t.Errorf("%v after %d processes, want %q", l.err, len(l.pids), want)
	}
}
