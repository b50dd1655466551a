// Package launch starts and supervises the processes of a job on this host.
//
// Package launch runs any program. The package passes each process its place through variables
// (RankEnv), hosts the job's coordinator and merges the output. All processes end together: when
// one dies, when the context ends, and, with a guard process, when the launcher itself is killed.
// Package launch has no dependency on tensors.
package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/internal/cgroup"
	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/faults"
	"github.com/ringo-ml/ringo/internal/snapshot"
	"github.com/ringo-ml/ringo/transport"
)

// Defaults of Config's zero values.
const (
	defaultRendezvous = "127.0.0.1:0"
	defaultTailLines  = 10
	defaultGrace      = 5 * time.Second
	defaultStopWithin = 25 * time.Second
)

// termGrace is the time from SIGTERM to SIGKILL. All processes are gone 8 s after the first death.
const termGrace = 2 * time.Second

// Config describes a job to run.
type Config struct {
	// Roles are the job's kinds of processes. The first role does the job's work: its count is the
	// world size, and when all of its processes have ended, the processes of the other roles are
	// ended. The first process of the first role has the terminal, and the job cannot continue
	// without that process. Roles in the mesh come before other roles.
	Roles []Role
	// Env is the processes' environment, normally os.Environ(); RankEnv's variables are added.
	Env []string
	// JobSpec holds the settings of the whole job, and every process gets JobSpec in the variable
	// RINGO_JOB: see JobSpecFromEnv. JobSpec must not hold the ticket, since a program may print
	// it. At most 127 KiB without zero bytes; "" sets no variable.
	JobSpec string
	// Metrics is the folder for the ranks' metrics; "" means none.
	Metrics string
	// Rendezvous is the ranks' HOST:PORT; "" means a free port of 127.0.0.1.
	Rendezvous string
	// Ticket is the job's ticket; nil means a new ticket.
	Ticket transport.Ticket
	// TLS selects the encrypted connections to the coordinator. Zero means those between hosts.
	TLS transport.TLS
	// Version is the program's version. Ranks refuse a different version.
	Version string
	// Stdout receives the processes' standard output: the first process's unchanged, other
	// processes' in whole lines after role and number, "[rank 2] ". nil discards the output.
	Stdout io.Writer
	// Stderr receives the processes' standard error, in the same form.
	Stderr io.Writer
	// Terminal means that Stdout and Stderr are one terminal: an unfinished line of rank 0, such as
	// a progress bar, is erased before a line of another rank and redrawn below.
	Terminal bool
	// Columns is the terminal's width, passed to rank 0; 0 means unknown.
	Columns int
	// TailLines is the number of a dead process's last lines in an error; 0 means 10.
	TailLines int
	// Grace is the time after a death until SIGTERM, and 2 s later SIGKILL. 0 means 5 s.
	Grace time.Duration
	// Times are the timeouts of the cluster, equal to those of the processes.
	Times cluster.Times
	// SlowAfter is the delay of other ranks above which a rank is reported as slow. 0 means 5 s.
	SlowAfter time.Duration
	// Report gets a line for each notable event that does not end the job. nil means Stderr.
	Report func(line string)
	// OnReport, if set, is also called with each of these lines.
	OnReport func(line string)
	// OnStart, if set, is called after a process starts, from different goroutines for different
	// processes. Numbers follow the order of the roles, from 0.
	OnStart func(number, pid int)
	// OnPlace, if set, is called before the start with the placement of each bound role: "bound to
	// a core each", "not bound: 3 ranks on 2 cores".
	OnPlace func(role, placed string)
	// OnExit, if set, is called after a process ends, also from different goroutines. how is "" for
	// status 0, and otherwise "exit status 3" or "killed by signal 9 (SIGKILL)".
	OnExit func(number int, how string)
	// Stop receives the names of signals that ask the launcher to end the job. Ranks that can stop
	// after the same step (cluster.Stopper) are asked to stop; all other ranks are ended
	// immediately. The end of Run's context also ends all immediately.
	Stop <-chan string
	// StopWithin is the ranks' time to save the run and end when asked to stop. 0 means 25 s.
	StopWithin time.Duration
	// Suspends receives requests to suspend the job: the launcher stops all processes, calls
	// Suspend, and continues the processes when Suspend returns.
	Suspends <-chan os.Signal
	// Suspend, required by Suspends, stops the launcher itself, and returns on its continuation.
	Suspend func()
	// Resumed receives a signal when all processes must continue, if stopped with the launcher.
	Resumed <-chan os.Signal
	// LogDir is the folder for each process's output, such as rank-3.log; "" means none.
	LogDir string
	// BlackBox is the folder for a failed job's merged records (package blackbox); "" means none.
	BlackBox string
	// Hosts are the hosts of the job's processes, unless all run on this host: see Role.Hosts. The
	// hosts' launchers must have the same Version and Hash.
	Hosts []Host
	// Self is the path of this program, for roles that run this program: other hosts may have
	// another path. Hash is the program's checksum.
	Self, Hash string
	// HostEnv is added to the environment of processes on other hosts. Env is not used there.
	HostEnv []string
	// Dir is the working directory on other hosts, if it exists there; "" means this process's.
	Dir string
	// Interface is the network interface between the hosts; "" means that of this host's
	// connections.
	Interface string
	// Part, if set, means that this launcher starts only some ranks of a job, from Part.Rank on.
	// Other launchers start the other ranks, and rank 0 coordinates.
	Part *RankEnv
	// Sight, if set, exposes the job's processes and their records while the job runs.
	Sight *ProcessTable
	// Snapshots, if set, is memory that all ranks get for snapshots (package snapshot), because the
	// job continues after the loss of a rank.
	Snapshots *snapshot.Memory
	// Guard is the command line of a process that calls Watchdog with its stdin; nil means none.
	Guard []string
	// MinRanks, if not 0, makes a job of ranks of this host, without other roles, continue after
	// losses of ranks, and after signals that ask ranks to leave: with fewer ranks, or with at
	// least MinRanks by new processes. The ranks read their next places (Places) and join again. 0
	// means that the first loss ends the job.
	MinRanks int
	// Stateful means that only the ranks have the job's state: a rank with the state becomes the
	// rank 0 of the next epoch, and the job ends if no rank has it, or if a rank is late.
	Stateful bool
	// Continue, needed with MinRanks, decides whether the job continues with a number of ranks,
	// after the losses and departures since all ranks had last joined. The result is their role and
	// JobSpec.
	Continue func(losses []*LostProcessError, ranks int) (role Role, jobSpec string, ok bool)
	// OnContinue, needed with MinRanks, is called when all these ranks have joined, with the time
	// since the first loss.
	OnContinue func(after time.Duration)
}

