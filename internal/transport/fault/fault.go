package fault

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringo-ml/ringo/transport"
)

// ErrInjected is the cause of every error injected by a Fail rule.
var ErrInjected = errors.New("injected fault")

// Mesh is a mesh with injected faults. Mesh implements transport.Mesh and transport.Cutter.
type Mesh struct {
	transport.Mesh
	rules  []counted
	wakeUp sync.Once
	ended  chan struct{} // closed by Abort and Close; ends delays
}

// counted is a rule with the number of matching operations.
type counted struct {
	Rule
	n atomic.Int64
}

// Wrap returns mesh with faults. Every rule counts its matching operations, and the first rule with
// a matching count acts. Operations without a matching rule pass unchanged. An invalid rule panics:
// check user input with ParseRules.
func Wrap(mesh transport.Mesh, rules ...Rule) transport.Mesh {
	m := &Mesh{Mesh: mesh, rules: make([]counted, len(rules)), ended: make(chan struct{})}
	for i, r := range rules {
		if err := r.Validate(); err != nil {
			panic(err)
		}
		m.rules[i].Rule = r
	}
	return m
}

// pick counts an operation and returns the acting rule, or nil.
func (m *Mesh) pick(op Op, peer int) *Rule {
	var acts *Rule
	for i := range m.rules {
		r := &m.rules[i]
		if r.matches(m.Rank(), peer, op) && r.turn(int(r.n.Add(1))) && acts == nil {
			acts = &r.Rule
		}
	}
	return acts
}

func (r *Rule) matches(rank, peer int, op Op) bool {
	return (r.Rank == Any || r.Rank == rank) && (r.Peer == Any || r.Peer == peer) && (r.Op == AnyOp || r.Op == op)
}

// turn reports whether a rule acts on its n-th matching operation.
func (r *Rule) turn(n int) bool {
	return r.Nth == 0 || n == r.Nth || r.Onward && n > r.Nth
}

// Send sends, subject to the rules. See transport.Mesh.
func (m *Mesh) Send(to int, tag transport.Tag, p []byte, timeout time.Duration) error {
	return m.send(m.Mesh.Send, to, tag, p, timeout)
}

type sending func(to int, tag transport.Tag, p []byte, timeout time.Duration) error

func (m *Mesh) send(pass sending, to int, tag transport.Tag, p []byte, timeout time.Duration) error {
	rule := m.pick(Send, to)
	if rule == nil {
		return pass(to, tag, p, timeout)
	}
	switch rule.Do {
	case Drop:
		return nil
	case Fail:
		return m.injected(Send, to, tag, rule)
	case Cut:
		m.Cut(to)
	case Delay:
		if m.wait(min(rule.For, max(timeout, 0))); timeout <= rule.For {
			err := fmt.Errorf("%w after %v: %w by the rule %q", transport.ErrTimeout, timeout, ErrInjected, rule)
			return &transport.Error{Op: string(Send), Rank: m.Rank(), Peer: to, Tag: tag, Err: err}
		}
		timeout -= rule.For
	}
	return pass(to, tag, p, timeout)
}

// Lender returns the mesh's ZeroCopySender under the same rules as Send. See transport.Wrapper.
func (m *Mesh) Lender() transport.ZeroCopySender {
	if inner := transport.ZeroCopyOf(m.Mesh); inner != nil {
		return lender{m, inner}
	}
	return nil
}

type lender struct {
	mesh  *Mesh
	inner transport.ZeroCopySender
}

func (l lender) SendZeroCopy(to int, tag transport.Tag, p []byte, timeout time.Duration) error {
	return l.mesh.send(l.inner.SendZeroCopy, to, tag, p, timeout)
}

func (m *Mesh) wait(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-m.ended:
	}
}

// nowhere is the highest bit of Group: no message is sent to such a group.
const nowhere = 1 << 31

// Post posts a receive, subject to the rules. See transport.Mesh.
func (m *Mesh) Post(r *transport.Recv, from int, tag transport.Tag, dst []byte) {
	rule := m.pick(Receive, from)
	if rule != nil {
		switch rule.Do {
		case Drop:
			tag.Group ^= nowhere
		case Fail:
			transport.PostFault(r, m.injected(Receive, from, tag, rule))
			return
		case Cut:
			m.Cut(from)
		}
	}
	m.Mesh.Post(r, from, tag, dst)
}

func (m *Mesh) injected(op Op, peer int, tag transport.Tag, rule *Rule) error {
	return &transport.Error{
		Op: string(op), Rank: m.Rank(), Peer: peer, Tag: tag,
		Err: fmt.Errorf("%w by the rule %q", ErrInjected, rule),
	}
}

// SharedMemory returns the inner mesh's memory, without faults. See transport.SharedMemoryProvider.
func (m *Mesh) SharedMemory() *transport.SharedMemory { return transport.SharedMemoryOf(m.Mesh) }

// Cut breaks the link to a peer, if the mesh has links.
func (m *Mesh) Cut(peer int) {
	if c, ok := m.Mesh.(transport.Cutter); ok && transport.CheckPeer(m, peer) == nil {
		c.Cut(peer)
	}
}

// Abort ends delays and aborts the mesh.
func (m *Mesh) Abort(cause error) {
	m.wakeUp.Do(func() { close(m.ended) })
	m.Mesh.Abort(cause)
}

// Close ends delays and closes the mesh.
func (m *Mesh) Close() error {
	m.wakeUp.Do(func() { close(m.ended) })
	return m.Mesh.Close()
}
