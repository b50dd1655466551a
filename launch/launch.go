// Package launch starts the processes of a job on this host and watches them.
//
// It starts any program, gives each process its place in variables (Env), hosts
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
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/cluster"
	"github.com/ringo-ml/ringo/transport"
)

// Defaults of Config's zero values.
const (
	DefaultRendezvous = "127.0.0.1:0"
	DefaultTailLines  = 10
	DefaultGrace      = 5 * time.Second
	DefaultStopWithin = 25 * time.Second
)

// termGrace is what a process has between SIGTERM and SIGKILL. With
// DefaultGrace and reaping, all are gone 8 s after the first died.
const termGrace = 2 * time.Second

// Config says what to run.
type Config struct {
	// N is the number of processes that run Command, the world size; at least 1.
	N int
	// Command is the program and its arguments. The program is looked up in
	// the launcher's PATH.
	Command []string
	// Servers is how many more processes run ServerCommand: the job's servers,
	// with the numbers from N on.
	Servers       int
	ServerCommand []string
	// Tables is how many more processes run TableCommand: servers that keep the
	// job's parameters (ps/service), which the ranks connect to by themselves. Each has a socket
	// that the launcher opened and that outlives it, so that one that was lost can be
	// started again, up to TableRestarts times each, while its clients wait. It is lost, too, when it shows no sign
	// of life (TableEnv.ShowLife), and killed then: within Times.Join at first, and within TableDeadAfter
	// from then on, where 0 means Times.DeadAfter.
	Tables         int
	TableCommand   []string
	TableRestarts  int
	TableDeadAfter time.Duration
	// TableGrace is how long servers of tables may take to end when all ranks have ended well, or
	// between SIGTERM and SIGKILL: they may have much to save. 0 means as long as others.
	TableGrace time.Duration
	// Apart says that ranks join nothing, and meet at servers of tables alone. When one is
	// lost, but for rank 0, the others go on: it is reported and no error.
	Apart bool
	// Env is the processes' environment, usually os.Environ(). The variables
	// of type Env are set on top.
	Env []string
	// Job is handed to every process in the variable RINGO_JOB: see JobFromEnv. It holds the settings of the whole
	// job, and must not hold the ticket, since a program may print it. At most 127 KiB without zero bytes; "" sets no
	// variable.
	Job string
	// Rendezvous is where ranks join, HOST:PORT; "" means a free port of
	// 127.0.0.1.
	Rendezvous string
	// Ticket is the job's; nil means a new one.
	Ticket transport.Ticket
	// Version is told to the ranks, which refuse another.
	Version string
	// Stdout and Stderr receive the processes' output: rank 0's as it comes,
	// the others' in whole lines after "[rank 2] " or "[server 0] ". nil
	// discards it.
	Stdout, Stderr io.Writer
	// Terminal says that Stdout and Stderr are one terminal: a line that rank
	// 0 has begun, such as a progress bar, is then erased for a line of
	// another rank and drawn again below it.
	Terminal bool
	// CoresEach is how many cores a process keeps busy. When N times as many
	// are all that the launcher may use, each process is bound to a share of
	// its own, on Linux: the exchange of one rank then does not take turns
	// with the computing of another. Processes that keep one core busy and are
	// a multiple of the cores share each with as many. 0 binds nothing. Servers
	// are not counted and not bound: they work while ranks wait, on whichever
	// core that leaves idle, and a core of their own would be one less for
	// computing.
	CoresEach int
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
	// OnStart and OnExit, if set, are called when a process has started and
	// ended, from different goroutines for different ranks. Servers count as
	// the ranks from N on, and those that keep tables after them. how is "" for
	// status 0, and otherwise "exit status 3" or "killed by signal 9".
	OnStart func(rank, pid int)
	OnExit  func(rank int, how string)
	// Stop receives the names of signals that tell the launcher to end. Ranks that can stop after the
	// same step (cluster.Stopper) are asked to, save the run and have StopWithin to end, 0 meaning 25 s; others are made to end at
	// once. The end of Run's context is no such request: it ends them all.
	Stop       <-chan string
	StopWithin time.Duration
	// Suspends receives when the launcher is to suspend the job. All processes are stopped, and then
	// Suspend is called, which stops the launcher itself; when it returns they go on, too, and when
	// Resumed receives: processes may have been stopped with the launcher by another.
	Suspends, Resumed <-chan os.Signal
	Suspend           func()
	// Guard is the command line of a process that calls Guard with its
	// standard input; nil means none.
	Guard []string
}

