package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ringo-ml/ringo/internal/cgroup"
	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/transport"
)

// giveUp is how long after SIGKILL a process may take to end before the
// launcher says that it cannot be killed.
const giveUp = 10 * time.Second // on a host with many times as many threads as processors one that was killed takes seconds to end

// job is one run.
type job struct {
	cfg         Config
	crews       []*roleGroup
	screen      *screen
	coordinator *cluster.Coordinator // of the mesh; nil: no role joins one
	guard       watchdog
	shortage    *cgroup.Shortage // of memory, on this host
	procs       []*process       // those that started, by number; one that is started again takes the place of the first
	exits       chan *process
	blind       bool     // processes have no memory to record in
	threads     []func() // end the threads that have started them

	// What supervise alone uses.
	next        *escalation
	running     int                   // how many processes have not ended
	leading     int                   // how many of these are of the first role
	serversDone int                   // servers outside the mesh that have ended well, or that the others go on without
	interrupted bool                  // the context ended while processes ran, or they were told to end and could not stop in good order
	stopRequest *cluster.StoppedError // that told them; nil: the context
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
	starts := 0
	for _, c := range j.crews {
		starts += c.Count * (1 + c.Restarts)
	}
	j.exits = make(chan *process, starts)
	defer func() {
		for _, release := range j.threads {
			release()
		}
		j.cfg.Sight.close()
		for _, p := range j.procs {
			_ = p.memory.Close()
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
	err = j.boxed(j.result(ctx))
	j.tellRest(err)
	return err
}

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
	for _, c := range j.crews {
		for i := range c.Count {
			p, err := j.start(c, i, 0)
			if err != nil {
				return err
			}
			j.procs = append(j.procs, p)
		}
	}
	return nil
}

// start starts a process of a role, in the place of so many before it.
func (j *job) start(c *roleGroup, index, restarts int) (*process, error) {
	p := j.newProcess(c, index)
	p.restarts = restarts
	if err := j.launch(p); err != nil {
		_ = errors.Join(p.memory.Close(), p.log.Close()) // of none nothing happens
		return nil, &StartError{Program: c.Command[0], Err: err}
	}
	j.cfg.Sight.add(p)
	if j.cfg.OnStart != nil {
		j.cfg.OnStart(p.number, p.pid())
	}
	if c.Mesh {
		j.coordinator.Process(p.number, p.used)
	}
	if p.remote == nil {
		p.hearFrom(j.cfg.Times)
	}
	go j.watch(p)
	return p, nil
}

// launch starts the process, on this host or another.
func (j *job) launch(p *process) error {
	if p.remote != nil {
		return p.startRemote(j.logged(p, j.sink(p)), j.cfg.Times.Join)
	}
	err := p.role.bound(p.role.hostIndex(p.index), func() error { return p.start(j.logged(p, j.sink(p))) })
	if err == nil {
		j.guard.note('+', p.cmd.Process.Pid)
	}
	return err
}

func (j *job) newProcess(c *roleGroup, index int) *process {
	p := &process{role: c, index: index, number: c.first + index, host: j.host(c, index), tail: tail{max: j.cfg.TailLines}}
	if l := c.line(index); l != nil {
		order := startOrder{Role: l.role(c), Seat: c.hostIndex(index), Env: append(j.addresses(), j.place(p)...)}
		p.remote = newAway(l, order)
		return p
	}
	p.memory, p.memoryLack = j.memory(), j.shortage.Explain
	p.command(c, c.hostIndex(index))
	p.cmd.Env = slices.Concat(withoutOurs(j.cfg.Env), j.addresses(), j.place(p), p.cmd.Env)
	return p
}

// command is the process's command on this host, with its descriptors, and the variables that tell it their numbers.
func (p *process) command(c *roleGroup, seat int) {
	p.cmd = exec.Command(c.program, c.Command[1:]...)
	p.cmd.Args[0] = c.Command[0]
	give := func(name string, f *os.File) {
		p.cmd.Env = append(p.cmd.Env, name+"="+strconv.Itoa(firstDescriptor+len(p.cmd.ExtraFiles)))
		if f != nil {
			p.cmd.ExtraFiles = append(p.cmd.ExtraFiles, f)
		}
	}
	if c.Listens {
		give(SocketVar, c.sockets[seat])
	}
	if p.memory != nil {
		give(RecordVar, p.memory)
	}
	if !c.Mesh {
		give(EndVar, nil) // see openReportPipe
	}
}

// place is what tells a process its place in the job.
func (j *job) place(p *process) []string {
	if part := j.cfg.Part; part != nil {
		env := *part
		env.Rank, env.LocalRank, env.Metrics, env.Placed = part.Rank+p.index, p.index, j.cfg.Metrics, p.role.placed()
		return env.Strings()
	}
	ranks := j.crews[0].Count
	if p.role.serves() {
		env := RoleEnv{Role: p.role.Name, Index: p.index, WorldSize: ranks, Ticket: j.cfg.Ticket}
		return env.Strings()
	}
	env := RankEnv{Rank: p.number, WorldSize: ranks, LocalRank: p.role.hostIndex(p.index), Launched: true, Ticket: j.cfg.Ticket}
	if !p.role.isMain { // those of the mesh that sum come after its ranks, on each host
		env.LocalRank += j.crews[0].on(p.role.line(p.index))
	}
	if p.remote == nil {
		env.Metrics, env.Placed = j.cfg.Metrics, p.role.placed()
	}
	if p.role.Mesh {
		env.Servers, env.Rendezvous = j.cfg.members()-ranks, j.coordinator.Addr().String()
	}
	if p.number == 0 {
		env.Columns = j.cfg.Columns
	}
	return env.Strings()
}

// addresses are what every process of the job is told: its settings, and where others listen.
func (j *job) addresses() (env []string) {
	if j.cfg.JobSpec != "" {
		env = append(env, JobVar+"="+j.cfg.JobSpec)
	}
	for _, c := range j.crews {
		env = append(env, addrsOf(c.Name, c.addrs)...)
	}
	return env
}

// withoutOurs is env without the variables of another job, whose launcher may
// have started this one.
func withoutOurs(env []string) []string {
	ours := []string{RankVar, WorldSizeVar, ServersVar, RoleVar, LocalRankVar, RendezvousVar, TicketVar, TicketFileVar, CoordinatorVar, ColumnsVar, PlacedVar, MetricsVar, SocketVar, EndVar, RecordVar, JobVar}
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		ofRole := strings.HasPrefix(name, varPrefix) && (strings.HasSuffix(name, indexSuffix) || strings.HasSuffix(name, addrsSuffix))
		return ofRole || slices.Contains(ours, name)
	})
}

