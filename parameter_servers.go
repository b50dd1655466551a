package ringo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/ps/client"
	"github.com/ringo-ml/ringo/transport"
)

// ParameterServers is how many servers of tables the job has: 0 for none.
func (j *Job) ParameterServers() int { return len(j.tables) }

// Heters are the addresses of the job's heter-trainers, by number, and what they want to see: for Dial of package
// internal/heter/client. There are none without a launcher that has started some, or Config.Heters.
func (j *Job) Heters() (addrs []string, who transport.Credentials) {
	return j.heters, j.ticket.Under(j.tls)
}

// DialParameterServers connects this rank to the job's servers of tables, as trainer number Rank.
// cfg says what is asked of them; who and where they are, who watches them, the ticket and the
// version are the job's, and so is Timeout where cfg has none: Config.Collective's. Config.Settings
// are told, too, where cfg.Settings has no other. It waits for servers that are not up yet. The
// client is its caller's to end, before the job. When a rank or a server is lost it is aborted: its
// servers would let it wait for what that one was to push. A program that ends without an error
// calls Leave of each client: the end is an error else, since servers wait for the rank.
//
// Servers of mode geo take by how much copies have moved, and no gradients: they refuse a client that does
// not say so by the setting "sync".
func (j *Job) DialParameterServers(cfg client.Config) (*client.Client, error) {
	if j.heter != nil {
		return nil, j.heter.usageHint()
	}
	if len(j.tables) == 0 {
		return nil, fmt.Errorf("the job has no servers that keep parameters: start it by ringo run with some (servers.count 1, sync async), or give all ranks their addresses (Config.ParameterServers)")
	}
	if j.ticket == nil {
		return nil, fmt.Errorf("a job of one process has no servers of tables: start its ranks as processes")
	}
	cfg.Servers, cfg.Ticket, cfg.TLS, cfg.Version = j.tables, j.ticket, j.tls, Version
	cfg.Trainer, cfg.Trainers, cfg.Watched = j.rank, j.size, j.watched
	cfg.Timeout, cfg.Record = cmp.Or(cfg.Timeout, j.timeout), j.recorder
	told := maps.Clone(j.settings)
	if told == nil {
		told = setting.Values{}
	}
	maps.Copy(told, cfg.Settings)
	cfg.Settings = told
	onLeave := cfg.OnLeave
	cfg.OnLeave = func() {
		j.dialed.Add(-1)
		if onLeave != nil {
			onLeave()
		}
	}
	ctx := cmp.Or(j.ctx, context.Background())
	c, err := client.Dial(ctx, cfg)
	if err == nil {
		j.dialed.Add(1)
		context.AfterFunc(ctx, func() { c.Abort(context.Cause(ctx)) })
	}
	return c, err
}

// unleft is the error of a program that ends well with a client of DialParameterServers that has
// not left: its servers and, through them, the other ranks would wait for it.
func (j *Job) unleft() error {
	if j.dialed.Load() == 0 {
		return nil
	}
	return errors.New("it ended early: its client of the parameter servers has not left, so they wait for it: call Leave of each client at the end")
}

// Saving is what `ringo run --checkpoint` has said of checkpoints of a job whose servers keep its parameters; zero: nothing.
// Package train heeds it.
func (j *Job) Saving() launch.CheckpointEnv { return j.saving }
