package service

import (
	"context"
	"sync"

	"github.com/ringo-ml/ringo/internal/server/message"
	"github.com/ringo-ml/ringo/internal/watch/record"
)

// saveRequests are trainers' requests to save the server's part of a checkpoint of the whole job. A
// goroutine handles them sequentially while connections continue: requests outlive connections, and
// the engine saves a step once.
type saveRequests struct {
	ctx context.Context // done when Serve ends

	mu     sync.Mutex
	orders []saveRequest
	busy   bool           // the goroutine runs
	under  sync.WaitGroup // counts the goroutine
}

type saveRequest struct {
	conn *conn
	head message.Head

	entry record.Op
}

func (v *saveRequests) order(c *conn, h message.Head) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.orders = append(v.orders, saveRequest{c, h, c.begin(message.TypeSave, h, 0)})
	if !v.busy {
		v.busy = true
		v.under.Go(v.obey)
	}
}

// next returns the first request; false ends the goroutine.
func (v *saveRequests) next() (saveRequest, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.orders) == 0 {
		v.busy = false
		return saveRequest{}, false
	}
	o := v.orders[0]
	v.orders = v.orders[1:]
	return o, true
}

func (v *saveRequests) obey() {
	for o, more := v.next(); more; o, more = v.next() {
		number, err := o.conn.engine.SaveStep(v.ctx, o.head.Step, o.head.At)
		o.conn.s.book.End(o.entry, err != nil)
		o.conn.saved(o.head, number, err)
	}
}

// end waits for the goroutine, after all connections have ended.
func (v *saveRequests) end() { v.under.Wait() }

func (c *conn) saved(h message.Head, number uint64, cause error) {
	t, text := message.TypeSaved, ""
	if h.At = number; cause != nil {
		t, text = message.TypeFailed, message.CutText(cause.Error())
		h.Count = len(text)
	}
	frame := append(make([]byte, message.Front), text...)
	if err := message.PutFront(frame, t, h); err != nil {
		panic(err) // text of 1 GiB
	}
	c.out.send(frame)
}
