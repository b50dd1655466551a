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
	"github.com/ringo-ml/ringo/internal/snapshot"
	"github.com/ringo-ml/ringo/transport"
)

// giveUp is the time from SIGKILL until a process is reported as impossible to kill.
const giveUp = 10 * time.Second // a killed process takes seconds to end on a host with many times as many threads as processors

type job struct {
	cfg         Config
	crews       []*roleGroup
	screen      *screen
	coordinator *cluster.Coordinator // coordinator of the mesh; nil if no role joins a mesh
	guard       watchdog
	shortage    *cgroup.Shortage // memory shortage of this host
	procs       []*process       // started processes, by number; a restarted process replaces the former one
	exits       chan *process
	blind       bool        // no memory for processes to record in
	starts      chan func() // functions for the starting thread; nil before the first
	epoch       epoch
	closing     sync.WaitGroup // former coordinators that close
	fault       error          // reason why the next epoch has not begun

	// next and the fields below are used by supervise only.
	next        *escalation
	running     int                   // running processes
	leading     int                   // running processes of the first role
	serversDone int                   // servers outside the mesh that ended well or are continued without
	interrupted bool                  // the context ended while processes ran, or ranks asked to stop could not stop in good order
	stopRequest *cluster.StoppedError // request to stop; nil: the context ended
	late        *time.Timer           // timer for processes that were asked to stop
	change      *time.Timer           // timer of changeMembers

	mu    sync.Mutex
	first *process // first process that died uncommanded

	placing sync.Mutex // held while processes change their numbers
}

func (j *job) run(ctx context.Context) error {
	if err := j.guard.start(j.cfg.Guard, j.cfg.Env); err != nil {
		return err
	}
	defer j.guard.stop()
	starts := 0
	for _, c := range j.crews {
		starts += c.Count * (1 + c.Restarts)
	}
	j.exits, j.starts = make(chan *process, starts), make(chan func())
	go startThread(j.starts)
	defer func() {
		close(j.starts)
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
	if err = errors.Join(err, j.fault); err != nil {
		return err
	}
	err = j.boxed(j.result(ctx))
	j.tellRest(err)
	return err
}

// onOneThread calls fn on the starting thread, which has the lifetime of the job: the kernel treats
// the end of this thread as the death of the children's parent.
func (j *job) onOneThread(fn func() error) error {
	done := make(chan error)
	j.starts <- func() { done <- fn() }
	return <-done
}

func startThread(starts <-chan func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for start := range starts {
		start()
	}
}

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

func (j *job) start(c *roleGroup, index, restarts int) (*process, error) {
	p := j.newProcess(c, index)
	p.restarts = restarts
	if err := j.launch(p); err != nil {
		_ = errors.Join(p.memory.Close(), p.log.Close()) // a nil memory or log closes without effect
		return nil, &StartError{Program: c.Command[0], Err: err}
	}
	j.cfg.Sight.Set(p.number, p.info(false))
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
	if files := j.cfg.Snapshots.Files(); c.isMain && files != nil {
		p.give(snapshot.FDVar, files...)
	}
	if c.continues {
		p.give(PlacesFDVar) // number of the pipe's descriptor: see openPipe
	}
	p.cmd.Env = slices.Concat(withoutOurs(j.cfg.Env), j.addresses(), j.place(p), p.cmd.Env)
	return p
}

// command builds the process's command on this host, with its descriptors and their variables.
func (p *process) command(c *roleGroup, seat int) {
	p.cmd = exec.Command(c.program, c.Command[1:]...)
	p.cmd.Args[0] = c.Command[0]
	if c.Listens {
		p.give(ListenFDVar, c.sockets[seat])
	}
	if p.memory != nil {
		p.give(RecordFDVar, p.memory)
	}
	if !c.Mesh {
		p.give(ExitFDVar) // number of the report pipe's descriptor: see openPipe
	}
}

// give passes descriptors to the process, and the number of the first one in a variable.
func (p *process) give(name string, files ...*os.File) {
	p.cmd.Env = append(p.cmd.Env, name+"="+strconv.Itoa(firstDescriptor+len(p.cmd.ExtraFiles)))
	p.cmd.ExtraFiles = append(p.cmd.ExtraFiles, files...)
}

// place returns the variables with a process's place in the job.
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
	if !p.role.isMain { // aggregation servers in the mesh are numbered after the ranks, on each host
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

// addresses returns the variables common to all processes: job settings and listen addresses.
func (j *job) addresses() []string {
	var env variables
	env.text(JobVar, j.cfg.JobSpec)
	for _, c := range j.crews {
		env.text(addrsVar(c.Name), strings.Join(c.addrs, ","))
	}
	return env
}

// withoutOurs returns env without the variables of another job, such as a parent launcher's.
func withoutOurs(env []string) []string {
	ours := append([]string{ListenFDVar, ExitFDVar, RecordFDVar, PlacesFDVar, snapshot.FDVar}, placeVars...)
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		ofRole := strings.HasPrefix(name, varPrefix) && (strings.HasSuffix(name, indexSuffix) || strings.HasSuffix(name, addrsSuffix))
		return ofRole || slices.Contains(ours, name)
	})
}

