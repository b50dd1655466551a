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

// training is what train.Config leaves to the processes.
func (s *Spec) training() train.Config {
	c := s.Train
	c.Threads = s.Threads()
	return c
}

// Training is the configuration of a rank's training. start is which start of a job with checkpoints of servers this
// is, 0 without.
func (s *Spec) Training(start int) train.Config {
	c := s.training()
	if s.Sync.UsesParameterServers() {
		c.Servers.Start, c.Servers.Begin = start, true // the servers have agreed: see SharedSettings
	}
	c.Servers.OpenServerCheckpoint = openServerCheckpoint
	return c
}

// openServerCheckpoint is train.Servers.OpenServerCheckpoint.
func openServerCheckpoint(dir string, step uint64, numbers []uint64) (train.ServerCheckpoint, error) {
	j, err := offline.At(dir, step, numbers)
	if err != nil {
		return nil, err // not a nil *offline.Job, which would be no nil
	}
	return j, nil
}

// Run is the configuration of a rank, or of a server that sums: Size and Rank place one that is started by hand.
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

// SharedSettings is what other processes of the job must have been told, too. A rank decides by all
// settings; a server by those that it was given and those of servers. Both tell the file that
// tables on servers begin with, which is none's result: servers that are not told of it would begin
// with other rows, and nobody would know. Folders may differ from host to host.
func (s *Spec) SharedSettings(t *setting.Table, rank bool) setting.Values {
	all := s.Values(t, setting.JobFixed, setting.JobMutable)
	for p := range all {
		if !rank && t.Origin(p) == "" && GroupOf(p) != "servers" && GroupOf(p) != "ps" && p != "sync" {
			delete(all, p)
		}
	}
	if s.Sync.UsesParameterServers() {
		all[pathInitFrom] = "" // none
		if from := s.Train.Start.From; from != "" {
			all[pathInitFrom] = filepath.Base(from)
		}
	}
	return all
}

// Values are the texts of settings of some scopes, with the model by its own name.
func (s *Spec) Values(t *setting.Table, scopes ...setting.Scope) setting.Values {
	all := t.Values(scopes...)
	if name := s.Train.Model.Name; name != "" {
		all["model"] = name
	}
	return all
}

// What servers that keep parameters have time for.
const (
	fullWait     = 5 * time.Minute  // until there is room on a full disk for their last checkpoint
	saveGrace    = 10 * time.Minute // to save it, once all ranks have ended
	trainerGrace = time.Minute      // for a trainer that its own mesh watches
)

// SaveGrace is how long launched servers may take to end.
func (s *Spec) SaveGrace() time.Duration {
	if s.ParameterServer.Durability == engine.None {
		return 0
	}
	return saveGrace
}

// keep is what all servers that keep parameters have in common.
func (s *Spec) keep() server.Config {
	c := s.ParameterServer
	c.Servers, c.Trainers, c.Sessions = s.Servers.Count, s.Ranks, max(1, s.Train.Servers.Threads)
	if c.Dir == "" { // each start of a job that is saved has its own folder there
		c.Dir = s.Train.Checkpoint.Dir
	}
	c.Mode, c.Staleness = engine.Mode(s.Sync), s.Train.Servers.Staleness
	return c
}

// Server is the configuration of server index that keeps parameters, but for where it listens, and what a launcher says.
//
// Where ranks form a mesh that finds those that are lost, and a trainer may be away from its servers for longer. A server
// that was launched waits longer for the first to come, too: its time has begun before that of the ranks, and the
// launcher names those that did not join.
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

// Overrides are the texts of settings that were given, as assignments: what a launcher hands to its
// processes, and a checkpoint keeps for a later start. Rows for which without is true are left out;
// nil leaves out none.
func Overrides(t *setting.Table, without func(setting.Row) bool) (out []setting.Assignment) {
	for _, r := range t.Rows() {
		if o := t.Origin(r.Path); o != "" && (without == nil || !without(r)) {
			text, _ := t.Get(r.Path)
			out = append(out, setting.Assignment{Path: r.Path, Text: text, Origin: o})
		}
	}
	return out
}
