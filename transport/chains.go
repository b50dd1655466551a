package transport

import (
	"math/bits"
	"sync"
)

// An Inbox has hash chains of receives and messages, ordered oldest first, because messages mostly
// arrive in the order of the receives. All parts of an operation are in one chain, so that any two
// parts reveal whether the ranks run different operations. The functions in this file need in.mu.

const chains = 64

func (t Tag) chain() uint32 { return (t.Seq + t.Group*13) % chains }

type recvChain struct{ first, last *Recv }

type messageChain struct{ first, last *message }

func (in *Inbox) linkPosted(r *Recv) {
	c := &in.posted[r.tag.chain()]
	if c.first == nil {
		c.first = r
	} else {
		c.last.next = r
	}
	c.last, r.next, r.state = r, nil, recvPosted
}

func (in *Inbox) unlinkPosted(r *Recv) {
	c := &in.posted[r.tag.chain()]
	var before *Recv
	p := &c.first
	for *p != r {
		before = *p
		p = &before.next
	}
	if *p = r.next; c.last == r {
		c.last = before
	}
	r.next, r.state = nil, recvIdle
}

func (in *Inbox) findPosted(tag Tag) *Recv {
	r := in.posted[tag.chain()].first
	for r != nil && !(r.tag.Part == tag.Part && r.tag.operation(tag)) {
		r = r.next
	}
	return r
}

// takePosted removes the receive for a message from its chain. If this rank runs another operation
// with the same number, the receives of that operation fail and takePosted returns nil.
func (in *Inbox) takePosted(tag Tag) *Recv {
	for r := in.posted[tag.chain()].first; r != nil; r = r.next {
		switch {
		case !r.tag.operation(tag):
		case r.tag.Sig != tag.Sig:
			in.mismatched(tag)
			return nil
		case r.tag.Part == tag.Part:
			in.unlinkPosted(r)
			return r
		}
	}
	return nil
}

// mismatched fails the receives of the operation that has the message's number but another
// signature.
func (in *Inbox) mismatched(tag Tag) {
	for r := in.posted[tag.chain()].first; r != nil; {
		next := r.next
		if r.tag.operation(tag) && r.tag.Sig != tag.Sig {
			in.unlinkPosted(r)
			r.complete(in.mismatch(r.tag, tag))
		}
		r = next
	}
}

// findArrived returns the message with tag, or one that shows a different operation of the peer.
func (in *Inbox) findArrived(tag Tag) *message {
	m := in.arrived[tag.chain()].first
	for m != nil && !(m.tag.operation(tag) && (m.tag.Part == tag.Part || m.tag.Sig != tag.Sig)) {
		m = m.next
	}
	return m
}

func (in *Inbox) came(tag Tag) bool {
	m := in.arrived[tag.chain()].first
	for m != nil && !(m.tag.Part == tag.Part && m.tag.operation(tag)) {
		m = m.next
	}
	return m != nil
}

func (in *Inbox) linkArrived(m *message) {
	c := &in.arrived[m.tag.chain()]
	if c.first == nil {
		c.first = m
	} else {
		c.last.next = m
	}
	c.last, m.next = m, nil
}

func (in *Inbox) unlinkArrived(m *message) {
	c := &in.arrived[m.tag.chain()]
	var before *message
	p := &c.first
	for *p != m {
		before = *p
		p = &before.next
	}
	if *p = m.next; c.last == m {
		c.last = before
	}
	m.next = nil
}

// message is a message that arrived before its receive.
type message struct {
	tag  Tag
	n    int    // length in bytes
	buf  []byte // the capacity is the class
	next *message
}

func (m *message) bytes() []byte { return m.buf[:m.n] }

// BufferPool pools buffers by powers of two, for messages that arrive before their receives. The
// zero value is ready. Unused buffers return to the garbage collector.
type BufferPool struct {
	class [bits.UintSize]sync.Pool
}

const (
	smallestClass = 6  // 64 bytes
	messageBytes  = 64 // approximate cost of a message without its buffer
)

func classOf(n int) int {
	if n <= 1<<smallestClass {
		return smallestClass
	}
	return bits.Len(uint(n - 1))
}

// classBytes returns the memory of a buffered message of n bytes; empty messages also have a cost.
func classBytes(n int) int64 { return 1<<classOf(n) + messageBytes }

func (p *BufferPool) get(tag Tag, n int) *message {
	c := classOf(n)
	m, _ := p.class[c].Get().(*message)
	if m == nil {
		m = &message{buf: make([]byte, 1<<c)}
	}
	m.tag, m.n = tag, n
	return m
}

func (p *BufferPool) put(m *message) {
	m.next = nil
	p.class[classOf(m.n)].Put(m)
}