// Validate reports everything that is wrong with the configuration.
func (c Config) Validate() error {
	var errs []error
	if c.N < 1 {
		errs = append(errs, fmt.Errorf("%d processes: want at least 1", c.N))
	}
	if len(c.Command) == 0 || c.Command[0] == "" {
		errs = append(errs, errors.New("no program to run"))
	}
	if c.Servers < 0 {
		errs = append(errs, fmt.Errorf("%d servers: want at least 0", c.Servers))
	}
	if c.Servers > 0 && (len(c.ServerCommand) == 0 || c.ServerCommand[0] == "") {
		errs = append(errs, errors.New("no program to run as servers"))
	}
	if c.Tables < 0 || c.TableRestarts < 0 {
		errs = append(errs, fmt.Errorf("%d servers of tables, %d restarts: want at least 0", c.Tables, c.TableRestarts))
	}
	if c.Tables > 0 && (len(c.TableCommand) == 0 || c.TableCommand[0] == "") {
		errs = append(errs, errors.New("no program to run as servers of tables"))
	}
	if c.Apart && (c.Tables == 0 || c.Servers > 0) {
		errs = append(errs, fmt.Errorf("ranks that are apart with %d servers of tables and %d that are in a mesh: want at least one, and none", c.Tables, c.Servers))
	}
	if len(c.Job) > maxJob || strings.ContainsRune(c.Job, 0) {
		errs = append(errs, fmt.Errorf("job of %d bytes: want at most %d, which fit a variable, and none of them zero", len(c.Job), maxJob))
	}
	if c.Ticket != nil && strings.Contains(c.Job, c.Ticket.String()) {
		errs = append(errs, errors.New("job holds the ticket: leave it out, each process gets it in "+TicketVar))
	}
	if c.TailLines < 0 {
		errs = append(errs, fmt.Errorf("%d tail lines: want at least 0", c.TailLines))
	}
	if c.CoresEach < 0 {
		errs = append(errs, fmt.Errorf("%d cores each: want at least 0", c.CoresEach))
	}
	if c.Grace < 0 || c.TableGrace < 0 || c.SlowAfter < 0 || c.TableDeadAfter < 0 || c.StopWithin < 0 {
		errs = append(errs, fmt.Errorf("grace %v, of servers of tables %v, slow after %v, servers of tables dead after %v, stop within %v: want at least 0", c.Grace, c.TableGrace, c.SlowAfter, c.TableDeadAfter, c.StopWithin))
	}
	errs = append(errs, c.Times.Validate())
	if c.Suspends != nil && c.Suspend == nil {
		errs = append(errs, errors.New("told when to suspend, but not how"))
	}
	return errors.Join(errs...)
}

func (c *Config) setDefaults() {
	c.Times = c.Times.WithDefaults()
	c.Rendezvous = cmp.Or(c.Rendezvous, DefaultRendezvous)
	c.TailLines = cmp.Or(c.TailLines, DefaultTailLines)
	c.Grace = cmp.Or(c.Grace, DefaultGrace)
	c.StopWithin = cmp.Or(c.StopWithin, DefaultStopWithin)
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
// *DeathError about the first; when ranks did not join in time, a
// *cluster.MissingError; when ctx ended, its cause; when it was told to stop, a *cluster.StoppedError, unless
// the ranks had come to their end. An error before the start
// names the program that cannot run or the address that is taken, and nothing
// is left running.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("launch: %w", err)
	}
	cfg.setDefaults()
	programs, err := cfg.programs()
	if err != nil {
		return err
	}
	screen := newScreen(cfg.Stdout, cfg.Stderr, cfg.Terminal)
	defer screen.close()
	if cfg.Report == nil {
		cfg.Report = func(line string) { screen.line(stderr, "ringo: "+line) }
	}
	coordinator, err := cfg.coordinate()
	if err != nil {
		return err
	}
	defer coordinator.Close()
	tables, err := openTables(cfg.Tables)
	if err != nil {
		return err
	}
	defer tables.close()
	j := &job{cfg: cfg, programs: programs, screen: screen, coordinator: coordinator, tables: tables}
	return j.run(ctx)
}

// coordinate makes the coordinator. That of ranks that are apart hears of none.
func (c *Config) coordinate() (coordinator, error) {
	if c.Apart {
		return nobody{}, nil
	}
	listener, err := net.Listen("tcp", c.Rendezvous)
	if err != nil {
		return nil, fmt.Errorf("launch: the rendezvous %s: %w", c.Rendezvous, err)
	}
	out, err := cluster.NewCoordinator(cluster.CoordinatorConfig{
		Listener: listener, WorldSize: c.N + c.Servers, Servers: c.Servers, HostRank: -1, Ticket: c.Ticket, Version: c.Version,
		Times: c.Times, SlowAfter: c.SlowAfter, Report: c.Report,
	})
	if err != nil {
		_ = listener.Close()
		return nil, err
	}
	return out, nil
}

// programs finds the files of the program and of those of the servers.
func (c *Config) programs() (out [3]string, err error) {
	for i, command := range [][]string{c.Command, c.ServerCommand, c.TableCommand} {
		if i == 1 && c.Servers == 0 || i == 2 && c.Tables == 0 {
			continue
		}
		if out[i], err = exec.LookPath(command[0]); err != nil {
			return out, &StartError{Program: command[0], Err: err}
		}
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
