package jobtest

import (
	"context"
	"errors"
	"maps"
	"net"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/job"
	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/server"
	"github.com/ringo-ml/ringo/internal/server/engine"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/setting/settingtest"
	"github.com/ringo-ml/ringo/ps/client"
	"github.com/ringo-ml/ringo/ps/schema"
	"github.com/ringo-ml/ringo/transport"
)

// allSettings are the rows of a job.
func allSettings(t *testing.T) *setting.Table {
	t.Helper()
	_, table, err := job.New(setting.Assignment{Path: "model", Text: "mlp"}, setting.Assignment{Path: "sync", Text: "async"})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// reportedError are the settings on which all processes must agree.
func reportedError(t *setting.Table) setting.Values {
	return t.Values(setting.JobFixed, setting.JobMutable)
}

// Whatever setting of those that all processes must have, a rank that was told otherwise ends the job, and a server refuses a
// trainer that was, with the setting, both processes and both values. What each process may have for itself does not.
func TestEverySettingIsCompared(t *testing.T) {
	leakcheck.Check(t)
	table := allSettings(t)
	all, dial := reportedError(table), tableServer(t, reportedError(table))
	compared := 0
	for _, row := range table.Rows() {
		other := settingtest.Another(t, row, "allreduce=ring", "12:fp32/exact=3,4", "price=number", "wide=sgd")
		now := row.Value.String()
		if row.Scope == setting.PerProcess {
			if err := row.Value.Set(other); err != nil { // from here on
				t.Fatal(err)
			}
			continue
		}
		compared++
		changed := maps.Clone(all)
		changed[row.Path] = other
		for r, err := range ranksTold(t, all, changed) {
			checkConflict(t, err, row.Path, now, other, "rank 0", "rank 1")
			if err == nil {
				t.Errorf("%s: rank %d is in the job", row.Path, r)
			}
		}
		checkConflict(t, dial(changed), row.Path, now, other, "server 0", "trainer 0")
	}
	if compared < 40 {
		t.Errorf("%d settings were compared: where are the others?", compared)
	}
	for r, err := range ranksTold(t, all, reportedError(table)) {
		if err != nil {
			t.Errorf("rank %d, where settings of one process differ: %v", r, err)
		}
	}
	if err := dial(reportedError(table)); err != nil {
		t.Errorf("where settings of one process differ: %v", err)
	}
}

// checkConflict wants an error about one setting.
func checkConflict(t *testing.T, err error, path setting.Path, words ...string) {
	t.Helper()
	conflict := (*setting.ConflictError)(nil)
	if !errors.As(err, &conflict) || len(conflict.Over) != 1 || conflict.Over[0].Path != path {
		t.Errorf("%s: %v, want that processes differ in it alone", path, err)
		return
	}
	d := conflict.Over[0]
	for _, w := range words {
		if w != d.Process && w != d.Other && w != d.Text && w != d.OtherText {
			t.Errorf("%s: %q is not in %+v", path, w, d)
		}
	}
	if lines := setting.Lines(err, func(p setting.Path) string { return "--" + string(p) }); !strings.Contains(strings.Join(lines, "\n"), "--"+string(path)+" is ") {
		t.Errorf("a command tells %q", lines)
	}
}

// ranksTold joins two ranks that were told something, and returns how that ended.
func ranksTold(t *testing.T, told ...setting.Values) []error {
	t.Helper()
	ticket := transport.NewTicket()
	c, err := cluster.NewCoordinator(cluster.CoordinatorConfig{Address: "127.0.0.1:0", WorldSize: len(told), HostRank: -1, Ticket: ticket, Version: "1"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ends := make([]chan error, len(told))
	for r, values := range told {
		ends[r] = make(chan error, 1)
		go func() {
			m, err := cluster.Join(context.Background(), cluster.MemberConfig{Rendezvous: c.Addr().String(), Rank: r, WorldSize: len(told), Ticket: ticket, Version: "1", Settings: values})
			if err == nil {
				err = m.Leave("")
			}
			ends[r] <- err
		}()
	}
	errs := make([]error, len(told))
	for r := range ends {
		if errs[r] = <-ends[r]; errors.Is(errs[r], transport.ErrRefused) {
			errs[r] = c.Err() // it came when the job had ended
		}
	}
	return errs
}

// tableServer starts a server that keeps parameters, and returns how a trainer reaches it that was told something.
func tableServer(t *testing.T, told setting.Values) (dial func(setting.Values) error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg := server.Defaults()
	cfg.Listener, cfg.Ticket, cfg.Version, cfg.Servers, cfg.Trainers, cfg.Mode, cfg.JobSettings = l, transport.NewTicket(), "1", 1, 1, engine.Async, told
	ctx, cancel := context.WithCancel(context.Background())
	end := make(chan error, 1)
	go func() {
		_, err := server.Run(ctx, cfg)
		end <- err
	}()
	t.Cleanup(func() { cancel(); <-end })
	sc := schema.Schema{Dense: []schema.Dense{{Name: "w", Len: 1, Rule: schema.Rule{Name: "sgd", LR: 1}}}}
	return func(told setting.Values) error {
		c, err := client.Dial(context.Background(), client.Config{Servers: []string{l.Addr().String()}, Ticket: cfg.Ticket, Version: "1", Trainers: 1, Schema: sc, Settings: told})
		if err == nil {
			err = c.Leave(context.Background())
		}
		return err
	}
}

// Ranks of a job, with the servers that sum for them, tell what they were told.
func TestJobsOfOtherSettings(t *testing.T) {
	leakcheck.Check(t)
	cfgs := byHand(t, 2)
	cfgs[0].Settings, cfgs[1].Settings = setting.Values{"training.lr": "0.1"}, setting.Values{"training.lr": "0.2"}
	for r, err := range runAll(t, cfgs, func(*ringo.Job) error { return nil }) {
		if err == nil {
			t.Errorf("rank %d is in the job", r)
		}
		checkText(t, err, "training.lr is ", "0.1 on rank 0", "0.2 on rank 1")
	}
	cfgs[0].Settings = setting.Values{"a": "\x1b"}
	if err := cfgs[0].Validate(); err == nil {
		t.Error("a setting that cannot be printed is told to others")
	}
}
