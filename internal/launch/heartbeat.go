package launch

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/liveness"
)

// Outside the mesh no heartbeats show who lives. A process of a role with Heartbeats writes a line
// to its pipe now and then, from a goroutine that waits for nothing else: a server that is busy,
// waits for its trainers or saves goes on with it, one that hangs does not.

// SendHeartbeats shows the launcher every so often that this process lives, until stop is called.
// It is to be called as soon as the process has begun: one of a role with Heartbeats that shows
// nothing is killed after the launcher's Times.Join, and after DeadAfter when it has shown
// something before.
func (e RoleEnv) SendHeartbeats(every time.Duration) (stop func()) {
	pipe, end, ended := os.NewFile(uintptr(e.End), "life"), make(chan struct{}), make(chan struct{})
	show := func() error {
		_, err := pipe.Write([]byte{'\n'})
		return err
	}
	err := show() // before anything else can happen
	go func() {
		defer close(ended)
		defer pipe.Close()
		tick := time.NewTicker(cluster.Times{Heartbeat: every}.WithDefaults().Heartbeat)
		defer tick.Stop()
		for ; err == nil; err = show() { // else the launcher has ended
			select {
			case <-tick.C:
			case <-end:
				return
			}
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}

// listen reads what a process tells until it has ended, and kills one that shows no life for as long as it may, longer
// while it is seen to run; begin 0: it need not. A launcher that was suspended itself does not count that
// time.
func (p *process) listen(begin, after time.Duration) {
	defer close(p.reportRead)
	defer p.reportPipe.Close()
	lines, b, busy := splitter{emit: p.readReport}, make([]byte, 4<<10), time.Duration(0)
	for silence := (liveness.Detector{Limit: begin}); ; {
		if begin > 0 {
			_ = p.reportPipe.SetReadDeadline(time.Now().Add(silence.Wait())) // fails only where the read will, too
		}
		n, err := p.reportPipe.Read(b)
		switch {
		case err == nil:
			lines.write(b[:n])
			silence = liveness.Detector{Limit: after}
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return
		case silence.Missed(p.ran(&busy)):
			p.hang(fmt.Sprintf("no sign of life for %v%s", silence.Limit, p.advice()))
			return
		}
	}
}

// never says that a process whose role says what a program has to do has not shown life.
func (p *process) never() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.role.Heartbeats && p.role.Unserved != "" && !p.hasHeartbeat
}

// advice is what a program has to do that has never shown life; "" of others.
func (p *process) advice() string {
	if !p.never() {
		return ""
	}
	return " since it was started: " + p.role.Unserved
}

// hang kills a process that hangs; unlike one that was told to end, it is lost.
func (p *process) hang(why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		p.hung = why
		p.kill(syscall.SIGKILL)
	}
}

// ran says whether the process has run since it had used so much, and sets that to what it has used now.
func (p *process) ran(busy *time.Duration) bool {
	was := *busy
	*busy = p.used()
	return *busy > was
}

// used is how much processor time the process has used so far; 0 if that is not known.
func (p *process) used() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return 0
	}
	if p.remote != nil {
		return time.Duration(p.remote.used.Load())
	}
	return processorTime(p.cmd.Process.Pid)
}

// whyHung is why it was killed, if it showed no life.
func (p *process) whyHung() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hung
}

// openReportPipe makes the pipe of a process that tells of itself, and returns the process's end of
// it, which is to be closed when the process has started; nil for others.
func (p *process) openReportPipe() (theirs *os.File, err error) {
	if p.role.Mesh {
		return nil, nil
	}
	if p.reportPipe, theirs, err = os.Pipe(); err == nil {
		p.reportRead = make(chan struct{})
		p.cmd.ExtraFiles = append(p.cmd.ExtraFiles, theirs)
	}
	return theirs, err
}

// hearFrom hears what a process of this host tells of itself.
func (p *process) hearFrom(times cluster.Times) {
	switch {
	case p.reportPipe == nil:
		return
	case !p.role.Heartbeats:
		go p.listen(0, 0)
		return
	}
	go p.listen(times.Join, cmp.Or(p.role.DeadAfter, times.DeadAfter))
}
