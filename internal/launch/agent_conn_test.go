package launch

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/leakcheck"
)

// wire is a connection of a line to a test in the place of a host's launcher.
type wire struct {
	net.Conn
	why string
}

func (w *wire) Reason() string { return w.why }

// farEnd is a line and its other end.
type farEnd struct {
	t     *testing.T
	line  *agentConn
	conn  net.Conn
	in    *bufio.Reader
	mu    sync.Mutex
	lines []string
}

// strung is a line to a test, which has read the first words.
func strung(t *testing.T, silent time.Duration) *farEnd {
	t.Helper()
	leakcheck.Check(t)
	near, far := net.Pipe()
	e := &farEnd{t: t, conn: far, in: bufio.NewReader(far)}
	e.line = newLine(Host{Name: "b"}, &wire{near, "the wire is cut"}, agentHello{Beat: 10 * time.Millisecond, Silent: silent}, func(line string) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.lines = append(e.lines, line)
	})
	t.Cleanup(func() { _ = far.Close(); e.line.hangUp() })
	if f := e.next(); f.kind != frameBegin {
		t.Fatalf("it begins with %q", f.kind)
	}
	return e
}

// next is the next frame that is no sign of life.
func (e *farEnd) next() frame {
	e.t.Helper()
	_ = e.conn.SetReadDeadline(time.Now().Add(patience))
	for {
		f, err := readFrame(e.in)
		if err != nil {
			e.t.Fatal(err)
		}
		if f.kind != frameHeartbeat {
			return f
		}
	}
}

// goesOn reads whatever comes, so that the line can write.
func (e *farEnd) goesOn() { go func() { _, _ = io.Copy(io.Discard, e.in) }() }

// say writes a frame of the host's launcher.
func (e *farEnd) say(f frame) {
	e.t.Helper()
	_ = e.conn.SetWriteDeadline(time.Now().Add(patience))
	if err := writeFrame(e.conn, f); err != nil {
		e.t.Fatal(err)
	}
}

// lost wants the line to be lost for a reason.
func (e *farEnd) lost(want string) {
	e.t.Helper()
	select {
	case <-e.line.done:
	case <-time.After(patience):
		e.t.Fatalf("not lost: want %q", want)
	}
	if err := e.line.fault(); err == nil || !strings.Contains(err.Error(), want) {
		e.t.Errorf("%v, want %q", err, want)
	}
}

// An answer is that to what was asked: others, reports and signs of life are none. One that is late loses the host.
func TestAsk(t *testing.T) {
	e := strung(t, time.Minute)
	e.goesOn()
	e.say(frame{kind: frameHeartbeat, body: []byte(`{"3": 7}`)}) // of a process that nobody knows
	e.say(frame{kind: frameHeartbeat, body: []byte(`what?`)})
	e.say(frame{kind: frameReport, body: []byte("there is no folder")})
	e.say(frame{kind: frameMemory, number: 1, body: []byte("late")})
	e.say(frame{kind: frameExit, number: 4, body: []byte("{}")}) // of none, too
	e.say(jsonFrame(frameReady, 0, readiness{Fault: "no"}))
	f, err := e.line.ask(patience, "making ready there", frameReady)
	var r readiness
	if err != nil || f.read(&r) != nil || r.Fault != "no" {
		t.Errorf("%+v, %v", f, err)
	}
	if _, err := e.line.ask(20*time.Millisecond, "making ready there", frameReady); err == nil || err.Error() != "host b: making ready there takes longer than 20ms" {
		t.Error(err)
	}
	if _, err := e.line.ask(time.Hour, "making ready there", frameReady); err == nil || !strings.Contains(err.Error(), "takes longer than 20ms") {
		t.Error(err) // it was lost, for one reason
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if got := fmt.Sprint(e.lines); got != "[host b: there is no folder]" {
		t.Error(got)
	}
}

// What is no frame, an end, silence, and a host that reads nothing lose it, and each says so.
func TestLineIsLost(t *testing.T) {
	e := strung(t, time.Minute)
	e.goesOn()
	go func() { _, _ = e.conn.Write([]byte("Welcome to b, running Linux")) }()
	e.lost("the data are not from a launcher")

	e = strung(t, time.Minute)
	_ = e.conn.Close()
	e.lost("the wire is cut")

	e = strung(t, time.Minute)
	e.goesOn()
	go func() { _, _ = e.conn.Write([]byte{'o', 0, 0, 0, 1, 0, 0, 0, 9, 'a'}); _ = e.conn.Close() }()
	e.lost("the wire is cut")

	e = strung(t, 100*time.Millisecond)
	e.goesOn()
	e.lost("no sign of life for 100ms")

	e = strung(t, time.Minute)
	for range maxQueued + 10 {
		e.line.send(frame{kind: frameSignal})
	}
	e.lost("it does not read its messages")
}

// With a host its processes are lost, each once, and how is what is told first.
func TestProcessesOfALostHost(t *testing.T) {
	e := strung(t, time.Minute)
	made := func(number int) *process {
		p := &process{role: &roleGroup{Role: Role{Name: "rank", Count: 9}}, index: number, number: number, remote: newAway(e.line, startOrder{Seat: number})}
		return p
	}
	begun := make(chan error, 1)
	start := func(p *process) error {
		go func() { begun <- p.startRemote(func(stream, []byte) {}, patience) }()
		f := e.next()
		if f.kind != frameStart || f.number != p.number {
			t.Fatalf("%+v", f)
		}
		e.say(jsonFrame(frameStarted, p.number, started{PID: 100 + p.number}))
		return <-begun
	}
	one, two := made(1), made(2)
	for _, p := range []*process{one, two} {
		if err := start(p); err != nil || p.remote.pid != 100+p.number {
			t.Fatal(err, p.remote.pid)
		}
	}
	e.say(jsonFrame(frameExit, 1, exit{ExitStatus: "exit status 2"}))
	<-one.remote.exited
	e.say(jsonFrame(frameExit, 1, exit{ExitStatus: "exit status 3"}))
	e.goesOn()
	_ = e.conn.Close()
	for _, p := range []*process{one, two} {
		select {
		case <-p.remote.exited:
		case <-time.After(patience):
			t.Fatalf("process %d has not ended", p.number)
		}
		p.remote.drainAway() // no more comes
	}
	if one.how != "exit status 2" || two.how != "its host b is lost: the wire is cut" {
		t.Errorf("%q, %q", one.how, two.how)
	}
	if err := made(3).startRemote(func(stream, []byte) {}, patience); err == nil || err.Error() != "host b: the wire is cut" {
		t.Error(err)
	}
}
