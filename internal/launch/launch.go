// Package launch starts the processes of a job on this host and watches them.
//
// It starts any program, gives each process its place in variables (RankEnv), hosts
// the job's coordinator, merges the output, and sees to it that the processes
// end together: when one dies, when the context ends, and, with the help of a
// guard process, when the launcher itself is killed. It knows nothing of
// tensors.
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
	"github.com/ringo-ml/ringo/transport"
)

// Defaults of Config's zero values.
const (
	defaultRendezvous = "127.0.0.1:0"
	defaultTailLines  = 10
	defaultGrace      = 5 * time.Second
	defaultStopWithin = 25 * time.Second
)

// termGrace is what a process has between SIGTERM and SIGKILL. With
// defaultGrace and reaping, all are gone 8 s after the first died.
const termGrace = 2 * time.Second

// Config says what to run.
type Config struct {
	// Roles are the kinds of processes that the job has. Those of the first role do its work: their count is the world
	// size, and when all of them have ended, the others are made to end. The first process of that role has the
	// terminal, and the job does not go on without it. Roles in the mesh come before those that are not.
	Roles []Role
	// Env is the processes' environment, usually os.Environ(). The variables
	// of type RankEnv are set on top.
	Env []string
	// JobSpec is handed to every process in the variable RINGO_JOB: see JobSpecFromEnv. It holds
	// the settings of the whole job, and must not hold the ticket, since a program may print it. At
	// most 127 KiB without zero bytes; "" sets no variable.
	JobSpec string
	// Metrics is told to the ranks: the folder in which they have their figures; "": they keep none.
	Metrics string
	// Rendezvous is where ranks join, HOST:PORT; "" means a free port of
	// 127.0.0.1.
	Rendezvous string
	// Ticket is the job's; nil means a new one.
	Ticket transport.Ticket
	// TLS says which connections with the coordinator are encrypted, as in the processes. Zero: those between hosts.
	TLS transport.TLS
	// Version is told to the ranks, which refuse another.
	Version string
	// Stdout receives the processes' standard output: that of the first one as it comes, the others' in whole lines after
	// their role's name and their number, "[rank 2] ". nil discards it.
	Stdout io.Writer
	// Stderr receives the processes' standard error, likewise.
	Stderr io.Writer
	// Terminal says that Stdout and Stderr are one terminal: a line that rank
	// 0 has begun, such as a progress bar, is then erased for a line of
	// another rank and drawn again below it.
	Terminal bool
	// Columns, when above 0, is told to rank 0: the width of the terminal
	// that its output ends up on.
	Columns int
	// TailLines is how many of a dead process's last lines an error shows; 0
	// means 10.
	TailLines int
	// Grace is how long the others may take to end on their own after one
	// died; 0 means 5 s. SIGTERM follows, and SIGKILL 2 s later.
	Grace time.Duration
	// Times must be those of the processes.
	Times cluster.Times
	// SlowAfter is the coordinator's: for how long a rank may hold up others before it is reported. 0 means 5 s.
	SlowAfter time.Duration
	// Report is called with one line about what a person would want to know and that ends nothing. nil writes the
	// lines to Stderr after "ringo: ".
	Report func(line string)
	// OnReport, if set, is called with each of these lines, too.
	OnReport func(line string)
	// OnStart, if set, is called when a process has started, from different goroutines for different processes. Their
	// numbers are in the order of the roles, from 0.
	OnStart func(number, pid int)
	// OnPlace, if set, is told before the start where the processes of a role that is to be bound will run:
	// "bound to a core each", "not bound: 3 ranks on 2 cores".
	OnPlace func(role, placed string)
	// OnExit, if set, is called when a process has ended, likewise. how is "" for status 0, and otherwise "exit status 3"
	// or "killed by signal 9 (SIGKILL)".
	OnExit func(number int, how string)
	// Stop receives the names of signals that tell the launcher to end. Ranks that can stop after the same step
	// (cluster.Stopper) are asked to; others are made to end at once. The end of Run's context is no such request: it ends
	// them all.
	Stop <-chan string
	// StopWithin is how long ranks that were asked to stop have to save the run and end. 0 means 25 s.
	StopWithin time.Duration
	// Suspends receives when the launcher is to suspend the job: it stops all processes, calls Suspend, and has them go
	// on when that returns.
	Suspends <-chan os.Signal
	// Suspend stops the launcher itself, and returns when it goes on. It is needed where Suspends is given.
	Suspend func()
	// Resumed receives when all processes are to go on: another may have stopped them together with the launcher.
	Resumed <-chan os.Signal
	// LogDir is the folder that gets a file with the output of each process, such as rank-3.log; "": none.
	LogDir string
	// BlackBox is the folder that gets a file, when the job fails, with what its processes had recorded (package blackbox); "": none.
	BlackBox string
	// Hosts are those on which the job's processes run, where that is not this host alone: see Role.Hosts. Their launchers must be of the
	// same Version and Hash.
	Hosts []Host
	// Self is the path of this program, for roles whose program it is: other hosts may have it elsewhere. Hash is its checksum.
	Self, Hash string
	// HostEnv is what processes on other hosts get in their environment, beside what their host gives them. Env is not for them.
	HostEnv []string
	// Dir is where processes on other hosts work, where they have such a folder; "": where this one does.
	Dir string
	// Interface is the network interface by which the job's hosts reach each other; "": that by which this one reaches them.
	Interface string
	// Part, if set, is the place of this launcher's ranks, which are all it starts, among those of a job that others start, too: theirs
	// are the numbers from Part.Rank on, and rank 0 coordinates.
	Part *RankEnv
	// Sight, if set, lets others see the job's processes, and what they record, while it runs.
	Sight *ProcessTable
	// Guard is the command line of a process that calls Watchdog with its
	// standard input; nil means none.
	Guard []string
}

