package launch

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ringo-ml/ringo/internal/watch/record"
)

// remoteProcess is the launcher's additional state of a process on another host. The host's
// launcher starts the process, sends its output and reports its end.
type remoteProcess struct {
	line    *agentConn  // connection to the host
	order   startOrder  // order sent to the host
	pid     int         // process number on the host
	lines   [2]splitter // line splitters for the last lines
	sink    func(stream, []byte)
	started chan started
	used    atomic.Int64 // processor time, ns

	once    sync.Once
	exited  chan struct{}
	drained chan struct{}
}

func newAway(l *agentConn, order startOrder) *remoteProcess {
	return &remoteProcess{line: l, order: order, started: make(chan started, 1), exited: make(chan struct{}), drained: make(chan struct{})}
}

func (p *process) startRemote(sink func(stream, []byte), within time.Duration) error {
	a := p.remote
	a.sink = sink
	for of := range a.lines {
		a.lines[of].emit = p.tail.add
	}
	a.line.mu.Lock()
	a.line.procs[p.number] = p
	a.line.mu.Unlock()
	a.line.send(jsonFrame(frameStart, p.number, a.order))
	late := time.NewTimer(within)
	defer late.Stop()
	select {
	case s := <-a.started:
		if a.pid = s.PID; s.Fault != "" {
			return fmt.Errorf("host %s: %s", a.line.host, s.Fault)
		}
		return nil
	case <-a.line.done:
		return a.line.fault()
	case <-late.C:
		a.line.lose(fmt.Sprintf("starting a process takes longer than %v", within))
		return a.line.fault()
	}
}

// handleRemote handles a frame about the process, always from the same goroutine.
func (p *process) handleRemote(f frame) {
	a := p.remote
	switch f.kind {
	case frameStarted:
		var s started
		if err := f.read(&s); err != nil {
			s.Fault = err.Error()
		}
		select {
		case a.started <- s:
		default: // already started
		}
	case frameOut, frameErr:
		of := stdout
		if f.kind == frameErr {
			of = stderr
		}
		if len(f.body) > 0 {
			a.lines[of].write(f.body)
			a.sink(of, f.body)
		}
	case frameExit:
		var e exit
		if err := f.read(&e); err != nil {
			e.ExitStatus = err.Error()
		}
		p.endRemote(e)
	case frameDrained:
		for of := range a.lines {
			a.lines[of].flush()
			a.sink(stream(of), nil)
		}
		close(a.drained)
		a.line.mu.Lock()
		delete(a.line.procs, p.number)
		a.line.mu.Unlock()
	}
}

func (p *process) endRemote(e exit) {
	p.remote.once.Do(func() {
		p.mu.Lock()
		p.how, p.ended = e.ExitStatus, true
		if p.hung == "" {
			p.hung = e.Hung
		}
		if p.told = e.Told; p.told != nil {
			p.told.Rank = p.number
		}
		p.mu.Unlock()
		close(p.remote.exited)
	})
}

// drainAway waits until the host has sent the rest of the output or is lost, at most longestDrain.
// Until then no other process may take the number on that host.
func (a *remoteProcess) drainAway() {
	select {
	case <-a.drained:
	case <-a.line.done:
	case <-time.After(longestDrain):
	}
}

// longestDrain limits the wait for a reachable host, allowing for slow or interrupted links.
const longestDrain = 2 * time.Minute

// kill sends a signal to the process. A host where SIGKILL has no effect in answerWithin is lost.
func (a *remoteProcess) kill(number int, sig syscall.Signal) {
	a.line.send(frame{frameSignal, number, []byte{byte(sig)}})
	if sig != syscall.SIGKILL {
		return
	}
	time.AfterFunc(answerWithin, func() {
		select {
		case <-a.exited:
		default:
			a.line.lose("it does not answer")
		}
	})
}

// recordWithin is the time for a host to send a process's record.
const recordWithin = 3 * time.Second

// fetchRecord fetches the process's record into memory of this host, or returns nil.
func (a *remoteProcess) fetchRecord(number int) *os.File {
	f, err := record.Create(record.Config{})
	if err != nil {
		return nil
	}
	a.line.send(frame{kind: frameRecord, number: number})
	for at := int64(0); err == nil; {
		var piece frame
		piece, err = a.line.ask(recordWithin, "sending the record of a process", frameMemory)
		switch {
		case err != nil:
		case piece.number != number: // late piece of an earlier request
		case len(piece.body) == 0 && at > 0:
			return f
		case len(piece.body) == 0:
			err = errors.New("nothing is recorded")
		default:
			_, err = f.WriteAt(piece.body, at)
			at += int64(len(piece.body))
		}
	}
	_ = f.Close() // err takes precedence
	return nil
}