// Validate returns all errors of the configuration.
func (c Config) Validate() error {
	var bad faults.List
	bad.Add(checkRoles(c.Roles), c.checkHosts())
	bad.If(len(c.JobSpec) > maxJob || strings.ContainsRune(c.JobSpec, 0), "job of %d bytes: want at most %d, which fit a variable, and none of them zero", len(c.JobSpec), maxJob)
	bad.If(c.Ticket != nil && strings.Contains(c.JobSpec, c.Ticket.String()), "job holds the ticket: leave it out, each process gets it in %s", TicketVar)
	bad.If(c.TailLines < 0, "%d last lines of a dead process: want at least 0", c.TailLines)
	bad.If(c.Grace < 0, "grace %v: want at least 0", c.Grace)
	bad.If(c.SlowAfter < 0, "slow after %v: want at least 0", c.SlowAfter)
	bad.If(c.StopWithin < 0, "stop within %v: want at least 0", c.StopWithin)
	bad.If(c.Suspends != nil && c.Suspend == nil, "Suspends is given, which says when to suspend the job, and Suspend is not, which does it: want both")
	bad.If(c.MinRanks < 0 || c.MinRanks > 0 && (c.Continue == nil || c.OnContinue == nil || len(c.Roles) != 1 || !c.Roles[0].Mesh || len(c.Hosts) > 0),
		"at least %d ranks after losses: want the ranks of a mesh of this host, without other roles, and Continue and OnContinue", c.MinRanks)
	bad.Add(c.Times.Validate())
	return bad.Err()
}

