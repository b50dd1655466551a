package transport

import (
	"math/bits"
	"sync"
)

// The chains of an Inbox. in.mu is held in all of these.

func (in *Inbox) findPosted(tag Tag) *Recv {
	r := in.posted[tag.chain()]
	for r != nil && r.tag != tag {
		r = r.next
	}
	return r
}

func (in *Inbox) linkPosted(r *Recv) {
	c := r.tag.chain()
	r.next, in.posted[c] = in.posted[c], r
	r.state = recvPosted
}

func (in *Inbox) unlinkPosted(r *Recv) {
	p := &in.posted[r.tag.chain()]
	for *p != r {
		p = &(*p).next
	}
	*p, r.next = r.next, nil
	r.state = recvIdle
}

func (in *Inbox) takePosted(tag Tag) *Recv {
	r := in.findPosted(tag)
	if r != nil {
		in.unlinkPosted(r)
	}
	return r
}

func (in *Inbox) findArrived(tag Tag) *message {
	m := in.arrived[tag.chain()]
	for m != nil && m.tag != tag {
		m = m.next
	}
	return m
}

func (in *Inbox) linkArrived(m *message) {
	c := m.tag.chain()
	m.next, in.arrived[c] = in.arrived[c], m
}

func (in *Inbox) unlinkArrived(m *message) {
	p := &in.arrived[m.tag.chain()]
	for *p != m {
		p = &(*p).next
	}
	*p, m.next = m.next, nil
}

// message is a message that came before its receive.
type message struct {
	tag  Tag
	n    int    // its length
	buf  []byte // cap is its class
	next *message
}

func (m *message) bytes() []byte { return m.buf[:m.n] }

// BufferPool keeps the buffers of messages that come before their receives, by
// powers of two. The zero value is ready. What is not used for a while goes
// back to the garbage collector.
type BufferPool struct {
	class [bits.UintSize]sync.Pool
}

const (
	smallestClass = 6  // 64 bytes
	messageBytes  = 64 // what a message costs besides its buffer, about
)

func classOf(n int) int {
	if n <= 1<<smallestClass {
		return smallestClass
	}
	return bits.Len(uint(n - 1))
}

// classBytes is the memory that keeping n bytes takes; empty messages cost too.
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
