package service

import (
	"encoding/hex"
	"encoding/json"
	"testing"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/server/message"
)

// read greets as a reader with a schema, and returns the last frame.
func (w *world) read(change func(h *message.Hello), seed uint64) (p *peer, welcome bool, text []byte) {
	w.t.Helper()
	p = w.knock()
	h := message.Hello{Trainers: 1, Sessions: 1, Servers: 1, Incarnation: 7, From: 1, Reader: true}
	if change != nil {
		change(&h)
	}
	sc := testSchema()
	sc.Sparse[0].Rule.LR *= 2 // of updates alone
	sc.Sparse[0].Seed += seed
	hash, err := hex.DecodeString(sc.Hash())
	must(w.t, err)
	h.Hash = [32]byte(hash)
	must(w.t, p.WriteFrame(message.TypeHello, h.Append(nil)))
	t, b := p.next()
	if t == message.TypeNeedSchema {
		js, err := json.Marshal(sc)
		must(w.t, err)
		must(w.t, p.WriteFrame(message.TypeSchema, js))
		t, b = p.next()
	}
	return p, t == message.TypeWelcome, b
}

// TestReaders: a reader of other update rules gets rows without creating them, takes no trainer's
// place, and cannot change anything.
func TestReaders(t *testing.T) {
	w := start(t, 1, nil)
	p, _, b := w.read(nil, 0)
	p.failed(message.TypeFailure, b, message.ReasonMismatch, "not open yet")

	trainer := w.knock()
	if got, _ := trainer.greets(hello(0, 1)); got != message.TypeWelcome {
		t.Fatal(message.Name(got))
	}
	p, welcome, b := w.read(nil, 0)
	if !welcome {
		t.Fatalf("%q", b)
	}
	peek := message.Head{Number: 1, Step: 1, At: message.Peek, Count: 1}
	p.send(message.TypePullRows, peek, bytesview.Bytes([]uint64{5}))
	p.gets(message.TypeRows, 1)
	trainer.pushes(1, 1, 5, 1, 2, 3)
	trainer.gets(message.TypeAck, 1)
	peek.Number = 2
	p.send(message.TypePullRows, peek, bytesview.Bytes([]uint64{5}))
	p.gets(message.TypeRows, 2)
	p.pushes(1, 1, 5, 1, 2, 3)
	p.failure(message.ReasonProtocol, "a reader sends a push of rows")

	p, _, b = w.read(nil, 1)
	p.failed(message.TypeFailure, b, message.ReasonMismatch, "a reader has other tables", "with seed 1", "on the servers")
	p, _, b = w.read(func(h *message.Hello) { h.Servers = 2 }, 0)
	p.failed(message.TypeFailure, b, message.ReasonMismatch, "server 0 of 2, it is 0 of 1")
	trainer.leaves(2)
	must(t, w.end())
}
