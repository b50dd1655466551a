package launch

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ringo-ml/ringo/cluster"
	"github.com/ringo-ml/ringo/transport"
)

// giveUp is how long after SIGKILL a process may take to end before the
// launcher says that it cannot be killed.
const giveUp = 2 * time.Second

// job is one run.
type job struct {
	cfg         Config
	programs    [3]string // the program's file, and those of the servers and of the servers of tables
	tables      *tableSockets
	screen      *screen
	coordinator coordinator
	served      int // servers of tables that have ended well
	guard       guard
	procs       []*process // those that started, by number; one that is started again takes the place of the first
	exits       chan *process
	threads     []func() // end the threads that have started them

	interrupted bool                  // the context ended while processes ran, or they were told to end and could not stop in good order
	why         *cluster.StoppedError // that told them; nil: the context
	late        *time.Timer           // of processes that were told to end

	mu    sync.Mutex
	first *process // the first that died on its own
}

// run starts all and waits for all.
func (j *job) run(ctx context.Context) error {
	if err := j.guard.start(j.cfg.Guard, j.cfg.Env); err != nil {
		return err
	}
	defer j.guard.stop()
	j.exits = make(chan *process, j.members()+j.cfg.Tables*(1+j.cfg.TableRestarts))
	defer func() {
		for _, release := range j.threads {
			release()
		}
	}()
	err := j.onOneThread(j.startAll)
	if err != nil {
		j.signal(syscall.SIGKILL)
	}
	if ended := j.supervise(ctx); ended != nil {
		return errors.Join(err, ended)
	}
	if err != nil {
		return err
	}
	err = j.result(ctx)
	j.tellRest(err)
	return err
}

// members is how many processes the job's mesh has.
func (j *job) members() int { return j.cfg.N + j.cfg.Servers }

// onOneThread calls fn on a thread that lives as long as the job: the
// kernel takes that thread's end for the death of the parent of what it started.
func (j *job) onOneThread(fn func() error) error {
	started, done := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		started <- fn()
		<-done
	}()
	j.threads = append(j.threads, func() { close(done) })
	return <-started
}

// startAll starts the processes, up to the first that cannot start.
func (j *job) startAll() error {
	for number := range j.members() + j.cfg.Tables {
		p, err := j.start(number)
		if err != nil {
			return err
		}
		j.procs = append(j.procs, p)
	}
	return nil
}

// start starts a process by its number: ranks, servers, servers of tables.
func (j *job) start(number int) (*process, error) {
	p := j.newProcess(number)
	if err := j.cfg.bound(number, func() error { return p.start(j.sink(number)) }); err != nil {
		return nil, &StartError{Program: p.cmd.Args[0], Err: err}
	}
	j.guard.note('+', p.cmd.Process.Pid)
	if j.cfg.OnStart != nil {
		j.cfg.OnStart(number, p.cmd.Process.Pid)
	}
	if number < j.members() {
		j.coordinator.Process(number, p.used)
	}
	j.listen(p)
	go j.watch(p)
	return p, nil
}

func (j *job) newProcess(rank int) *process {
	if rank >= j.members() {
		return j.newTable(rank)
	}
	env := Env{
		Rank: rank, WorldSize: j.cfg.N, Servers: j.cfg.Servers, LocalRank: rank, Launched: true,
		Ticket: j.cfg.Ticket, Tables: j.tables.addrs,
	}
	if j.cfg.Apart {
		env.End = endNumber
	} else {
		env.Rendezvous = j.coordinator.Addr().String()
	}
	if rank == 0 {
		env.Columns = j.cfg.Columns
	}
	p := &process{rank: rank, server: -1, table: -1, apart: j.cfg.Apart, tail: tail{max: j.cfg.TailLines}}
	program, command := j.programs[0], j.cfg.Command
	if env.Serves() {
		p.server = rank - j.cfg.N
		program, command = j.programs[1], j.cfg.ServerCommand
	}
	p.run(program, command, append(j.cfg.environment(), env.Strings()...))
	return p
}

// run says which program the process is.
func (p *process) run(program string, command, env []string) {
	p.cmd = exec.Command(program, command[1:]...)
	p.cmd.Args[0] = command[0]
	p.cmd.Env = env
}

// environment is what every process has in common.
func (c *Config) environment() []string {
	env := withoutOurs(c.Env)
	if c.Job != "" {
		env = append(env, JobVar+"="+c.Job)
	}
	return env
}

