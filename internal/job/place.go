package job

import (
	"path/filepath"
	"time"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/internal/server"
	"github.com/ringo-ml/ringo/internal/server/engine"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/ps/offline"
	"github.com/ringo-ml/ringo/train"
)

// training returns Train with the number of threads of a rank.
func (s *Spec) training() train.Config {
	c := s.Train
	c.Threads = s.Threads()
	return c
}

// Training returns a rank's training configuration. start is the number of the attempt of a job
// with server checkpoints, or 0.
func (s *Spec) Training(start int) train.Config {
	c := s.training()
	if s.Sync.UsesParameterServers() {
		c.Servers.Start, c.Servers.Begin = start, true // SharedSettings ensures that the servers agree
	}
	c.Servers.OpenServerCheckpoint = openServerCheckpoint
	return c
}

// openServerCheckpoint implements train.Servers.OpenServerCheckpoint.
func openServerCheckpoint(dir string, step uint64, numbers []uint64) (train.ServerCheckpoint, error) {
	j, err := offline.At(dir, step, numbers)
	if err != nil {
		return nil, err // a nil *offline.Job would be a non-nil interface
	}
	return j, nil
}

// Run returns the configuration of a rank or an aggregation server. Size and Rank are set only if
// the process was started by hand.
func (s *Spec) Run(t *setting.Table) ringo.Config {
	cfg := ringo.Config{
		Servers: s.AggregationServers(), ParameterServers: s.Servers.Addresses, Heters: s.HeterAddresses, ServersOnly: s.ContinueOnLoss(), Bind: s.Bind, Threads: s.Train.Threads, Times: s.Times, Network: s.Network, Settings: s.SharedSettings(t, true),
	}
	cfg.Aggregate.Timeout = s.Collective.Timeout
	if s.Transport == ringo.TransportSHM || s.Transport == ringo.TransportTCP {
		cfg.Transport = s.Transport
	}
	if cfg.Collective = s.Collective; s.ByHand() {
		cfg.Size, cfg.Rank, cfg.Rendezvous, cfg.TicketFile = s.Ranks, s.Rank, s.Rendezvous, s.TicketFile
	}
	return cfg
}

const pathInitFrom setting.Path = "training.init-from"

// SharedSettings returns the settings that must be equal on other processes of the job. A rank
// shares all settings of the job; a server shares explicit settings and settings of servers. Both
// add the base name of the initial rows' file: otherwise a server could begin with other rows
// undetected. Folders may differ among hosts.
func (s *Spec) SharedSettings(t *setting.Table, rank bool) setting.Values {
	all := s.Values(t, setting.JobFixed, setting.JobMutable)
	for p := range all {
		if !rank && t.Origin(p) == "" && GroupOf(p) != "servers" && GroupOf(p) != "ps" && p != "sync" {
			delete(all, p)
		}
	}
	if s.Sync.UsesParameterServers() {
		all[pathInitFrom] = "" // no initial rows
		if from := s.Train.Start.From; from != "" {
			all[pathInitFrom] = filepath.Base(from)
		}
	}
	return all
}

// Values returns the settings of some scopes as text, with the model's canonical name.
func (s *Spec) Values(t *setting.Table, scopes ...setting.Scope) setting.Values {
	all := t.Values(scopes...)
	if name := s.Train.Model.Name; name != "" {
		all["model"] = name
	}
	return all
}

// Time limits of parameter servers.
const (
	fullWait     = 5 * time.Minute  // maximum wait for space on a full disk, for the last checkpoint
	saveGrace    = 10 * time.Minute // maximum time to save the last checkpoint after all ranks have ended
	trainerGrace = time.Minute      // minimum wait for a disconnected trainer that a mesh monitors
)

// SaveGrace returns the maximum time in which a launched server must save and exit.
func (s *Spec) SaveGrace() time.Duration {
	if s.ParameterServer.Durability == engine.None {
		return 0
	}
	return saveGrace
}

// keep returns the configuration that all parameter servers share.
func (s *Spec) keep() server.Config {
	c := s.ParameterServer
	c.Servers, c.Trainers, c.Sessions = s.Servers.Count, s.Ranks, max(1, s.Train.Servers.Threads)
	if c.Dir == "" { // each attempt of a job with checkpoints has a subfolder
		c.Dir = s.Train.Checkpoint.Dir
	}
	c.Mode, c.Staleness = engine.Mode(s.Sync), s.Train.Servers.Staleness
	return c
}

// Server returns the configuration of parameter server index. The caller adds the listen address
// and the launcher's values.
//
// A mesh among the ranks detects lost ranks, so a trainer may be disconnected from its servers for
// longer. A launched server waits longer for the first trainer too: its wait begins before the
// ranks start, and the launcher names missing ranks.
func (s *Spec) Server(t *setting.Table, index int, launched bool) server.Config {
	c := s.keep()
	c.Index, c.Version, c.HTTP = index, ringo.Version, s.Output.HTTP
	c.FullWait, c.JobSettings = fullWait, s.SharedSettings(t, false)
	if training := s.Training(0); s.Train.Start.From != "" {
		c.Begin = training.BeginRows
	}
	c.Times, c.Rejoin = s.Times, max(trainerGrace, s.Times.DeadAfter)
	if s.ContinueOnLoss() {
		c.Rejoin = s.Times.DeadAfter
	} else if launched {
		c.Times.Join += trainerGrace
	}
	return c
}

// Overrides returns the explicit settings as assignments: a launcher passes them to its processes,
// and a checkpoint stores them for a resumed run. Rows that without accepts are omitted; nil omits
// no row.
func Overrides(t *setting.Table, without func(setting.Row) bool) (out []setting.Assignment) {
	for _, r := range t.Rows() {
		if o := t.Origin(r.Path); o != "" && (without == nil || !without(r)) {
			text, _ := t.Get(r.Path)
			out = append(out, setting.Assignment{Path: r.Path, Text: text, Origin: o})
		}
	}
	return out
}
