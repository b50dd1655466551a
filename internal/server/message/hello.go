package message

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"

	"github.com/ringo-ml/ringo/internal/faults"
	"github.com/ringo-ml/ringo/internal/setting"
)

const (
	// MaxSessions is the maximum number of a server's sessions, over all trainers.
	MaxSessions = 1024
	// MaxJob is the maximum length of a job's name in bytes.
	MaxJob = 256

	helloFixed   = 88
	welcomeSize  = 32
	failureFixed = 8
	maxServers   = 1 << 16
)

// Hello is the first message of a connection. Its encoding:
//
//	offset bytes
//	0      2     Protocol
//	2      2     1 for a reader, else 0
//	4      4     Trainer
//	8      4     Trainers
//	12     4     Session
//	16     4     Sessions
//	20     4     Server
//	24     4     Servers
//	28     2     the length of Job
//	30     2     the length of Settings
//	32     8     Incarnation
//	40     8     From
//	48     8     Clock
//	56     32    Hash
//	88           Job, and then Settings
type Hello struct {
	Trainer, Trainers int      // number of this trainer, and of all trainers
	Session, Sessions int      // number of this session, and of the trainer's sessions
	Server, Servers   int      // number of the expected server, and of all servers
	Incarnation       uint64   // random number of the trainer's process, not 0
	From              uint64   // first change that the trainer still has; initially 1
	Clock             uint64   // last step clocked before From; 0: none
	Hash              [32]byte // hash of the schema
	Job               string   // equal in all processes of a job
	// Settings are the trainer's job settings: a server with other values rejects the trainer.
	Settings setting.Values
	// Reader marks a connection that only reads: it is no trainer's, and From, Clock, Job and
	// Settings have no effect.
	Reader bool
}

const (
	// PathSync is the setting of the servers' consistency mode.
	PathSync setting.Path = "sync"
	// SyncGeo is the mode in which servers add pushes to parameters without a rule.
	SyncGeo = "geo"
)

// Validate returns all errors together.
func (h Hello) Validate() error {
	var bad faults.List
	place := func(what string, i, n, most int) {
		bad.If(n < 1 || n > most || i < 0 || i >= n,
			"%s %d of %d: want 1 to %d of them, numbered from 0", what, i, n, most)
	}
	place("trainer", h.Trainer, h.Trainers, MaxSessions)
	place("session", h.Session, h.Sessions, MaxSessions)
	place("server", h.Server, h.Servers, maxServers)
	bad.If(bad.Empty() && h.Trainers*h.Sessions > MaxSessions,
		"%d trainers with %d sessions each: a server has at most %d sessions", h.Trainers, h.Sessions, MaxSessions)
	bad.If(h.Incarnation == 0 || h.From == 0,
		"process number %d, changes from number %d on: neither may be 0", h.Incarnation, h.From)
	text := func(what, s string, most int) {
		bad.If(len(s) > most || printable(s) != s || strings.Contains(s, "\n"),
			"the %s %q: want at most %d bytes that can be printed", what, s, most)
	}
	text("job", h.Job, MaxJob)
	bad.Add(h.Settings.Check())
	return bad.Err()
}

// Append appends h to b.
func (h Hello) Append(b []byte) []byte {
	le := binary.LittleEndian
	b = le.AppendUint16(b, Protocol)
	reader := uint16(0)
	if h.Reader {
		reader = 1
	}
	b = le.AppendUint16(b, reader)
	settings, _ := h.Settings.AppendBinary(nil) // never fails
	for _, v := range []int{h.Trainer, h.Trainers, h.Session, h.Sessions, h.Server, h.Servers, len(h.Job) | len(settings)<<16} {
		b = le.AppendUint32(b, uint32(v))
	}
	b = le.AppendUint64(b, h.Incarnation)
	b = le.AppendUint64(b, h.From)
	b = le.AppendUint64(b, h.Clock)
	b = append(b, h.Hash[:]...)
	return append(append(b, h.Job...), settings...)
}

