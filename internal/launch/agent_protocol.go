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

// Launchers of a multi-host job exchange frames: a byte for the kind, a process number in the job,
// a length, and a body of this length, JSON unless the body is process output.

type frameKind byte

const (
	// frameBegin to frameRecord are frames from the job's launcher.
	frameBegin  frameKind = 'B' // begin
	frameRoles  frameKind = 'R' // []agentRole: make ready
	frameStart  frameKind = 'S' // startOrder
	frameSignal frameKind = 'K' // a byte, the signal, to a process that has not ended
	frameRecord frameKind = 'M' // request for a process's record

	// frameHost to frameReport are frames from a host's launcher.
	frameHost    frameKind = 'h' // welcome
	frameReady   frameKind = 'r' // readiness
	frameStarted frameKind = 's' // started
	frameOut     frameKind = 'o' // bytes of standard output
	frameErr     frameKind = 'e' // bytes of standard error
	frameExit    frameKind = 'x' // exit
	frameDrained frameKind = 'd' // all output of the process is sent
	frameMemory  frameKind = 'm' // piece of a process's record; empty at the end
	frameReport  frameKind = 'l' // line of text for the user

	frameHeartbeat frameKind = '.' // heartbeat; from a host with the processor time used by each process, by number
)

const (
	frameHeader = 9
	maxFrame    = 1 << 20 // bytes behind the header
)

// errFrame means that the peer is no ringo launcher: shell start-up files may print, for example.
var errFrame = errors.New("the data are not from a launcher (does the shell print text at its start?)")

type frame struct {
	kind   frameKind
	number int // process number; 0 without a process
	body   []byte
}

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

func writeFrame(w io.Writer, f frame) error {
	b := make([]byte, frameHeader, frameHeader+len(f.body))
	b[0] = byte(f.kind)
	binary.BigEndian.PutUint32(b[1:], uint32(f.number))
	binary.BigEndian.PutUint32(b[5:], uint32(len(f.body)))
	_, err := w.Write(append(b, f.body...))
	return err
}

func jsonFrame(kind frameKind, number int, body any) frame {
	b, err := json.Marshal(body)
	if err != nil {
		panic(err) // our own types, which the tests encode
	}
	return frame{kind, number, b}
}

func (f frame) read(into any) error {
	if err := json.Unmarshal(f.body, into); err != nil {
		return fmt.Errorf("frame %q of a launcher: %w", f.kind, err)
	}
	return nil
}

// agentHello is the first message to a host's launcher.
type agentHello struct {
	Dir    string        `json:"dir"`    // working directory of the processes
	Env    []string      `json:"env"`    // variables added to the host's environment
	Beat   time.Duration `json:"beat"`   // interval of heartbeats in both directions
	Silent time.Duration `json:"silent"` // silence after which the peer counts as dead
	Join   time.Duration `json:"join"`
	// Interface is the network interface of the processes. "" means that of the connection.
	Interface string `json:"interface"`
}

// welcome is a host launcher's first message.
type welcome struct {
	Version string `json:"version"`
	Hash    string `json:"hash"`   // checksum of the program
	Client  string `json:"client"` // source address of the launcher's connection; "" if unknown
}

type agentRole struct {
	Role
	Leads bool `json:"leads"`
	Count int  `json:"count"` // number of the role's processes on this host
	Self  bool `json:"self"`  // the program is this program
}

// readiness is a host launcher's result of preparing the roles, or the error.
type readiness struct {
	Addrs  [][]string `json:"addresses"` // listen addresses of the processes, by role
	Placed []string   `json:"placement"` // processors of the processes as text, by role
	Fault  string     `json:"error"`
}

// startOrder starts a process.
type startOrder struct {
	Role int      `json:"role"` // role's index
	Seat int      `json:"seat"` // process's number within the role on this host
	Env  []string `json:"env"`
}

// started is the result of a startOrder, or the error.
type started struct {
	PID   int    `json:"pid"`
	Fault string `json:"error"`
}

type exit struct {
	ExitStatus string        `json:"exit_status"`
	Hung       string        `json:"hung"`
	Told       *failure.Exit `json:"report"`
}