// withoutOurs is env without the variables of another job, whose launcher may
// have started this one.
func withoutOurs(env []string) []string {
	ours := []string{RankVar, WorldSizeVar, ServersVar, RoleVar, LocalRankVar, RendezvousVar, TicketVar, CoordinatorVar, ColumnsVar, TablesVar, TableVar, SocketVar, LifeVar, EndVar, JobVar}
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(ours, name)
	})
}

// sink returns where rank's output goes; nil bytes are its end.
func (j *job) sink(rank int) func(stream, []byte) {
	if rank == 0 {
		return func(of stream, b []byte) {
			if len(b) > 0 {
				j.screen.raw(of, b)
			}
		}
	}
	prefix := fmt.Sprintf("[rank %d] ", rank)
	switch {
	case rank >= j.members():
		prefix = fmt.Sprintf("[ps %d] ", rank-j.members())
	case rank >= j.cfg.N:
		prefix = fmt.Sprintf("[server %d] ", rank-j.cfg.N)
	}
	var lines [2]splitter
	for of := range lines {
		lines[of].emit = func(line []byte) { j.screen.line(stream(of), prefix+string(line)) }
	}
	return func(of stream, b []byte) {
		if b == nil {
			lines[of].flush()
			return
		}
		lines[of].write(b)
	}
}

// watch waits for p to end and tells everyone who must know.
func (j *job) watch(p *process) {
	p.wait()
	j.guard.note('-', p.cmd.Process.Pid)
	j.judge(p)
	p.drain()
	if j.cfg.OnExit != nil {
		j.cfg.OnExit(p.rank, p.how)
	}
	j.exits <- p
}

// judge tells the coordinator how p ended, unless it was this launcher's doing.
func (j *job) judge(p *process) {
	switch {
	case p.signalled():
	case j.cfg.Apart:
		j.judgeApart(p)
	case p.table >= 0: // the coordinator does not know of it: see tableEnded
	case p.how == "":
		j.coordinator.MarkEnded(p.rank)
	case j.stopped(p):
		p.stopped = true
	default:
		j.lose(p)
		j.coordinator.MarkLost(p.rank, p.how+lastLine(p.tail.last()))
	}
}

// lastLine quotes the last line for the other ranks' errors; the launcher's own
// shows more.
func lastLine(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	text := lines[len(lines)-1]
	if len(text) > 300 {
		text = strings.ToValidUTF8(text[:300], "") + "..."
	}
	return fmt.Sprintf("; its last line: %q", text)
}

// signal sends sig to all processes that have not ended.
func (j *job) signal(sig syscall.Signal) {
	for _, p := range j.procs {
		p.signal(sig)
	}
}

// supervise returns when all processes have ended. Once one has died, or a rank
// is lost, or ctx ends, the others are first left to end on their own (not for
// ctx), then asked to, then killed.
func (j *job) supervise(ctx context.Context) error {
	next := newEscalation()
	defer next.stop()
	j.late = time.NewTimer(time.Hour)
	j.late.Stop()
	defer j.late.Stop()
	look := time.NewTicker(j.looks())
	defer look.Stop()
	lost, done := j.coordinator.Lost(), ctx.Done()
	for running, ranks := len(j.procs), min(len(j.procs), j.cfg.N); running > 0; {
		select {
		case p := <-j.exits:
			if j.exited(p, next, ctx.Err() != nil) {
				continue
			}
			running--
			if p.rank < j.cfg.N {
				if ranks--; ranks == 0 {
					j.late.Stop() // servers have their own time
					j.awaitServers(next)
				}
			}
		case err := <-lost:
			lost = nil
			j.killSilent(err)
			next.begin(j.cfg.Grace)
		case <-done:
			done = nil
			if j.interrupted { // it was told to end before
				next.force()
				continue
			}
			j.interrupted = true
			next.hurry()
		case name := <-j.cfg.Stop:
			j.told(name, next)
		case at := <-j.coordinator.Stopping():
			j.agreed(at)
		case <-look.C:
			j.endStopped()
		case <-j.late.C:
			j.tooLate(next)
		case <-j.cfg.Suspends:
			j.suspend()
		case <-j.cfg.Resumed:
			j.pause(syscall.SIGCONT)
		case <-next.timer.C:
			sig, ok := next.advance()
			if !ok {
				return fmt.Errorf("launch: %d processes cannot be killed: %s", running, j.pids())
			}
			if sig == syscall.SIGKILL && j.spareTables(next) {
				continue
			}
			j.signal(sig)
		}
	}
	return nil
}

