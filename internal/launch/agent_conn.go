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

// Host is a host of a job's processes.
type Host struct {
	// Name is the host's name in output and errors.
	Name string
	// Connect starts a launcher on the host, which calls RunAgent with its standard input and
	// output. Connect gives up when the context ends. nil means this host.
	Connect func(context.Context) (Connection, error)
}

// Connection is a connection to a host's launcher: reads return the launcher's output, writes go to
// its input, and Close ends the launcher.
type Connection interface {
	io.ReadWriteCloser
	// Reason describes the end of the connection: "ssh failed: …".
	Reason() string
}

// maxQueued limits the frames queued for a host with a blocked connection.
const maxQueued = 4096

// answerWithin is the time from SIGKILL until a remote process must be gone, or its host is lost.
const answerWithin = giveUp * 3 / 4

// agentConn is a connection to the launcher of another host. Three goroutines serve the connection:
// a writer of queued frames, so callers never wait for the host; a reader that handles frames; and
// a sender and checker of heartbeats.
//
// A connection ends once, for the first reason found. This launcher then treats all processes of
// the host as ended. Processes that still run there are ended by the host's launcher.
type agentConn struct {
	host     string       // host's name
	conn     Connection   // read by read only, written by write only
	welcome  welcome      // host launcher's first message
	ready    readiness    // results of preparing the roles
	roles    []*roleGroup // roles with processes on the host, in the order of their numbers there
	queue    chan frame
	answers  chan frame        // replies to requests to the host itself
	reading  atomic.Bool       // read is blocked on the connection, not on a consumer of a frame
	received atomic.Bool       // set by each frame, cleared by beat
	done     chan struct{}     // closed when the host is lost or the job has ended
	ends     sync.WaitGroup    // goroutines of the connection
	report   func(line string) // Config.Report

	mu    sync.Mutex
	cause string           // reason of the loss; "" while connected
	procs map[int]*process // processes started there with output still to arrive, by number
}

// newLine serves a connection; hangUp ends its goroutines.
func newLine(h Host, conn Connection, first agentHello, report func(string)) *agentConn {
	l := &agentConn{host: h.Name, conn: conn, queue: make(chan frame, maxQueued), answers: make(chan frame, 16), done: make(chan struct{}), procs: map[int]*process{}, report: report}
	l.send(jsonFrame(frameBegin, 0, first))
	l.ends.Go(l.write)
	l.ends.Go(l.read)
	l.ends.Go(func() { l.beat(first.Beat, first.Silent) })
	return l
}

func (l *agentConn) send(f frame) {
	select {
	case <-l.done:
	case l.queue <- f:
	default:
		go l.lose("it does not read its messages") // separate goroutine: the caller may hold the lock of a process that is lost with the host
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

// beat sends heartbeats and checks the host's, unless a slow reader blocks this launcher itself.
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

func (l *agentConn) take(f frame) {
	switch f.kind {
	case frameHeartbeat:
		used := map[int]time.Duration{}
		_ = json.Unmarshal(f.body, &used) // without the map no processor time is recorded
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

// lose marks all processes of the host as ended. The host's launcher ends those still running.
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

func (l *agentConn) fault() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Errorf("host %s: %s", l.host, l.cause)
}

// hangUp ends the host's launcher, which has no processes left. l may be nil.
func (l *agentConn) hangUp() {
	if l == nil {
		return
	}
	l.lose("the job has ended")
	l.ends.Wait()
}

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
