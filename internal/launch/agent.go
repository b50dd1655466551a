package launch

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ringo-ml/ringo/internal/cgroup"
	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/liveness"
	"github.com/ringo-ml/ringo/internal/watch/failure"
	"github.com/ringo-ml/ringo/internal/watch/record"
)

// AgentConfig is the configuration of a host's launcher.
type AgentConfig struct {
	// Version and Hash are the program's, and must equal the job launcher's.
	Version, Hash string
	// Program is the path of this program, for roles that run the same program.
	Program string
	// Guard is Config.Guard.
	Guard []string
	// Env is the environment of the processes, and Reached the SSH_CONNECTION in Env, or "".
	Env     []string
	Reached string
}

// agent runs processes of a job with a launcher on another host.
type agent struct {
	AgentConfig
	out      *outbox            // connection to the launcher
	received atomic.Bool        // set by each frame, cleared by watchHeartbeats
	limit    chan time.Duration // maximum silence, sent when the launcher has announced the limit
	begin    agentHello         // first message of the launcher
	dir      string             // working directory of the processes
	crews    []*roleGroup       // roles with processes on this host, in the launcher's order
	guard    watchdog           // kills the processes if this process is killed
	shortage *cgroup.Shortage   // memory shortage of this host
	tasks    sync.WaitGroup     // one task per process, until all of the process's output and end are sent
	ended    chan *process      // processes that have ended
	procs    map[int]*process   // running processes
	all      map[int]*process   // running and ended processes, as the launcher may request records of both
}

// RunAgent starts and ends processes on this host on behalf of a launcher on another host, which
// sends commands through in and receives results through out. RunAgent returns when no process is
// left and in has ended, the launcher has been silent for the agreed time, or ctx has ended. The
// processes then have 3 s to end, as after the launcher's own end.
func RunAgent(ctx context.Context, in io.Reader, out io.Writer, cfg AgentConfig) error {
	a := &agent{
		AgentConfig: cfg, out: newOutbox(out), limit: make(chan time.Duration, 1),
		procs: map[int]*process{}, all: map[int]*process{}, ended: make(chan *process, 16), shortage: cgroup.Watch(os.DirFS("/")),
	}
	defer a.out.close()
	if err := a.guard.start(cfg.Guard, cfg.Env); err != nil {
		return err
	}
	defer a.guard.stop()
	runtime.LockOSThread() // required by onOneThread
	defer runtime.UnlockOSThread()
	client, _, _ := strings.Cut(cfg.Reached, " ")
	if err := a.out.send(jsonFrame(frameHost, 0, welcome{Version: cfg.Version, Hash: cfg.Hash, Client: client})); err != nil {
		return err
	}
	over := make(chan struct{})
	defer context.AfterFunc(ctx, func() { a.out.cut(context.Cause(ctx)) })()
	go a.watchHeartbeats(over)
	err := a.follow(a.listen(in, over))
	close(over)
	a.finish()
	for _, p := range a.all {
		_ = p.memory.Close()
	}
	closeRoles(a.crews)
	return err
}

// listen reads the launcher's frames until in ends or over is closed.
func (a *agent) listen(in io.Reader, over <-chan struct{}) <-chan frame {
	said := make(chan frame)
	go func() {
		defer close(said)
		for r := bufio.NewReader(in); ; {
			f, err := readFrame(r)
			if err != nil {
				return
			}
			select {
			case said <- f:
			case <-over:
				return
			}
		}
	}()
	return said
}

// watchHeartbeats cuts the connection when no frame arrives within the launcher's limit.
// watchHeartbeats sends no frames, so a dead connection with full buffers cannot block the check.
func (a *agent) watchHeartbeats(over <-chan struct{}) {
	silence := liveness.Detector{Limit: time.Minute} // default until the launcher's limit arrives
	looks := time.NewTicker(silence.Wait())
	defer looks.Stop()
	for {
		select {
		case <-over:
			return
		case silence.Limit = <-a.limit:
			silence.Reset()
			looks.Reset(silence.Wait())
		case <-looks.C:
			if a.received.Swap(false) {
				silence.Reset()
			} else if silence.Missed(false) {
				a.out.cut(fmt.Errorf("the job's launcher shows no sign of life for %v", silence.Limit))
				return
			}
		}
	}
}

// follow carries out the launcher's commands until their channel or the connection ends.
func (a *agent) follow(said <-chan frame) error {
	beats := time.NewTicker(time.Minute)
	defer beats.Stop()
	for {
		select {
		case f, ok := <-said:
			if !ok {
				return nil
			}
			if a.received.Store(true); f.kind == frameBegin {
				if err := f.read(&a.begin); err != nil || a.begin.Beat <= 0 || a.begin.Silent <= 0 {
					return fmt.Errorf("the first message of the job's launcher cannot be read: %v", err)
				}
				a.limit <- a.begin.Silent
				beats.Reset(a.begin.Beat)
			}
			if err := a.take(f); err != nil {
				return err
			}
		case p := <-a.ended:
			if a.procs[p.number] == p { // false if a restarted process has taken the number
				delete(a.procs, p.number)
			}
		case <-beats.C:
			used := map[int]time.Duration{}
			for number, p := range a.procs {
				used[number] = p.used()
			}
			_ = a.out.send(jsonFrame(frameHeartbeat, 0, used)) // a failed send also ends in
		case <-a.out.closed:
			return a.out.cause
		}
	}
}

