package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/wire"
)

// Limits of control messages: maxMessage is enough for the roster of some ten thousand ranks.
const (
	maxMessage = 1 << 20
	maxWhy     = 8 << 10
	maxDoing   = 200
	maxAddr    = 300
	maxBegun   = 16
)

type kind string

// kindJoin to kindBegun are sent by a member to the coordinator.
const (
	kindJoin    kind = "join"    // Addr: mesh listen address; BeatNanos, DeadNanos: times; Settings: job settings
	kindStatus  kind = "status"  // heartbeat: Doing, Waits, Peer, WaitMillis, In, Begun, LateMillis
	kindSuspect kind = "suspect" // Peer seems lost: Reason, TimedOut; In: operation of this rank, if Peer has left in good order
	kindFailed  kind = "failed"  // the rank ends because of Reason; Peer: blamed rank, or -1; TimedOut, Cause, Where, Bucket, Stopped; Addr: address of the blamed process Cause outside the mesh
	kindReport  kind = "report"  // line for the user, in Reason
	kindLeave   kind = "leave"   // orderly end; In: last operation; Stopped: because all ranks stop

	kindStoppable kind = "stoppable" // the rank can stop after any step, and saves the run at Reason
	kindBegun     kind = "begun"     // reply to stop: the rank has begun Step steps, and waits
)

// kindStop is sent in both directions.
const kindStop kind = "stop" // stop all ranks after the same step, because of Reason

// kindRoster to kindRejoin are sent by the coordinator to a member.
const (
	kindRoster    kind = "roster"  // all have joined: Addrs by rank
	kindHeartbeat kind = "beat"    // heartbeat: LateMillis
	kindVerdict   kind = "verdict" // the job ends: Peer is lost, or Missing did not join (TimedOut), or the process Cause outside the mesh, at Addr, is lost, or processes Disagree
	kindBye       kind = "bye"     // reply to leave and failed
	kindClosing   kind = "closing" // orderly end of the coordinator
	kindHalt      kind = "halt"    // stop after Step steps, because of Reason; 0: this rank alone will leave; negative: stopping is impossible
	kindRejoin    kind = "rejoin"  // leave after Step steps, and join again
)

// message is a control frame, as JSON: small, rare, and readable in a dump.
type message struct {
	Kind       kind     `json:"kind"`
	Addr       string   `json:"addr,omitempty"`
	Addrs      []string `json:"addrs,omitempty"`
	Doing      string   `json:"doing,omitempty"`
	Waits      bool     `json:"waits,omitempty"`
	Peer       int      `json:"peer"`
	WaitMillis int64    `json:"wait_ms,omitempty"`
	BeatNanos  int64    `json:"beat_ns,omitempty"`
	DeadNanos  int64    `json:"dead_ns,omitempty"`
	LateMillis int64    `json:"late_ms,omitempty"`
	Moved      int64    `json:"moved,omitempty"` // heartbeats with data from other members
	In         string   `json:"operation,omitempty"`
	Begun      []Begun  `json:"begun,omitempty"`
	Reason     string   `json:"reason,omitempty"`
	Missing    []int    `json:"missing,omitempty"`
	World      int      `json:"world,omitempty"`
	Step       int64    `json:"step,omitempty"`
	Servers    int      `json:"servers,omitempty"`
	TimedOut   bool     `json:"timed_out,omitempty"` // caused by a timeout
	Cause      string   `json:"cause,omitempty"`
	Where      string   `json:"where,omitempty"`
	Bucket     string   `json:"bucket,omitempty"`
	Stopped    bool     `json:"stopped,omitempty"` // the rank was cancelled, or all stop

	Settings setting.Values        `json:"settings,omitempty"`
	Disagree setting.Disagreements `json:"disagree,omitempty"`
}

// same reports whether m and other are equal; messages with lists or the job's end never are.
func (m *message) same(other *message) bool {
	plain := func(m *message) bool {
		return len(m.Addrs)+len(m.Begun)+len(m.Missing)+len(m.Settings)+len(m.Disagree)+len(m.Cause)+len(m.Where)+len(m.Bucket) == 0 && !m.TimedOut && !m.Stopped
	}
	return plain(m) && plain(other) &&
		m.Kind == other.Kind && m.Addr == other.Addr && m.Doing == other.Doing && m.Waits == other.Waits && m.Peer == other.Peer &&
		m.WaitMillis == other.WaitMillis && m.LateMillis == other.LateMillis && m.BeatNanos == other.BeatNanos && m.DeadNanos == other.DeadNanos &&
		m.In == other.In && m.Moved == other.Moved && m.Reason == other.Reason && m.Step == other.Step && m.World == other.World && m.Servers == other.Servers
}