// sink returns where a process's output goes; nil bytes are its end.
func (j *job) sink(p *process) func(stream, []byte) {
	if p.number == 0 {
		return func(of stream, b []byte) {
			if len(b) > 0 {
				j.screen.raw(of, b)
			}
		}
	}
	prefix := fmt.Sprintf("[%s %d] ", p.role.Name, p.role.before+p.index)
	if p.host != "" {
		prefix = fmt.Sprintf("[%s: %s %d] ", p.host, p.role.Name, p.index)
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
	if p.remote == nil {
		j.guard.note('-', p.cmd.Process.Pid)
	}
	j.judge(p)
	p.drain()
	_ = p.log.Close() // of none nothing happens
	j.cfg.Sight.end(p)
	if j.cfg.OnExit != nil {
		j.cfg.OnExit(p.number, p.how)
	}
	j.exits <- p
}

// judge tells the coordinator how p ended, unless it was this launcher's doing. Of a process outside the mesh it knows
// nothing.
func (j *job) judge(p *process) {
	switch {
	case p.signalled() || p.role.serves(): // see serverLost
	case !p.role.Mesh:
		if p.how != "" && p.isRequired() {
			j.processLost(p)
		}
	case p.how == "":
		j.coordinator.MarkEnded(p.number)
	case j.stopped(p):
		p.stopped = true
	case !p.role.isMain && j.coordinator.HasLeft(p.number): // it sums, and nobody has need of that any more
		p.continuedWithout = true
		j.cfg.Report(p.loss() + "; it had left the job in good order, which needs nothing from it")
	default:
		j.processLost(p)
		j.coordinator.MarkLost(p.number, p.how+lastLine(p.tail.last()))
	}
}

// lastLine quotes the last line for the other ranks' errors, or a panic before it; the launcher's
// own shows more.
func lastLine(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	text, what := lines[len(lines)-1], "its last line"
	if i := slices.IndexFunc(lines, isPanic); i >= 0 {
		text, what = lines[i], "it wrote"
	}
	if len(text) > 300 {
		text = strings.ToValidUTF8(text[:300], "") + "..."
	}
	return fmt.Sprintf("; %s: %q", what, text)
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
	j.next, j.late = newEscalation(), stoppedTimer()
	defer j.next.stop()
	defer j.late.Stop()
	look := time.NewTicker(j.looks())
	defer look.Stop()
	lost, stopping := j.news()
	done := ctx.Done()
	j.running, j.leading = len(j.procs), min(len(j.procs), j.crews[0].Count)
	for j.running > 0 {
		select {
		case p := <-j.exits:
			j.exited(p, ctx.Err() != nil)
		case err := <-lost:
			lost = nil
			j.killSilent(err)
			j.next.begin(j.cfg.Grace)
		case <-done:
			done = nil
			j.cancelled()
		case name := <-j.cfg.Stop:
			j.told(name)
		case at := <-stopping:
			j.agreed(at)
		case <-look.C:
			j.endStopped()
		case <-j.late.C:
			j.tooLate()
		case <-j.cfg.Suspends:
			j.suspend()
		case <-j.cfg.Resumed:
			j.pause(syscall.SIGCONT)
		case <-j.next.timer.C:
			if err := j.escalate(); err != nil {
				return err
			}
		}
	}
	return nil
}

// news are what the coordinator tells by itself; nothing comes where there is none.
func (j *job) news() (lost <-chan error, stopping <-chan cluster.StoppedError) {
	if j.coordinator == nil {
		return nil, nil
	}
	return j.coordinator.Lost(), j.coordinator.Stopping()
}

// killSilent kills a rank that was lost because it shows no sign of life: it will
// not end on its own.
func (j *job) killSilent(err error) {
	var lost *transport.LostError
	if errors.As(err, &lost) && j.coordinator.Silent(lost.Rank) {
		j.procs[lost.Rank].signal(syscall.SIGKILL)
	}
}

// cannotKill says that SIGKILL has ended not all.
func (j *job) cannotKill() error {
	var pids []string
	for _, p := range j.procs {
		if p.alive() {
			pids = append(pids, fmt.Sprint(p.pid()))
		}
	}
	return fmt.Errorf("launch: %d processes cannot be killed: %s", j.running, strings.Join(pids, ", "))
}

// result is Run's error once all have ended.
func (j *job) result(ctx context.Context) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	failed := slices.ContainsFunc(j.procs, func(p *process) bool { return p.how != "" && !p.continuedWithout && !p.stopped })
	stopped := slices.ContainsFunc(j.procs, func(p *process) bool { return p.stopped })
	verdict := j.verdict()
	var lost *transport.LostError
	var server *transport.ServerLostError
	switch {
	case j.interrupted && j.first == nil:
		if j.stopRequest != nil && ctx.Err() == nil {
			return j.stopRequest
		}
		return fmt.Errorf("interrupted: %w", context.Cause(ctx))
	case !failed && stopped:
		return j.stopRequest
	case !failed && (verdict == nil || !j.missedOne()):
		return nil
	case j.failedServer() != nil:
		return j.lostProcess(j.failedServer(), "") // ranks that failed did so because of it
	case errors.As(verdict, &lost):
		return j.lostProcess(j.procs[lost.Rank], lost.Reason)
	case errors.As(verdict, &server) && j.named(server.Process) != nil: // else it is not of this launcher's
		return j.lostProcess(j.named(server.Process), server.Reason)
	case verdict != nil:
		return verdict
	case j.first != nil:
		return j.lostProcess(j.first, "")
	}
	return nil // none died on its own, and nobody was told to end
}

// verdict is why the mesh has ended; nil: it has not, or there is none.
func (j *job) verdict() error {
	if j.coordinator == nil {
		return nil
	}
	return j.coordinator.Err()
}

// named is the process of that name, nil without one.
func (j *job) named(name string) *process {
	for _, p := range j.procs {
		if p.name() == name {
			return p
		}
	}
	return nil
}