// ParseHello decodes Append's encoding. Errors are ErrMalformed or ErrProtocol.
func ParseHello(b []byte) (Hello, error) {
	le := binary.LittleEndian
	if len(b) < 4 {
		return Hello{}, malformed("a hello of %d bytes", len(b))
	}
	if err := checkProtocol(b, 1); err != nil {
		return Hello{}, err
	}
	if len(b) < helloFixed || len(b)-helloFixed != int(le.Uint16(b[28:]))+int(le.Uint16(b[30:])) {
		return Hello{}, malformed("a hello of %d bytes", len(b))
	}
	behind := helloFixed + int(le.Uint16(b[28:])) // offset of the settings, after the job
	at := func(i int) int { return int(le.Uint32(b[i:])) }
	h := Hello{
		Trainer: at(4), Trainers: at(8), Session: at(12), Sessions: at(16), Server: at(20), Servers: at(24),
		Incarnation: le.Uint64(b[32:]), From: le.Uint64(b[40:]), Clock: le.Uint64(b[48:]),
		Hash: [32]byte(b[56:]), Job: string(b[helloFixed:behind]), Reader: b[2] == 1,
	}
	if err := h.Settings.UnmarshalBinary(b[behind:]); err != nil {
		return Hello{}, malformed("a hello: %v", err)
	}
	if err := h.Validate(); err != nil {
		return Hello{}, malformed("a hello: %v", err)
	}
	return h, nil
}

// ErrProtocol is the error of a peer with another protocol version.
var ErrProtocol = errors.New("another version of the protocol")

func checkProtocol(b []byte, most uint16) error {
	le := binary.LittleEndian
	if v := le.Uint16(b); v != Protocol {
		return fmt.Errorf("%w: %d, this end speaks %d: give all the same program", ErrProtocol, v, Protocol)
	}
	if x := le.Uint16(b[2:]); x > most {
		return malformed("%d in place of at most %d", x, most)
	}
	return nil
}

// Welcome is a server's answer to a Hello. Its encoding:
//
//	offset bytes
//	0      2     Protocol
//	2      2     0
//	4      4     Keys
//	8      4     Values
//	12     4     Pulls
//	16     8     Last
//	24     4     Heartbeat in ms
//	28     4     Silence in ms
type Welcome struct {
	Keys, Values int           // maximum per message
	Pulls        int           // maximum unanswered pulls per connection
	Last         uint64        // last change of the session at the server
	Heartbeat    time.Duration // interval of heartbeats of each end
	Silence      time.Duration // time until a silent peer counts as dead
}

// Validate returns all errors together.
func (w Welcome) Validate() error {
	var bad faults.List
	within := func(what string, v, least, most int64) {
		bad.If(v < least || v > most, "%s %d: want %d to %d", what, v, least, most)
	}
	within("keys of a message", int64(w.Keys), 1, 1<<24)
	within("values of a message", int64(w.Values), 1, 1<<27)
	within("pulls of a connection", int64(w.Pulls), 1, 1<<16)
	within("ms between heartbeats", w.Heartbeat.Milliseconds(), 1, math.MaxInt32)
	within("ms of silence", w.Silence.Milliseconds(), 2*max(1, w.Heartbeat.Milliseconds()), math.MaxInt32)
	return bad.Err()
}

// Append appends w to b.
func (w Welcome) Append(b []byte) []byte {
	le := binary.LittleEndian
	b = le.AppendUint16(b, Protocol)
	b = le.AppendUint16(b, 0)
	for _, v := range []int{w.Keys, w.Values, w.Pulls} {
		b = le.AppendUint32(b, uint32(v))
	}
	b = le.AppendUint64(b, w.Last)
	b = le.AppendUint32(b, uint32(w.Heartbeat.Milliseconds()))
	return le.AppendUint32(b, uint32(w.Silence.Milliseconds()))
}

