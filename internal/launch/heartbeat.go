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

// The mesh has separate heartbeats. A process outside the mesh, of a role with Heartbeats, writes a
// line to its pipe periodically, from a separate goroutine: a server that computes, waits for
// trainers or saves continues to send heartbeats, and a stopped server sends none.

// SendHeartbeats sends a heartbeat to the launcher every interval until stop is called. Call
// SendHeartbeats when the process begins: the launcher kills a process of a role with Heartbeats
// after Times.Join without a first heartbeat, and after DeadAfter without further ones.
func (e RoleEnv) SendHeartbeats(every time.Duration) (stop func()) {
	pipe, end, ended := os.NewFile(uintptr(e.End), "life"), make(chan struct{}), make(chan struct{})
	show := func() error {
		_, err := pipe.Write([]byte{'\n'})
		return err
	}
	err := show() // first heartbeat, before any other work
	go func() {
		defer close(ended)
		defer pipe.Close()
		tick := time.NewTicker(cluster.Times{Heartbeat: every}.WithDefaults().Heartbeat)
		defer tick.Stop()
		for ; err == nil; err = show() { // an error means that the launcher has ended
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

// listen reads a process's reports until its end, and kills a process without heartbeats: begin
// limits the wait for the first, and after for each further one, longer while the process uses CPU
// time. begin 0 disables the check. A suspension of the launcher itself does not count.
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

// never reports whether no heartbeat arrived although the role names the required call (Unserved).
func (p *process) never() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.role.Heartbeats && p.role.Unserved != "" && !p.hasHeartbeat
}

// advice returns the call that a program without heartbeats must add, or "".
func (p *process) advice() string {
	if !p.never() {
		return ""
	}
	return " since it was started: " + p.role.Unserved
}

// hang kills a hung process. Unlike a process that was asked to end, a hung process is lost.
func (p *process) hang(why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		p.hung = why
		p.kill(syscall.SIGKILL)
	}
}

// ran reports whether the process's processor time exceeds *busy, and updates *busy.
func (p *process) ran(busy *time.Duration) bool {
	was := *busy
	*busy = p.used()
	return *busy > was
}

// used returns the processor time of the process until now; 0 if unknown.
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

// whyHung returns the reason of the kill if the process sent no heartbeats, or "".
func (p *process) whyHung() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hung
}

// openPipe creates the report pipe of a process outside the mesh, or the pipe for the next places
// of a rank, and returns the process's end, which the caller closes after the start; nil without.
func (p *process) openPipe() (theirs *os.File, err error) {
	switch {
	case p.role.continues:
		theirs, p.places, err = os.Pipe()
	case !p.role.Mesh:
		p.reportPipe, theirs, err = os.Pipe()
		p.reportRead = make(chan struct{})
	}
	if theirs != nil {
		p.cmd.ExtraFiles = append(p.cmd.ExtraFiles, theirs)
	}
	return theirs, err
}

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