// sink returns the destination of a process's output; nil bytes mark the end.
func (j *job) sink(p *process) func(stream, []byte) {
	var lines [2]splitter
	for of := range lines {
		lines[of].emit = func(line []byte) { j.screen.line(stream(of), j.prefix(p)+string(line)) }
	}
	return func(of stream, b []byte) {
		switch {
		case b == nil:
			lines[of].flush()
		case j.prefix(p) == "":
			j.screen.raw(of, b)
		default:
			lines[of].write(b)
		}
	}
}

// prefix returns the prefix of a process's lines, "" for the first process.
func (j *job) prefix(p *process) string {
	j.placing.Lock()
	defer j.placing.Unlock()
	switch {
	case p.number == 0:
		return ""
	case p.host != "":
		return fmt.Sprintf("[%s: %s %d] ", p.host, p.role.Name, p.index)
	}
	return fmt.Sprintf("[%s %d] ", p.role.Name, p.role.before+p.index)
}

func (j *job) watch(p *process) {
	p.wait()
	if p.remote == nil {
		j.guard.note('-', p.cmd.Process.Pid)
	}
	j.placing.Lock()
	p.gone = true
	if !p.past {
		j.judge(p)
		j.cfg.Sight.Set(p.number, p.info(true))
	}
	j.placing.Unlock()
	p.drain()
	_ = p.log.Close() // a nil log closes without effect
	if j.cfg.OnExit != nil {
		j.cfg.OnExit(p.number, p.how)
	}
	j.exits <- p
}

// judge reports p's end to the coordinator, for a process in the mesh not ended by this launcher.
func (j *job) judge(p *process) {
	switch {
	case p.signalled() || p.role.serves(): // serverLost handles servers
	case !p.role.Mesh:
		if p.how != "" && p.isRequired() {
			j.processLost(p)
		}
	case p.how == "":
		j.coordinator.MarkEnded(p.number)
	case !j.epoch.ending && j.stopped(p):
		p.stopped = true
	case (!p.role.isMain || j.cfg.MinRanks > 0 && !j.cfg.Stateful) && j.coordinator.HasLeft(p.number) && !j.epoch.ending:
		p.continuedWithout = true
		j.cfg.Report(p.loss() + "; it had already left the job, which does not need it")
	default:
		j.processLost(p)
		j.coordinator.MarkLost(p.number, p.how+lastLine(p.tail.last()))
	}
}

// lastLine quotes the last line, or the line before a panic, for the errors of other ranks.
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

func (j *job) signal(sig syscall.Signal) {
	for _, p := range j.procs {
		p.signal(sig)
	}
}

// supervise returns when all processes have ended. After a death, a lost rank or the end of ctx,
// the remaining processes get a grace period (not for ctx), then SIGTERM, then SIGKILL.
func (j *job) supervise(ctx context.Context) error {
	j.next, j.late, j.change = newEscalation(), stoppedTimer(), stoppedTimer()
	defer j.next.stop()
	defer j.late.Stop()
	defer j.change.Stop()
	look := time.NewTicker(j.looks())
	defer look.Stop()
	done := ctx.Done()
	j.running, j.leading = len(j.procs), min(len(j.procs), j.crews[0].Count)
	for j.running > 0 {
		select {
		case p := <-j.exits:
			j.exited(p, ctx.Err() != nil)
		case err := <-j.epoch.lost:
			if j.epoch.lost = nil; !j.continues() {
				j.killSilent(err)
				j.next.begin(j.cfg.Grace)
			}
		case <-j.epoch.complete:
			j.joined()
		case d := <-j.epoch.departures:
			j.asked(d)
		case <-j.change.C:
			j.changeMembers()
		case <-j.epoch.rejoined:
			j.rejoin()
		case <-done:
			done = nil
			j.cancelled()
		case name := <-j.cfg.Stop:
			j.told(name)
		case at := <-j.epoch.stopping:
			j.agreed(at)
		case <-look.C:
			j.endStopped()
			j.replaceLate()
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
		if j.next.begun() {
			j.closePlaces()
		}
	}
	return nil
}

// killSilent kills a rank that is lost for missing heartbeats, because it would not end alone.
func (j *job) killSilent(err error) {
	var lost *transport.LostError
	if errors.As(err, &lost) && j.coordinator.Silent(lost.Rank) {
		j.procs[lost.Rank].signal(syscall.SIGKILL)
	}
}

func (j *job) cannotKill() error {
	var pids []string
	for _, p := range j.procs {
		if p.alive() {
			pids = append(pids, fmt.Sprint(p.pid()))
		}
	}
	return fmt.Errorf("launch: %d processes cannot be killed: %s", j.running, strings.Join(pids, ", "))
}

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
		return j.lostProcess(j.failedServer(), "") // ranks failed because of the server
	case errors.As(verdict, &lost):
		return j.lostProcess(j.procs[lost.Rank], lost.Reason)
	case errors.As(verdict, &server) && j.named(server.Process) != nil: // a process of this launcher
		return j.lostProcess(j.named(server.Process), server.Reason)
	case verdict != nil:
		return verdict
	case j.first != nil:
		return j.lostProcess(j.first, "")
	}
	return nil // no process died uncommanded or was asked to end
}

// verdict returns the reason for the mesh's end. nil means no end, or no mesh.
func (j *job) verdict() error {
	if j.coordinator == nil {
		return nil
	}
	return j.coordinator.Err()
}

func (j *job) named(name string) *process {
	for _, p := range j.procs {
		if p.name() == name {
			return p
		}
	}
	return nil
}