// ParseWelcome decodes Append's encoding.
func ParseWelcome(b []byte) (Welcome, error) {
	le := binary.LittleEndian
	if len(b) != welcomeSize {
		return Welcome{}, malformed("a welcome of %d bytes", len(b))
	}
	if err := checkProtocol(b, 0); err != nil {
		return Welcome{}, err
	}
	w := Welcome{
		Keys: int(le.Uint32(b[4:])), Values: int(le.Uint32(b[8:])), Pulls: int(le.Uint32(b[12:])), Last: le.Uint64(b[16:]),
		Heartbeat: time.Duration(le.Uint32(b[24:])) * time.Millisecond, Silence: time.Duration(le.Uint32(b[28:])) * time.Millisecond,
	}
	if err := w.Validate(); err != nil {
		return Welcome{}, malformed("a welcome: %v", err)
	}
	return w, nil
}

// Reason is a server's reason to end a trainer's connections permanently.
type Reason uint8

// Values of Reason.
const (
	ReasonMismatch Reason = 1 + iota // different jobs, schemas or sizes
	ReasonProtocol                   // message that the trainer must not send
	ReasonReplaced                   // another process has replaced the trainer
	ReasonLost                       // lost trainer: Failure.Trainer
	ReasonFailed                     // failed server
	ReasonSettings                   // different settings: Failure.Over
)

// Failure is the last message of a server that ends a connection permanently. Its encoding:
//
//	offset bytes
//	0      1     Reason
//	1      3     0
//	4      4     Trainer
//	8            Text, or with ReasonSettings Over as JSON
//
// Trainers receive it as an error.
type Failure struct {
	Reason  Reason
	Trainer int // lost trainer, with ReasonLost
	Text    string
	Over    setting.Disagreements // conflicts that Text describes, with ReasonSettings
}

const maxOver = 256 << 10

// Error returns the text.
func (f *Failure) Error() string { return f.Text }

// Unwrap returns the *setting.ConflictError of ReasonSettings, else nil.
func (f *Failure) Unwrap() error {
	if f.Reason == ReasonSettings {
		return &setting.ConflictError{Over: f.Over}
	}
	return nil
}

// Append appends f to b, with a truncated text if necessary.
func (f *Failure) Append(b []byte) []byte {
	b = append(b, byte(f.Reason), 0, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(f.Trainer))
	if f.Reason != ReasonSettings {
		return append(b, CutText(f.Text)...)
	}
	over, err := json.Marshal(f.Over.Short())
	if err != nil || len(over) > maxOver {
		panic("message: short texts make long disagreements") // Short limits them
	}
	return append(b, over...)
}

// ParseFailure decodes Append's encoding.
func ParseFailure(b []byte) (*Failure, error) {
	if len(b) < failureFixed || len(b) > failureFixed+maxOver || b[0] < byte(ReasonMismatch) || b[0] > byte(ReasonSettings) || b[1]|b[2]|b[3] != 0 {
		return nil, malformed("a failure of %d bytes", len(b))
	}
	trainer := binary.LittleEndian.Uint32(b[4:])
	if trainer >= MaxSessions {
		return nil, malformed("a failure of trainer %d", trainer)
	}
	f := &Failure{Reason: Reason(b[0]), Trainer: int(trainer)}
	switch text := b[failureFixed:]; {
	case f.Reason == ReasonSettings:
		if err := json.Unmarshal(text, &f.Over); err != nil || len(f.Over) == 0 || f.Over.Check() != nil {
			return nil, malformed("a failure of %d bytes about settings", len(b))
		}
		f.Text = (&setting.ConflictError{Over: f.Over}).Error()
	case len(text) > MaxText:
		return nil, malformed("a failure of %d bytes", len(b))
	default:
		f.Text = Text(text)
	}
	return f, nil
}

// Text is a peer's text, made safe for a terminal.
func Text(b []byte) string { return printable(string(b)) }

// CutText truncates a text to MaxText.
func CutText(s string) string {
	if len(s) <= MaxText {
		return s
	}
	return strings.ToValidUTF8(s[:MaxText], "")
}

func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}