// encode returns the frame of m, with texts cut to their limits.
func encode(m message) ([]byte, error) {
	m.Reason, m.Doing, m.In = clip(m.Reason, maxWhy), clip(m.Doing, maxDoing), clip(m.In, maxDoing)
	m.Cause, m.Where, m.Bucket = clip(m.Cause, maxDoing), clip(m.Where, maxDoing), clip(m.Bucket, 2*maxDoing)
	if len(m.Begun) > maxBegun {
		m.Begun = m.Begun[len(m.Begun)-maxBegun:]
	}
	b, err := json.Marshal(m)
	if err == nil && len(b) > maxMessage {
		err = fmt.Errorf("a %s message of %d bytes is above the limit of %d", m.Kind, len(b), maxMessage)
	}
	return b, err
}

// decode parses a frame of a job of worldSize ranks. The result is within the limits and has only
// valid ranks, or -1 in Peer for none.
func decode(frame []byte, worldSize int) (message, error) {
	var m message
	if len(frame) > maxMessage {
		return message{}, fmt.Errorf("a control message of %d bytes is above the limit of %d", len(frame), maxMessage)
	}
	if err := json.Unmarshal(frame, &m); err != nil {
		return message{}, fmt.Errorf("control message: %w", err)
	}
	if err := m.check(worldSize); err != nil {
		return message{}, fmt.Errorf("control message %q: %w", clip(string(m.Kind), 20), err)
	}
	return m, nil
}

func (m *message) check(worldSize int) error {
	switch {
	case m.Peer < -1 || m.Peer >= worldSize:
		return fmt.Errorf("rank %d is not among %d ranks", m.Peer, worldSize)
	case len(m.Reason) > 4*maxWhy || len(m.Doing) > 4*maxDoing || len(m.In) > 4*maxDoing || len(m.Cause) > 4*maxDoing || len(m.Where) > 4*maxDoing || len(m.Bucket) > 8*maxDoing:
		return fmt.Errorf("a text is above its limit")
	case m.WaitMillis < 0 || m.WaitMillis > int64(1000*time.Hour/time.Millisecond):
		return fmt.Errorf("a wait of %d ms", m.WaitMillis)
	case m.LateMillis < 0 || m.LateMillis > int64(1000*time.Hour/time.Millisecond):
		return fmt.Errorf("ticks late by %d ms", m.LateMillis)
	case m.Moved < 0:
		return fmt.Errorf("data came in %d heartbeats", m.Moved)
	case m.Step < -1:
		return fmt.Errorf("%d steps", m.Step)
	case m.BeatNanos < 0 || m.DeadNanos < 0:
		return fmt.Errorf("a heartbeat of %d ns, dead after %d ns", m.BeatNanos, m.DeadNanos)
	case len(m.Missing) > worldSize:
		return fmt.Errorf("%d missing ranks of %d", len(m.Missing), worldSize)
	case len(m.Addr) > maxAddr:
		return fmt.Errorf("an address of %d bytes", len(m.Addr))
	case m.Servers < 0 || m.Servers > worldSize:
		return fmt.Errorf("%d servers among %d ranks", m.Servers, worldSize)
	}
	if len(m.Begun) > maxBegun || slices.ContainsFunc(m.Begun, func(b Begun) bool { return len(b.Operation) > maxDoing }) {
		return fmt.Errorf("%d begun operations, or a long text", len(m.Begun))
	}
	for _, r := range m.Missing {
		if r < 0 || r >= worldSize {
			return fmt.Errorf("rank %d is not among %d ranks", r, worldSize)
		}
	}
	if err := errors.Join(m.Settings.Check(), m.Disagree.Check()); err != nil {
		return err
	}
	return m.checkKind(worldSize)
}

func (m *message) checkKind(worldSize int) error {
	switch m.Kind {
	case kindJoin:
		return checkAddr(m.Addr)
	case kindRoster:
		if len(m.Addrs) != worldSize {
			return fmt.Errorf("%d addresses for %d ranks", len(m.Addrs), worldSize)
		}
		for _, a := range m.Addrs {
			if err := checkAddr(a); err != nil {
				return err
			}
		}
		return nil
	case kindStatus, kindSuspect, kindFailed, kindReport, kindLeave, kindHeartbeat, kindVerdict, kindBye, kindClosing,
		kindStoppable, kindBegun, kindStop, kindHalt, kindRejoin:
		return nil
	}
	return fmt.Errorf("unknown kind")
}

func checkAddr(a string) error {
	if len(a) > maxAddr {
		return fmt.Errorf("an address of %d bytes", len(a))
	}
	_, _, err := net.SplitHostPort(a)
	return err
}

// frameError is the error for a frame other than a control message.
func frameError(h wire.Header) error {
	return fmt.Errorf("a %v frame of %d bytes on a control connection, want a control message of at most %d", h.Type, h.Length, maxMessage)
}
