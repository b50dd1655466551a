package launch

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringo-ml/ringo/internal/liveness"
	"github.com/ringo-ml/ringo/internal/watch/failure"
)

// Maximum times of reading a dead process's output: until the last lines, then until the end. A
// descendant outside the process group could hold the pipe open.
const (
	lastWords = 300 * time.Millisecond
	drainTime = 2 * time.Second
)

// process is one process of a job, the leader of a separate process group.
type process struct {
	role   *roleGroup
	index  int    // number within the role
	number int    // number in the job; in the mesh: the rank
	host   string // host in a multi-host job; otherwise ""

	restarts   int            // restarts before this process
	noRestart  string         // reason against a restart, appended to the loss in errors
	remote     *remoteProcess // process on another host, with cmd nil; nil on this host
	cmd        *exec.Cmd
	pipes      []*os.File // launcher's ends of the output pipes
	reading    sync.WaitGroup
	drained    chan struct{}
	tail       tail
	log        *os.File // log file for the output; nil: none
	unlogged   sync.Once
	memory     *os.File      // memory for the record; nil: none
	reportPipe *os.File      // pipe of the process's reports (exit_report.go); nil: none
	reportRead chan struct{} // closed at the end of the reports
	places     *os.File      // pipe for the process's next places; nil: none

	continuedWithout bool   // the job continues without this process
	stopped          bool   // ended as agreed by all ranks
	gone             bool   // ended and judged; job.placing is held, as for past and late
	past             bool   // without a place in the present epoch
	late             bool   // killed because it has not joined again
	informed         bool   // has been in a complete epoch, so that it has the job's state
	leaves           string // signal that asks a rank to leave the job; "": none

	memoryLack func() string // returns the reason of a kill for lack of memory, or ""; nil: unknown

	stoppedFor liveness.Detector // time stopped after leaving the job; see endStopped

	how string // exit status as text, "" for status 0; set by wait

	mu           sync.Mutex
	ended        bool   // the number may belong to another process from now on
	sent         bool   // signalled by the launcher: the end is not the process's fault
	hung         string // reason of the kill for missing heartbeats
	told         *failure.Exit
	hasHeartbeat bool // a heartbeat was received
}

func (p *process) start(sink func(of stream, b []byte)) error {
	p.drained = make(chan struct{})
	p.cmd.SysProcAttr = processAttributes()
	var ends []*os.File
	defer func() { closeAll(ends) }()
	for range 2 {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(p.pipes)
			return err
		}
		p.pipes, ends = append(p.pipes, r), append(ends, w)
	}
	says, err := p.openPipe()
	if err != nil {
		closeAll(p.pipes)
		return err
	}
	if says != nil {
		ends = append(ends, says)
	}
	p.cmd.Stdout, p.cmd.Stderr = ends[stdout], ends[stderr]
	if err := p.cmd.Start(); err != nil {
		closeAll(p.pipes)
		_ = errors.Join(p.reportPipe.Close(), p.places.Close()) // nil pipes close without effect
		return err
	}
	for of, r := range p.pipes {
		p.reading.Go(func() { p.copy(stream(of), r, sink) })
	}
	go func() { p.reading.Wait(); close(p.drained) }()
	return nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

func (p *process) copy(of stream, r io.Reader, sink func(stream, []byte)) {
	lines := splitter{emit: p.tail.add}
	defer lines.flush()
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			lines.write(buf[:n])
			sink(of, buf[:n])
		}
		if err != nil {
			sink(of, nil)
			return
		}
	}
}

// wait waits for the process's end, kills the rest of its group, and records status and last lines.
func (p *process) wait() {
	if p.remote != nil {
		<-p.remote.exited
		p.how = cmp.Or(p.whyHung(), p.how)
		return
	}
	if awaitExit(p.cmd.Process.Pid) {
		p.finish() // before reaping, while the number still belongs to the process
	}
	p.how = exitStatus(p.cmd.Wait())
	p.finish()
	if p.memoryLack != nil && !p.signalled() && (p.killed() || p.how == "exit status 137") { // 137: a shell's exit status for SIGKILL
		p.how = strings.TrimSuffix(p.how+", "+p.memoryLack(), ", ")
	}
	p.how = cmp.Or(p.whyHung(), p.how)
	defer func() {
		if p.how == "" && p.never() {
			p.how = "it has ended with exit status 0 and never served: " + p.role.Unserved
		}
	}()
	late := time.After(lastWords)
	for _, all := range []chan struct{}{p.drained, p.reportRead} {
		if all == nil {
			continue
		}
		select {
		case <-all:
		case <-late:
			return
		}
	}
}

// finish kills the rest of the process group, once.
func (p *process) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		p.ended = true
	}
}

func (p *process) drain() {
	if p.remote != nil {
		p.remote.drainAway()
		return
	}
	select {
	case <-p.drained:
	case <-time.After(drainTime):
	}
	closeAll(p.pipes)
	_ = p.reportPipe.Close()
	<-p.drained
}

// signal sends sig to the process and its group, if the process has not ended.
func (p *process) signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		p.sent = true
		p.kill(sig)
	}
}

// kill sends sig to the process and its group. p.mu is held, and the process has not ended.
func (p *process) kill(sig syscall.Signal) {
	if p.remote != nil {
		p.remote.kill(p.number, sig)
		return
	}
	_ = syscall.Kill(-p.cmd.Process.Pid, sig)
}

func (p *process) pid() int {
	if p.remote != nil {
		return p.remote.pid
	}
	return p.cmd.Process.Pid
}

func (p *process) pause(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		p.kill(sig)
	}
}

func (p *process) signalled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent
}

func (p *process) killed() bool { return strings.HasPrefix(p.how, "killed by signal") }

func (p *process) alive() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.ended
}

// exitStatus returns the end of a process as text, "" for status 0.
func exitStatus(err error) string {
	var exit *exec.ExitError
	if err == nil || !errors.As(err, &exit) {
		return errorText(err)
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() {
		return exit.Error()
	}
	text := fmt.Sprintf("killed by signal %d (%s)", status.Signal(), unix.SignalName(status.Signal()))
	if status.CoreDump() {
		text += ", core dumped"
	}
	return text
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