func (a *agent) take(f frame) error {
	switch f.kind {
	case frameBegin:
		return a.workIn(a.begin.Dir)
	case frameRoles:
		return a.out.send(jsonFrame(frameReady, 0, a.prepare(f)))
	case frameStart:
		s, p := a.start(f)
		err := a.out.send(jsonFrame(frameStarted, f.number, s))
		if p != nil { // the start is reported before the end, even of a short-lived process
			a.tasks.Go(func() { a.watch(p) })
		}
		return err
	case frameSignal:
		if p := a.procs[f.number]; p != nil && len(f.body) == 1 {
			p.pause(syscall.Signal(f.body[0]))
		}
	case frameRecord:
		return a.sendRecord(f.number)
	}
	return nil
}

// workIn sets the working directory of the processes, and reports a missing directory.
func (a *agent) workIn(dir string) error {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		a.dir, _ = os.Getwd()
		return a.out.send(frame{kind: frameReport, body: fmt.Appendf(nil, "there is no folder %s there: its processes work in %s", dir, a.dir)})
	}
	a.dir = dir
	return nil
}

func (a *agent) prepare(f frame) (out readiness) {
	var roles []agentRole
	err := f.read(&roles)
	var ip net.IP
	if err == nil {
		ip, err = a.address()
	}
	for _, r := range roles {
		if err != nil {
			break
		}
		role := r.Role
		if role.Count = r.Count; r.Self {
			role.Command[0] = a.Program
		} else if len(role.Command) > 0 && strings.Contains(role.Command[0], "/") && !filepath.IsAbs(role.Command[0]) {
			role.Command[0] = filepath.Join(a.dir, role.Command[0])
		}
		one := &roleGroup{Role: role, isMain: r.Leads}
		a.crews = append(a.crews, one)
		err = errors.Join(one.open(ip), one.settle())
		out.Addrs, out.Placed = append(out.Addrs, one.addrs), append(out.Placed, one.placed())
	}
	out.Fault = errorText(err)
	return out
}

// address returns this host's address: of the configured interface, or else as ssh dialed it.
func (a *agent) address() (net.IP, error) {
	if a.begin.Interface == "" {
		if words := strings.Fields(a.Reached); len(words) == 4 && net.ParseIP(words[2]) != nil {
			return net.ParseIP(words[2]), nil
		}
	}
	return cluster.HostAddress(a.begin.Interface, false)
}

// start starts a process, for watch. On failure the process is nil and the started has the reason.
func (a *agent) start(f frame) (started, *process) {
	var order startOrder
	if err := f.read(&order); err != nil {
		return started{Fault: err.Error()}, nil
	}
	if order.Role < 0 || order.Role >= len(a.crews) || order.Seat < 0 || order.Seat >= a.crews[order.Role].Count {
		return started{Fault: fmt.Sprintf("process %d of role %d was not prepared", order.Seat, order.Role)}, nil
	}
	c := a.crews[order.Role]
	p := &process{role: c, index: order.Seat, number: f.number, tail: tail{max: 1}}
	p.memory, _ = record.Create(record.Config{}) // without memory the process records in private memory
	p.memoryLack = a.shortage.Explain
	p.command(c, order.Seat)
	p.cmd.Dir = a.dir
	p.cmd.Env = append(append(withoutOurs(a.Env), a.begin.Env...), append(order.Env, p.cmd.Env...)...)
	if placed := c.placed(); placed != "" && c.isMain {
		p.cmd.Env = append(p.cmd.Env, PlacementVar+"="+placed)
	}
	if err := c.bound(order.Seat, func() error { return p.start(a.sends(p.number)) }); err != nil {
		_ = p.memory.Close()
		return started{Fault: (&StartError{Program: c.Command[0], Err: err}).Error()}, nil
	}
	a.guard.note('+', p.cmd.Process.Pid)
	if old := a.all[p.number]; old != nil { // the process is restarted
		_ = old.memory.Close()
	}
	a.procs[p.number], a.all[p.number] = p, p
	p.hearFrom(cluster.Times{Join: a.begin.Join}.WithDefaults())
	return started{PID: p.cmd.Process.Pid}, p
}

func (a *agent) sends(number int) func(stream, []byte) {
	return func(of stream, b []byte) {
		if len(b) > 0 {
			_ = a.out.send(frame{[...]frameKind{stdout: frameOut, stderr: frameErr}[of], number, slices.Clone(b)}) // a failed send also ends in
		}
	}
}

// watch waits for a process and reports the end immediately, and again once all output is sent.
func (a *agent) watch(p *process) {
	p.wait()
	a.guard.note('-', p.cmd.Process.Pid)
	e := exit{ExitStatus: p.how, Hung: p.whyHung(), Told: (*failure.Exit)(nil)}
	if p.reportPipe != nil {
		e.Told = p.end()
	}
	_ = a.out.send(jsonFrame(frameExit, p.number, e))
	p.drain()
	_ = a.out.send(frame{kind: frameDrained, number: p.number})
	a.ended <- p
}

func (a *agent) sendRecord(number int) error {
	if p := a.all[number]; p != nil && p.memory != nil {
		buf := make([]byte, maxFrame/4)
		for at := int64(0); ; {
			n, err := p.memory.ReadAt(buf, at)
			if at += int64(n); n > 0 {
				if err := a.out.send(frame{frameMemory, number, slices.Clone(buf[:n])}); err != nil {
					return err
				}
			}
			if err != nil {
				break
			}
		}
	}
	return a.out.send(frame{kind: frameMemory, number: number})
}

func (a *agent) finish() {
	all := make(chan struct{})
	go func() { a.tasks.Wait(); close(all) }()
	late := time.NewTimer(watchdogGrace)
	defer late.Stop()
	for {
		select {
		case <-a.ended:
		case <-all:
			return
		case <-late.C:
			for _, p := range a.all {
				p.signal(syscall.SIGKILL)
			}
		}
	}
}
