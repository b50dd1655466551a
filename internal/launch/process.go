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

// How long a dead process's output is read: first for its last words, then for
// the rest. A descendant that left the process group could hold it open.
const (
	lastWords = 300 * time.Millisecond
	drainTime = 2 * time.Second
)

// process is one process of a job, the leader of a process group of its own.
type process struct {
	role   *roleGroup
	index  int    // in its role
	number int    // in the job; of one in the mesh its rank there
	host   string // in a job of several; "": there is one

	restarts   int            // how many came before it in its place
	noRestart  string         // why it could not be started again, in an error behind why it is lost
	remote     *remoteProcess // it is on another host, and cmd nil
	cmd        *exec.Cmd
	pipes      []*os.File // our ends
	reading    sync.WaitGroup
	drained    chan struct{}
	tail       tail
	log        *os.File // what it prints, too; nil: nowhere
	unlogged   sync.Once
	memory     *os.File      // in which it records what it does; nil: there is none
	reportPipe *os.File      // what it tells of itself (exit_report.go); nil: nothing
	reportRead chan struct{} // that has been read to its end

	continuedWithout bool // the others go on without it
	stopped          bool // it has ended because all ranks were told to

	memoryLack func() string // the reason for its kill, "" without lack of memory; nil: unknown

	stoppedFor liveness.Detector // for how long it has been stopped after it had left; see endStopped

	how string // how it ended, "" for status 0; set by wait

	mu           sync.Mutex
	ended        bool   // its number may be another's from now on
	sent         bool   // it was signalled from here: its end is not its own doing
	hung         string // why it was killed: it showed no life
	told         *failure.Exit
	hasHeartbeat bool // it has shown life
}

// start starts the process. Its output goes to sink, a writer per stream.
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
	says, err := p.openReportPipe()
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
		_ = p.reportPipe.Close() // of none nothing happens
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

// copy reads one stream to its end.
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

// wait waits for the process to end, kills what is left of its group and takes
// down how it ended and its last words.
func (p *process) wait() {
	if p.remote != nil {
		<-p.remote.exited
		p.how = cmp.Or(p.whyHung(), p.how)
		return
	}
	if awaitExit(p.cmd.Process.Pid) {
		p.finish() // it is not reaped yet, so its number is still its own
	}
	p.how = exitStatus(p.cmd.Wait())
	p.finish()
	if p.memoryLack != nil && !p.signalled() && (p.killed() || p.how == "exit status 137") { // 137: what a shell returns for SIGKILL
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

// finish kills what is left of the group, once.
func (p *process) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		p.ended = true
	}
}

// drain reads the rest of the output, within bounds.
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

// signal sends sig to the process, if it has not ended, and to all its
// descendants that stayed in its group.
func (p *process) signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		p.sent = true
		p.kill(sig)
	}
}

// kill sends sig to the process and its group. p.mu is held, and it has not ended.
func (p *process) kill(sig syscall.Signal) {
	if p.remote != nil {
		p.remote.kill(p.number, sig)
		return
	}
	_ = syscall.Kill(-p.cmd.Process.Pid, sig)
}

// pid is the process's number on its host.
func (p *process) pid() int {
	if p.remote != nil {
		return p.remote.pid
	}
	return p.cmd.Process.Pid
}

// pause sends a signal that does not end the process.
func (p *process) pause(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		p.kill(sig)
	}
}

// signalled says whether the launcher had a hand in the process's end.
func (p *process) signalled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent
}

// killed says that a signal of another's has ended the process.
func (p *process) killed() bool { return strings.HasPrefix(p.how, "killed by signal") }

// alive says that the process has not ended.
func (p *process) alive() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.ended
}

// exitStatus says in words how a process ended, "" for status 0.
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
