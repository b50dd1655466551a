package launch

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringo-ml/ringo/internal/liveness"
)

// Host is one on which processes of a job run.
type Host struct {
	// Name is what people call it: output and errors name it.
	Name string
	// Connect starts a launcher there, which calls RunAgent with its input and output; it gives up
	// when the context ends. nil: it is this host.
	Connect func(context.Context) (Connection, error)
}

// Connection is to a host's launcher: its output, and its input, whose end ends it.
type Connection interface {
	io.ReadWriteCloser
	// Reason says in words how it has ended: "ssh failed: …".
	Reason() string
}

// maxQueued is how many frames may wait for a host that does not read.
const maxQueued = 4096

// answerWithin is how long after SIGKILL a process of another host may take to be gone there, before the host is lost.
const answerWithin = giveUp * 3 / 4

// agentConn is to the launcher of another host. Three goroutines work for it: one writes what is
// queued, so that nobody here waits for a host that does not read, one reads and acts on what
// comes, and one shows life and looks for it.
//
// A line ends once, for one reason, whoever finds it first: all of its processes have ended then, as far as this launcher knows. What
// still runs there hears nothing more from here, and is ended by its own host's launcher.
type agentConn struct {
	host     string       // its name
	conn     Connection   // of which only read reads and only write writes
	welcome  welcome      // what it said of itself
	ready    readiness    // and what it has made for its roles
	roles    []*roleGroup // of which it has processes, in the order in which it knows them
	queue    chan frame
	answers  chan frame        // to what it was asked for itself
	reading  atomic.Bool       // read waits for it, and not for whoever takes what has come
	received atomic.Bool       // something has come since beat last looked
	done     chan struct{}     // it is lost, or over
	ends     sync.WaitGroup    // its goroutines
	report   func(line string) // Config.Report

	mu    sync.Mutex
	cause string           // it is lost; "": it is not
	procs map[int]*process // by number, those that were started there and whose last output has not come
}

// newLine is over a connection; its goroutines end with hangUp.
func newLine(h Host, conn Connection, first agentHello, report func(string)) *agentConn {
	l := &agentConn{host: h.Name, conn: conn, queue: make(chan frame, maxQueued), answers: make(chan frame, 16), done: make(chan struct{}), procs: map[int]*process{}, report: report}
	l.send(jsonFrame(frameBegin, 0, first))
	l.ends.Go(l.write)
	l.ends.Go(l.read)
	l.ends.Go(func() { l.beat(first.Beat, first.Silent) })
	return l
}

// send queues a frame.
func (l *agentConn) send(f frame) {
	select {
	case <-l.done:
	case l.queue <- f:
	default:
		go l.lose("it does not read what it is told") // who sends may hold a process that is lost with it
	}
}

func (l *agentConn) write() {
	for {
		select {
		case <-l.done:
			return
		case f := <-l.queue:
			if writeFrame(l.conn, f) != nil {
				l.lose(l.conn.Reason())
				return
			}
		}
	}
}

func (l *agentConn) read() {
	in := bufio.NewReaderSize(l.conn, 64<<10)
	for {
		l.reading.Store(true)
		f, err := readFrame(in)
		l.reading.Store(false)
		switch {
		case errors.Is(err, errFrame):
			l.lose(err.Error())
			return
		case err != nil:
			l.lose(l.conn.Reason())
			return
		}
		l.received.Store(true)
		l.take(f)
	}
}

// beat shows life, and sees whether the host does. While this launcher itself does not read, since nobody reads its own output, it
// concludes nothing.
func (l *agentConn) beat(every, silent time.Duration) {
	silence := liveness.Detector{Limit: silent}
	beats, looks := time.NewTicker(every), time.NewTicker(silence.Wait())
	defer beats.Stop()
	defer looks.Stop()
	for {
		select {
		case <-l.done:
			return
		case <-beats.C:
			l.send(frame{kind: frameHeartbeat})
		case <-looks.C:
			if l.received.Swap(false) || !l.reading.Load() {
				silence.Reset()
			} else if silence.Missed(false) {
				l.lose(fmt.Sprintf("no sign of life for %v", silent))
			}
		}
	}
}

// take acts on what the host says.
func (l *agentConn) take(f frame) {
	switch f.kind {
	case frameHeartbeat:
		used := map[int]time.Duration{}
		_ = json.Unmarshal(f.body, &used) // without it nothing is known
		for number, d := range used {
			if p := l.process(number); p != nil {
				p.remote.used.Store(int64(d))
			}
		}
		return
	case frameReport:
		l.report(fmt.Sprintf("host %s: %s", l.host, f.body))
		return
	case frameHost, frameReady, frameMemory:
		select {
		case l.answers <- f:
		case <-l.done:
		}
		return
	}
	if p := l.process(f.number); p != nil {
		p.handleRemote(f)
	}
}

func (l *agentConn) process(number int) *process {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.procs[number]
}

// lose ends all that runs there, as far as this launcher knows; what still does ends by itself, as it hears nothing more.
func (l *agentConn) lose(why string) {
	l.mu.Lock()
	first := l.cause == ""
	if first {
		l.cause = why
		close(l.done)
	}
	l.mu.Unlock()
	if !first {
		return
	}
	l.ends.Go(func() { _ = l.conn.Close() })
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.procs {
		p.endRemote(exit{ExitStatus: fmt.Sprintf("its host %s is lost: %s", l.host, why)})
	}
}

// fault is why the host is lost.
func (l *agentConn) fault() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Errorf("host %s: %s", l.host, l.cause)
}

// hangUp ends the host's launcher, which has no processes any more. nil: there is none.
func (l *agentConn) hangUp() {
	if l == nil {
		return
	}
	l.lose("the job has ended")
	l.ends.Wait()
}

// ask waits for the answer to what the host was asked.
func (l *agentConn) ask(within time.Duration, what string, kind frameKind) (frame, error) {
	late := time.NewTimer(within)
	defer late.Stop()
	for {
		select {
		case f := <-l.answers:
			if f.kind == kind {
				return f, nil
			}
		case <-l.done:
			return frame{}, l.fault()
		case <-late.C:
			l.lose(fmt.Sprintf("%s takes longer than %v", what, within))
			return frame{}, l.fault()
		}
	}
}
