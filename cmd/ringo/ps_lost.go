package main

import (
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ringo-ml/ringo/internal/spelling"
	"github.com/ringo-ml/ringo/ps/server"
	"github.com/ringo-ml/ringo/ps/tables"
	"github.com/ringo-ml/ringo/transport"
)

// What a lost rank means for the others, where servers keep the parameters.
const (
	lostEnds   = "end"
	lostGoesOn = "go-on"
)

// registerLost registers what ranks and servers are told of it.
func (f *psFlags) registerLost(fs *pflag.FlagSet) {
	fs.StringVar(&f.lost, "ps-lost", lostEnds, "what happens when a rank is lost while servers keep the parameters: end (of all), or go-on: the others do without it and its part of the training data. It is lost when it has not come within --join-timeout, or shown no sign of life and not come back for --dead-after each. Rank 0 cannot be lost")
}

// goesOn says that the others go on when a rank is lost. They form no mesh then.
func (f *psFlags) goesOn() bool { return f.keeps() && f.lost == lostGoesOn }

// checkLost reports faults of it.
func (f *psFlags) checkLost(faults *faultList) {
	if f.lost != "" && !oneOf(f.lost, lostEnds, lostGoesOn) {
		faults.add("--ps-lost %q is not known%s: use %s or %s", f.lost, spelling.Hint(f.lost, lostEnds, lostGoesOn), lostEnds, lostGoesOn)
	}
}

// checkApart reports what has no effect on ranks that form no mesh.
func (f *jobFlags) checkApart(cmd *cobra.Command, faults *faultList) {
	if !f.ps.goesOn() {
		return
	}
	for _, name := range append([]string{"rendezvous", "transport", "algorithm", "trace"}, networkFlagNames...) {
		if cmd.Flags().Changed(name) {
			faults.add("--%s is not for --ps-lost %s: ranks are connected to servers, and not to each other", name, lostGoesOn)
		}
	}
	for _, name := range lostTimes {
		if f.byHand && cmd.Flags().Changed(name) {
			faults.add("--%s has no effect on a rank with --ps-lost %s: give it to ringo server", name, lostGoesOn)
		}
	}
}

// lostTimes are the flags that say when a rank is lost.
var lostTimes = []string{"join-timeout", "heartbeat", "dead-after"}

// losing tells a server when a trainer is lost, and what that means. Where ranks form a mesh that finds those
// that are lost, and a trainer may be away from its servers for longer. One that was launched waits longer for the first
// to come, too: its time has begun before that of the ranks, and the launcher names those that did not join.
func (c *serverRole) losing(cfg *server.Config, launched bool) {
	const away = time.Minute
	cfg.Times, cfg.Rejoin = c.times(), max(away, c.deadAfter)
	if c.ps.goesOn() {
		cfg.Lost, cfg.Rejoin = tables.LostGoesOn, c.deadAfter
	} else if launched {
		cfg.Times.Join += away
	}
}

// checkBeat reports signs of life that servers of tables and those who connect to them would wait for in vain.
func checkBeat(every time.Duration, faults *faultList) {
	if most := transport.HandshakeTimeout / 2; every > most {
		faults.add("--heartbeat %v: want at most %v with servers that keep parameters", every, most)
	}
}
