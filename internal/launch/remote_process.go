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

// remoteProcess is what the launcher knows of a process on another host, beside what it knows of
// all. Its host's launcher starts it, sends what it writes, and tells how it ended.
type remoteProcess struct {
	line    *agentConn  // to its host
	order   startOrder  // what that is told
	pid     int         // its number there
	lines   [2]splitter // for its last words
	sink    func(stream, []byte)
	started chan started
	used    atomic.Int64 // processor time

	once    sync.Once
	exited  chan struct{}
	drained chan struct{}
}

func newAway(l *agentConn, order startOrder) *remoteProcess {
	return &remoteProcess{line: l, order: order, started: make(chan started, 1), exited: make(chan struct{}), drained: make(chan struct{})}
}

// startRemote has the process's host start it.
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

// handleRemote acts on what its host says of the process. It is called from one goroutine.
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
		default: // it was started already
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

// endRemote notes how the process has ended, the first time that this is told.
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

// drainAway waits for the rest of the output, until its host says that there is none, which it does drainTime after the process's end, or
// until it is lost. Before that no other process may take its number there.
func (a *remoteProcess) drainAway() {
	select {
	case <-a.drained:
	case <-a.line.done:
	case <-time.After(longestDrain):
	}
}

// longestDrain bounds a wait that a host ends which lives: with links that are cut for a while, and slow ones.
const longestDrain = 2 * time.Minute

// kill sends a signal to the process. One that does not end by SIGKILL has a host that does not answer, and that is lost.
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

// recordWithin is how long a host may take to send what a process has recorded.
const recordWithin = 3 * time.Second

// fetchRecord fetches what the process has recorded into memory of this host; nil: nothing is to be
// had.
func (a *remoteProcess) fetchRecord(number int) *os.File {
	f, err := record.Create(record.Config{})
	if err != nil {
		return nil
	}
	a.line.send(frame{kind: frameRecord, number: number})
	for at := int64(0); err == nil; {
		var piece frame
		piece, err = a.line.ask(recordWithin, "sending what a process has recorded", frameMemory)
		switch {
		case err != nil:
		case piece.number != number: // of one that was asked for before
		case len(piece.body) == 0 && at > 0:
			return f
		case len(piece.body) == 0:
			err = errors.New("nothing is recorded")
		default:
			_, err = f.WriteAt(piece.body, at)
			at += int64(len(piece.body))
		}
	}
	_ = f.Close() // err says that it is of no use
	return nil
}
