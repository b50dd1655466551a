package service

import (
	"fmt"
	"sync"

	"github.com/ringo-ml/ringo/internal/server/message"
	"github.com/ringo-ml/ringo/internal/server/message/requests"
	"github.com/ringo-ml/ringo/internal/watch/record"
	"github.com/ringo-ml/ringo/internal/wire"
)

// gathers are where trainers meet, one meeting after the other: each brings some
// bytes, and when all that are there have brought theirs each gets those of all. Who
// has left or is lost is not waited for, and what it brought is left out.
//
// How the last meeting ended is kept, for those whose connection broke before they had
// it. All this is in memory alone: to a server that is started again trainers tell how
// the last meeting ended that they know of, and bring again what they brought.
type gathers struct {
	mu     sync.Mutex
	number uint64 // of the meeting under way, from 1
	guests []participant
	ended  []byte // parts of the one before
	book   *requests.Book
}

// participant is a trainer.
type participant struct {
	absent  bool   // it has left, or is lost
	blob    []byte // what it has brought, not nil
	conn    *conn  // which gets the answer
	request uint64 // by which number it asked
	entry   record.Op
}

func (m *gathers) init(trainers int, book *requests.Book) {
	m.number, m.guests, m.book = 1, make([]participant, trainers), book
}

// bring takes what a trainer brings to a meeting. The answer is sent when all have come.
func (m *gathers) bring(c *conn, h message.Head, blob []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	g, at := &m.guests[c.hello.Trainer], c.s.prefixed("trainer %d comes to meeting %d, the others are at %d", c.hello.Trainer, h.Step, m.number)
	switch {
	case g.absent:
		return &message.Failure{Reason: message.ReasonLost, Trainer: c.hello.Trainer, Text: at + ": they went on without it"}
	case h.Step == m.number:
		m.book.End(g.entry, true) // of a connection before
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

// confirm takes from a trainer how a meeting ended. It is news to a server that was started
// after it.
func (m *gathers) confirm(number uint64, parts []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if number < m.number {
		return
	}
	for i := range m.guests {
		if g := &m.guests[i]; g.blob != nil && number > m.number {
			g.conn.end() // it asks again, and hears that it is too late
			m.book.End(g.entry, true)
			g.blob, g.conn, g.entry = nil, nil, record.Op{}
		}
	}
	m.number = number
	m.end(parts)
}

// leave tells that a trainer does not come any more.
func (m *gathers) leave(trainer int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.book.End(m.guests[trainer].entry, true)
	m.guests[trainer] = participant{absent: true}
	m.look()
}

// look ends the meeting when all have come. m.mu is held.
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

// wait records that those who have come wait for a trainer. m.mu is held.
func (m *gathers) wait(trainer int) {
	for _, g := range m.guests {
		m.book.Wait(g.entry, trainer)
	}
}

// end answers all who have come. m.mu is held.
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

// met answers a trainer.
func (c *conn) met(h message.Head, parts []byte) {
	h.Count = len(parts)
	front := make([]byte, message.Front) // the parts are the same for all
	if err := wire.PutHeader((*[wire.HeaderSize]byte)(front), wire.Header{Type: message.TypeGathered, Length: message.HeadSize + len(parts)}); err != nil {
		panic(err) // longer than any frame, which the limits rule out
	}
	message.PutHead((*[message.HeadSize]byte)(front[wire.HeaderSize:]), h)
	c.out.send(front, parts)
}

// meet reads what the trainer brings to a meeting.
func (c *conn) meet(h message.Head, n int) error {
	blob, err := c.io.ReadAll(n)
	if err != nil {
		return err
	}
	return c.s.meetings.bring(c, h, blob)
}

// learn reads how the last meeting ended that the trainer knows of.
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
