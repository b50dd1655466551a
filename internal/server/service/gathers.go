package service

import (
	"fmt"
	"sync"

	"github.com/ringo-ml/ringo/internal/server/message"
	"github.com/ringo-ml/ringo/internal/server/message/requests"
	"github.com/ringo-ml/ringo/internal/watch/record"
	"github.com/ringo-ml/ringo/internal/wire"
)

// gathers runs the trainers' gathers sequentially: each trainer sends a blob, and after the last
// active trainer's blob all trainers receive all blobs. Trainers that have left or are lost are
// excluded, with their blobs.
//
// The server keeps the result of the last gather for trainers with a broken connection. All state
// is in memory only: after its restart trainers send the last result and their blobs again.
type gathers struct {
	mu     sync.Mutex
	number uint64 // current gather, from 1
	guests []participant
	ended  []byte // result of the previous gather
	book   *requests.Book
}

type participant struct {
	absent  bool   // has left or is lost
	blob    []byte // sent blob, or nil
	conn    *conn  // connection for the answer
	request uint64 // number of the request
	entry   record.Op
}

func (m *gathers) init(trainers int, book *requests.Book) {
	m.number, m.guests, m.book = 1, make([]participant, trainers), book
}

// bring records a trainer's blob for a gather. The answer follows when all blobs have arrived.
func (m *gathers) bring(c *conn, h message.Head, blob []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	g, at := &m.guests[c.hello.Trainer], c.s.prefixed("trainer %d comes to meeting %d, the others are at %d", c.hello.Trainer, h.Step, m.number)
	switch {
	case g.absent:
		return &message.Failure{Reason: message.ReasonLost, Trainer: c.hello.Trainer, Text: at + ": they went on without it"}
	case h.Step == m.number:
		m.book.End(g.entry, true) // ends an earlier connection's record
		g.blob, g.conn, g.request, g.entry = blob, c, h.Number, c.begin(message.TypeGather, h, len(blob))
		m.look()
	case h.Step+1 == m.number:
		c.met(h, m.ended)
	case h.Step < m.number:
		return &message.Failure{Reason: message.ReasonFailed, Text: at + ": it was away, or started again, and cannot catch up"}
	default:
		return fmt.Errorf("%w: %s", message.ErrMalformed, at)
	}
	return nil
}

// confirm stores the result of a gather that a trainer sends, because a server that has restarted
// since the gather does not have it.
func (m *gathers) confirm(number uint64, parts []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if number < m.number {
		return
	}
	for i := range m.guests {
		if g := &m.guests[i]; g.blob != nil && number > m.number {
			g.conn.end() // the trainer retries and gets an error
			m.book.End(g.entry, true)
			g.blob, g.conn, g.entry = nil, nil, record.Op{}
		}
	}
	m.number = number
	m.end(parts)
}

func (m *gathers) leave(trainer int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.book.End(m.guests[trainer].entry, true)
	m.guests[trainer] = participant{absent: true}
	m.look()
}

// look ends the gather if all active trainers have sent their blobs. m.mu is held.
func (m *gathers) look() {
	size := 0
	for i, g := range m.guests {
		if !g.absent && g.blob == nil {
			m.wait(i)
			return
		}
		size += len(g.blob) + 8
	}
	parts := make([]byte, 0, size)
	for i, g := range m.guests {
		if !g.absent {
			parts = message.AppendPart(parts, message.Part{Trainer: i, Blob: g.blob})
		}
	}
	m.end(parts)
}

// wait records that the trainers with a blob in the gather wait for a trainer. m.mu is held.
func (m *gathers) wait(trainer int) {
	for _, g := range m.guests {
		m.book.Wait(g.entry, trainer)
	}
}

// end answers all trainers with a blob in the gather. m.mu is held.
func (m *gathers) end(parts []byte) {
	for i := range m.guests {
		g := &m.guests[i]
		if g.blob != nil {
			g.conn.met(message.Head{Number: g.request, Step: m.number}, parts)
			m.book.End(g.entry, false)
		}
		g.blob, g.conn, g.entry = nil, nil, record.Op{}
	}
	m.number, m.ended = m.number+1, parts
}

func (c *conn) met(h message.Head, parts []byte) {
	h.Count = len(parts)
	front := make([]byte, message.Front) // all answers share parts
	if err := wire.PutHeader((*[wire.HeaderSize]byte)(front), wire.Header{Type: message.TypeGathered, Length: message.HeadSize + len(parts)}); err != nil {
		panic(err) // excluded by the limits
	}
	message.PutHead((*[message.HeadSize]byte)(front[wire.HeaderSize:]), h)
	c.out.send(front, parts)
}

func (c *conn) meet(h message.Head, n int) error {
	blob, err := c.io.ReadAll(n)
	if err != nil {
		return err
	}
	return c.s.meetings.bring(c, h, blob)
}

// learn reads the result of the last gather from a trainer.
func (c *conn) learn(h message.Head, n int) error {
	parts, err := c.io.ReadAll(n)
	if err != nil {
		return err
	}
	if _, err := message.ParseParts(parts, c.s.cfg.Trainers); err != nil {
		return err
	}
	c.s.meetings.confirm(h.Step, parts)
	return nil
}
