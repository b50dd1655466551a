package launch

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ringo-ml/ringo/internal/watch/failure"
)

// Launchers of one job on several hosts talk in frames: a byte that says what it is, the number of a process in the job, a length, and
// so many bytes, JSON where it is not a process's output.

// frameKind is what a frame is.
type frameKind byte

const (
	// What the job's launcher says.
	frameBegin  frameKind = 'B' // begin
	frameRoles  frameKind = 'R' // []agentRole: make ready
	frameStart  frameKind = 'S' // startOrder
	frameSignal frameKind = 'K' // a byte, the signal, to a process that has not ended
	frameRecord frameKind = 'M' // what has a process recorded?

	// What a host's launcher says.
	frameHost    frameKind = 'h' // welcome
	frameReady   frameKind = 'r' // readiness
	frameStarted frameKind = 's' // started
	frameOut     frameKind = 'o' // bytes of standard output
	frameErr     frameKind = 'e' // of standard error
	frameExit    frameKind = 'x' // exit
	frameDrained frameKind = 'd' // all of its output was sent
	frameMemory  frameKind = 'm' // a piece of what it has recorded; none: that was all
	frameReport  frameKind = 'l' // a line for a person

	// What both say.
	frameHeartbeat frameKind = '.' // a sign of life; a host's has the processor time that its processes have used, by number
)

const (
	frameHeader = 9
	maxFrame    = 1 << 20 // bytes behind the header
)

// errFrame says that the other end is something else: a shell's own settings may write to its output, for instance.
var errFrame = errors.New("what came is no frame of a launcher (does its shell write something at the start?)")

type frame struct {
	kind   frameKind
	number int // of a process; 0: of none
	body   []byte
}

// readFrame reads one, of which nothing is kept for the next.
func readFrame(r io.Reader) (f frame, err error) {
	var head [frameHeader]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return f, err
	}
	number, length := binary.BigEndian.Uint32(head[1:]), binary.BigEndian.Uint32(head[5:])
	if length > maxFrame || number > maxFrame {
		return f, fmt.Errorf("%w: %q", errFrame, head)
	}
	f = frame{frameKind(head[0]), int(number), make([]byte, length)}
	if _, err := io.ReadFull(r, f.body); err != nil {
		return f, fmt.Errorf("a frame of %d bytes ends early: %w", length, err)
	}
	return f, nil
}

// writeFrame writes one at once.
func writeFrame(w io.Writer, f frame) error {
	b := make([]byte, frameHeader, frameHeader+len(f.body))
	b[0] = byte(f.kind)
	binary.BigEndian.PutUint32(b[1:], uint32(f.number))
	binary.BigEndian.PutUint32(b[5:], uint32(len(f.body)))
	_, err := w.Write(append(b, f.body...))
	return err
}

// jsonFrame is a frame whose body is JSON.
func jsonFrame(kind frameKind, number int, body any) frame {
	b, err := json.Marshal(body)
	if err != nil {
		panic(err) // our own types, which the tests encode
	}
	return frame{kind, number, b}
}

// read decodes a frame's JSON.
func (f frame) read(into any) error {
	if err := json.Unmarshal(f.body, into); err != nil {
		return fmt.Errorf("frame %q of a launcher: %w", f.kind, err)
	}
	return nil
}

// agentHello is what a host's launcher is told first.
type agentHello struct {
	Dir    string        // where processes work
	Env    []string      // what they get beside their host's environment
	Beat   time.Duration // how often both show a sign of life
	Silent time.Duration // after how long without one the other is taken for dead
	Join   time.Duration
	// Interface is the network interface by which its processes are reached; "": that by which its launcher is.
	Interface string
}

// welcome is what a host's launcher says of itself.
type welcome struct {
	Version string
	Hash    string // of its program
	Client  string // the address from which it was reached, "" where it does not know
}

// agentRole is a role as a host's launcher is told it.
type agentRole struct {
	Role
	Leads bool
	Count int  // of its processes on this host
	Self  bool // the program is this one
}

// readiness is what a host's launcher has made for roles, or why it could not.
type readiness struct {
	Addrs  [][]string // by role: where its processes are to listen
	Placed []string   // by role: on which processors they run, in words
	Fault  string
}

// startOrder starts a process.
type startOrder struct {
	Role int // which one
	Seat int // its number among those of its role on this host
	Env  []string
}

// started is what became of it.
type started struct {
	PID   int
	Fault string
}

// exit is how it has ended.
type exit struct {
	ExitStatus string
	Hung       string
	Told       *failure.Exit
}
