package requests

import (
	"testing"

	"github.com/ringo-ml/ringo/internal/server/message"
	"github.com/ringo-ml/ringo/internal/watch/record"
	"github.com/ringo-ml/ringo/ps/schema"
)

var known = schema.Schema{Sparse: []schema.Sparse{{Name: "even"}, {Name: "odd"}}, Dense: []schema.Dense{{Name: "bias"}}}

// Each kind of request is recorded with what it is about, its session, and its own step.
func TestBook(t *testing.T) {
	rec := record.New(record.Config{})
	rec.BeginStep(77) // of no request
	b := NewBook(rec, 2)
	b.Know(&known)
	for typ := message.TypePullRows; typ <= message.TypeGather; typ++ {
		if typ >= message.TypeRows && typ < message.TypeGather { // answers
			continue
		}
		head := message.Head{Number: 9, Step: 4, Count: 5}
		op := b.Begin(typ, head, 100, 3, 1)
		b.Wait(op, 2)
		b.End(op, true)
		got := rec.Recent(nil, 1)[0]
		label, rows := "", uint64(0)
		switch typ {
		case message.TypePullRows, message.TypePushRows:
			label, rows = "even", 5
		case message.TypePullDense, message.TypePushDense, message.TypeSetDense:
			label = "bias"
		}
		if rec.Text(got.Name) != message.Name(typ) || rec.Text(got.Algorithm) != "session 1" || rec.Text(got.Label) != label || got.Sig != rows ||
			got.Step != 4 || got.Seq != 9 || got.Other != 3 || got.Size != 100 || !got.Failed || got.Peer != 2 || got.Done < got.Begun {
			t.Errorf("%s: %+v", message.Name(typ), got)
		}
	}
	op := b.Begin(message.TypeClock, message.Head{}, 0, 0, 0)
	b.Wait(op, 1)
	b.Wait(op, -1)
	if open := rec.Open(nil); len(open) != 1 || open[0].Peer != -1 {
		t.Errorf("%+v", open)
	}
	b.End(op, false)
	if n := testing.AllocsPerRun(100, func() { b.End(b.Begin(message.TypePullRows, message.Head{Table: 1}, 8, 1, 0), false) }); n > 0 {
		t.Errorf("a request takes %v allocations", n)
	}
}

// Without a recorder nothing happens.
func TestNoBook(t *testing.T) {
	b := NewBook(nil, 1)
	b.Know(&known)
	op := b.Begin(message.TypePullRows, message.Head{}, 8, 1, 0)
	b.Wait(op, 1)
	b.End(op, false)
	if op.Recorded() {
		t.Error("something was recorded")
	}
}

func BenchmarkRequest(b *testing.B) {
	book := NewBook(record.New(record.Config{}), 1)
	book.Know(&known)
	for b.Loop() {
		book.End(book.Begin(message.TypePullRows, message.Head{Table: 1}, 8, 1, 0), false)
	}
}