func (c *Config) setDefaults() {
	c.Times = c.Times.WithDefaults()
	c.Rendezvous = cmp.Or(c.Rendezvous, defaultRendezvous)
	c.TailLines = cmp.Or(c.TailLines, defaultTailLines)
	c.Grace = cmp.Or(c.Grace, defaultGrace)
	c.StopWithin = cmp.Or(c.StopWithin, defaultStopWithin)
	if c.Ticket == nil {
		c.Ticket = transport.NewTicket()
	}
	if c.Stdout == nil {
		c.Stdout = io.Discard
	}
	if c.Stderr == nil {
		c.Stderr = io.Discard
	}
}

// Run runs the job and returns when all processes have ended.
//
// Run returns nil if all ended with status 0. If a process died, the error is a *LostProcessError
// about the first. Ranks that did not join in time are a *cluster.MissingError; the end of ctx
// returns its cause; a request to stop returns a *cluster.StoppedError, unless the ranks had
// already finished. An error before the start names the program that cannot run or the address in
// use, and leaves no process running.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("launch: %w", err)
	}
	cfg.setDefaults()
	screen := newScreen(cfg.Stdout, cfg.Stderr, cfg.Terminal)
	defer screen.close()
	if cfg.Report == nil {
		cfg.Report = func(line string) { screen.line(stderr, "ringo: "+line) }
	}
	if report := cfg.Report; cfg.OnReport != nil {
		cfg.Report = func(line string) { report(line); cfg.OnReport(line) }
	}
	lines, err := cfg.startAgents(ctx)
	if err != nil {
		return err
	}
	defer hangUp(lines)
	crews, err := cfg.openRoles(lines)
	if err != nil {
		return err
	}
	defer closeRoles(crews)
	cfg.tellPlaces(crews)
	j := &job{cfg: cfg, crews: crews, screen: screen, shortage: cgroup.Watch(os.DirFS("/"))}
	if cfg.members() > 0 {
		if err := j.coordinate(); err != nil {
			return err
		}
		defer j.closeCoordinators()
	}
	return j.run(ctx)
}

func (c *Config) members() (n int) {
	for _, r := range c.Roles {
		if r.Mesh {
			n += r.Count
		}
	}
	return n
}

func (c *Config) coordinate() (*cluster.Coordinator, error) {
	listener, err := cluster.Listen(context.Background(), c.Rendezvous, c.Times.Join, c.Report)
	if err != nil {
		return nil, fmt.Errorf("launch: the rendezvous: %w", err)
	}
	members := c.members()
	out, err := cluster.NewCoordinator(cluster.CoordinatorConfig{
		Listener: listener, WorldSize: members, Servers: members - c.Roles[0].Count, HostRank: -1, Ticket: c.Ticket, TLS: c.TLS, Version: c.Version,
		Times: c.Times, SlowAfter: c.SlowAfter, Early: c.Snapshots != nil, Rejoin: c.MinRanks > 0 && !c.Stateful, Report: c.Report,
	})
	if err != nil {
		_ = listener.Close()
		return nil, err
	}
	return out, nil
}

// StartError means that a program cannot be started.
type StartError struct {
	Program string
	Err     error
}

// Error names the program.
func (e *StartError) Error() string {
	var x *exec.Error
	cause := e.Err
	if errors.As(cause, &x) {
		cause = x.Err
	}
	return fmt.Sprintf("cannot start %q: %v", e.Program, cause)
}

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }
