// Package requests records the requests of trainers to parameter servers (package record). Both
// ends record the same description: a reader of both records can match requests by trainer, server,
// session, kind and number.
package requests

import (
	"fmt"

	"github.com/ringo-ml/ringo/internal/server/message"
	"github.com/ringo-ml/ringo/internal/watch/record"
	"github.com/ringo-ml/ringo/internal/wire"
	"github.com/ringo-ml/ringo/ps/schema"
)

// Book is the recorder of a trainer or a server. Without a Recorder, or if nil, it records nothing.
type Book struct {
	rec           *record.Recorder
	names         [message.TypeSaved - message.TypePullRows + 1]record.Name
	sessions      []record.Name
	sparse, dense []record.Name // names of tables and arrays; see Know for concurrency
}

// NewBook returns a Book for the given number of sessions per trainer.
func NewBook(rec *record.Recorder, sessions int) *Book {
	if rec == nil {
		return nil
	}
	b := &Book{rec: rec}
	for t := message.TypePullRows; t <= message.TypeSaved; t++ {
		b.names[t-message.TypePullRows] = rec.Name(message.Name(t))
	}
	for s := range sessions {
		text := ""
		if sessions > 1 {
			text = fmt.Sprintf("session %d", s)
		}
		b.sessions = append(b.sessions, rec.Name(text))
	}
	return b
}

// Know adds the names of the tables. It must precede the first request for them.
func (b *Book) Know(sc *schema.Schema) {
	if b == nil {
		return
	}
	for _, t := range sc.Sparse {
		b.sparse = append(b.sparse, b.rec.Name(t.Name))
	}
	for _, d := range sc.Dense {
		b.dense = append(b.dense, b.rec.Name(d.Name))
	}
}

// Begin records the start of a request of this size; with is the other end: server or trainer.
func (b *Book) Begin(t wire.Type, h message.Head, bytes, with, session int) record.Op {
	if b == nil {
		return record.Op{}
	}
	e := record.Event{
		Kind: record.Request, Name: b.names[t-message.TypePullRows], Algorithm: b.sessions[session], Bucket: -1, Step: int64(h.Step), Seq: uint32(h.Number),
		Other: int32(with), Peer: -1, Size: int64(bytes), Sent: -1, Begun: b.rec.Now(),
	}
	switch t {
	case message.TypePullRows, message.TypePushRows:
		e.Label, e.Group, e.Sig = b.sparse[h.Table], uint32(h.Table), uint64(h.Count)
	case message.TypePullDense, message.TypePushDense, message.TypeSetDense:
		e.Label, e.Group = b.dense[h.Table], uint32(h.Table)
	}
	return b.rec.Begin(&e)
}

// Wait records the process that a request waits for, until its end; -1: none.
func (b *Book) Wait(op record.Op, peer int) {
	switch w := op.Wait(); {
	case w == nil:
	case peer < 0:
		w.Clear()
	default:
		w.For(peer, b.rec.Now())
	}
}

// End records the end of a request; a failed request keeps its recorded wait.
func (b *Book) End(op record.Op, failed bool) {
	if op.Recorded() {
		op.End(b.rec.Now(), -1, failed)
	}
}