// Validate reports everything that is wrong with the configuration.
func (c Config) Validate() error {
	errs := append(checkRoles(c.Roles), c.checkHosts()...)
	fault := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	fault(len(c.JobSpec) > maxJob || strings.ContainsRune(c.JobSpec, 0), "job of %d bytes: want at most %d, which fit a variable, and none of them zero", len(c.JobSpec), maxJob)
	fault(c.Ticket != nil && strings.Contains(c.JobSpec, c.Ticket.String()), "job holds the ticket: leave it out, each process gets it in %s", TicketVar)
	fault(c.TailLines < 0, "%d last lines of a dead process: want at least 0", c.TailLines)
	fault(c.Grace < 0, "grace %v: want at least 0", c.Grace)
	fault(c.SlowAfter < 0, "slow after %v: want at least 0", c.SlowAfter)
	fault(c.StopWithin < 0, "stop within %v: want at least 0", c.StopWithin)
	fault(c.Suspends != nil && c.Suspend == nil, "Suspends is given, which says when to suspend the job, and Suspend is not, which does it: want both")
	return errors.Join(append(errs, c.Times.Validate())...)
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

// Run runs the job and returns when no process of it is left.
//
// It returns nil when all ended with status 0. When one died, the error is a
// *LostProcessError about the first; when ranks did not join in time, a
// *cluster.MissingError; when ctx ended, its cause; when it was told to stop, a *cluster.StoppedError, unless
// the ranks had come to their end. An error before the start
// names the program that cannot run or the address that is taken, and nothing
// is left running.
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
		if j.coordinator, err = cfg.coordinate(); err != nil {
			return err
		}
		defer j.coordinator.Close()
	}
	return j.run(ctx)
}

// members is how many processes the job's mesh has.
func (c *Config) members() (n int) {
	for _, r := range c.Roles {
		if r.Mesh {
			n += r.Count
		}
	}
	return n
}

// coordinate makes the coordinator of the mesh.
func (c *Config) coordinate() (*cluster.Coordinator, error) {
	listener, err := cluster.Listen(context.Background(), c.Rendezvous, c.Times.Join, c.Report)
	if err != nil {
		return nil, fmt.Errorf("launch: the rendezvous: %w", err)
	}
	members := c.members()
	out, err := cluster.NewCoordinator(cluster.CoordinatorConfig{
		Listener: listener, WorldSize: members, Servers: members - c.Roles[0].Count, HostRank: -1, Ticket: c.Ticket, TLS: c.TLS, Version: c.Version,
		Times: c.Times, SlowAfter: c.SlowAfter, Report: c.Report,
	})
	if err != nil {
		_ = listener.Close()
		return nil, err
	}
	return out, nil
}

// StartError says that a program cannot be started.
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