// exited acts on the end of a process, and tells whether another has taken its place; told says that all are to end.
func (j *job) exited(p *process, next *escalation, told bool) (replaced bool) {
	switch {
	case p.stopped:
	case p.table >= 0:
		if !next.begun() && !told && j.tableEnded(p) {
			return true
		}
		if p.how != "" {
			j.tableLost(next)
		} else {
			j.tableLeft(next)
		}
	case p.how != "" && j.deprived(p):
		next.begin(min(j.cfg.Grace, time.Second))
	case p.how != "" && j.spare(p, next.begun() || told):
	case p.how != "" && j.cfg.Apart:
		next.begin(min(j.cfg.Grace, time.Second)) // nobody tells the others, but the servers may say why
	case p.how != "" && !j.coordinator.Left(p.rank):
		next.begin(j.cfg.Grace)
	}
	return false
}

// killSilent kills a rank that was lost because it shows no sign of life: it will
// not end on its own.
func (j *job) killSilent(err error) {
	var lost *transport.LostError
	if errors.As(err, &lost) && j.coordinator.Silent(lost.Rank) {
		j.procs[lost.Rank].signal(syscall.SIGKILL)
	}
}

func (j *job) pids() string {
	var out []string
	for _, p := range j.procs {
		if p.alive() {
			out = append(out, fmt.Sprint(p.cmd.Process.Pid))
		}
	}
	return strings.Join(out, ", ")
}

// escalation is the order in which processes are made to end.
type escalation struct {
	timer *time.Timer
	step  int  // 0: not begun, 1: grace, 2: SIGTERM sent, 3: SIGKILL sent
	spare bool // servers of tables were left their time
}

func newEscalation() *escalation {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return &escalation{timer: t}
}

func (e *escalation) stop() { e.timer.Stop() }

// begun says that the processes are to end.
func (e *escalation) begun() bool { return e.step > 0 }

// begin starts with a time of grace, once.
func (e *escalation) begin(grace time.Duration) {
	if e.step == 0 {
		e.step = 1
		e.timer.Reset(grace)
	}
}

// hurry skips what is left of the time of grace.
func (e *escalation) hurry() { e.shorten(0) }

// force has the next signal be SIGKILL, at once and for all.
func (e *escalation) force() {
	if e.step < 3 {
		e.step, e.spare = 2, true
		e.timer.Reset(0)
	}
}

// shorten gives another time of grace in place of what is left of it.
func (e *escalation) shorten(grace time.Duration) {
	if e.step <= 1 {
		e.step = 1
		e.timer.Reset(grace)
	}
}

// advance returns the signal to send now; ok is false when all were sent.
func (e *escalation) advance() (sig syscall.Signal, ok bool) {
	e.step++
	switch e.step {
	case 2:
		e.timer.Reset(termGrace)
		return syscall.SIGTERM, true
	case 3:
		e.timer.Reset(giveUp)
		return syscall.SIGKILL, true
	}
	return 0, false
}

// result is Run's error once all have ended.
func (j *job) result(ctx context.Context) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	failed := slices.ContainsFunc(j.procs, func(p *process) bool { return p.how != "" && !p.spared && !p.stopped })
	stopped := slices.ContainsFunc(j.procs, func(p *process) bool { return p.stopped })
	verdict := j.coordinator.Err()
	var lost *transport.LostError
	var server *transport.ServerLostError
	switch {
	case j.interrupted && j.first == nil:
		if j.why != nil && ctx.Err() == nil {
			return j.why
		}
		return fmt.Errorf("interrupted: %w", context.Cause(ctx))
	case !failed && stopped:
		return j.why
	case !failed:
		return nil
	case j.failedTable() != nil:
		return j.death(j.failedTable(), "") // ranks that failed did so because of it
	case errors.As(verdict, &lost):
		return j.death(j.procs[lost.Rank], lost.Why)
	case errors.As(verdict, &server) && server.Server < j.cfg.Tables: // else it is not of this launcher's
		return j.death(j.procs[j.members()+server.Server], server.Why)
	case verdict != nil:
		return verdict
	case j.first != nil:
		return j.death(j.first, "")
	}
	return nil // none died on its own, and nobody was told to end
}
