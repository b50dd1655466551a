package client

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/server/message"
	"github.com/ringo-ml/ringo/internal/watch/record"
	"github.com/ringo-ml/ringo/internal/wire"
	"github.com/ringo-ml/ringo/transport"
)

// outMessage is an unanswered message. It belongs to its creator, then to the queue.
type outMessage struct {
	t      wire.Type
	head   message.Head
	buf    message.Buffer
	frame  []byte
	change bool

	since     time.Time // creation time, by the client's clock
	delivered bool      // sent on this connection, or already at the server
	writing   bool      // the writer reads frame
	entry     record.Op
	dropped   bool // answered during the write: the writer frees it

	pull   *Pull
	dst    []float32 // destination of the answer if contiguous; otherwise places is used
	places []int32   // index in the pull's destination of each row
}

// newMessage waits until the queue has space, and returns a message with a frame of size bytes, or
// the link's permanent error. Only one goroutine at a time calls newMessage for a link.
func (k *link) newMessage(change bool, size int) (*outMessage, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err == nil && k.full(change) {
		start := time.Now()
		for k.err == nil && k.full(change) {
			k.changed.Wait() // bounded: every queued message has a deadline
		}
		if change {
			k.c.count.pushWait.Add(int64(time.Since(start)))
		} else {
			k.c.count.pullWait.Add(int64(time.Since(start)))
		}
	}
	if k.err != nil {
		return nil, k.err
	}
	it := k.fitting(size)
	it.frame = it.buf.Sized(size)
	return it, nil
}

// fitting returns the smallest sufficient unused message, or a new message. k.mu is held.
func (k *link) fitting(size int) *outMessage {
	i := message.Fitting(len(k.idle), size, func(i int) int { return k.idle[i].buf.Room() })
	if i < 0 {
		return new(outMessage)
	}
	it := k.idle[i]
	k.idle = slices.Delete(k.idle, i, i+1)
	return it
}

// maxWaiting is the maximum number of a session's waiting pulls, sent or not.
const maxWaiting = 4096

func (k *link) full(change bool) bool {
	if change {
		return k.changes >= k.c.cfg.Window
	}
	return k.pulls >= maxWaiting
}

func (k *link) discard(it *outMessage) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.free(it)
}

// free keeps the memory of a message for later messages. k.mu is held.
func (k *link) free(it *outMessage) {
	it.pull, it.dst, it.places = nil, nil, nil
	k.idle = append(k.idle, it)
}

// add numbers a message and queues it.
func (k *link) add(it *outMessage) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		return k.err
	}
	number := &k.request
	if it.change {
		number = &k.number
	}
	it.head.Number = *number + 1
	if it.t == message.TypePullRows && it.head.At != message.Peek {
		it.head.At = 2 * k.oldest(it.head.Number)
	}
	if err := message.PutFront(it.frame, it.t, it.head); err != nil {
		k.free(it)
		return k.itemFault(it, err)
	}
	*number++
	if it.change {
		k.changes++
	} else {
		k.pulls++
		it.pull.more()
	}
	it.since, it.delivered, it.dropped = k.c.clock.Now(), false, false
	if it.entry = k.c.record.Begin(it.t, it.head, len(it.frame), k.server, k.session); !it.change {
		k.c.record.Wait(it.entry, k.server) // recorded now: no later call waits for the end of a change
	}
	k.queue = append(k.queue, it)
	k.wakeWriter()
	return nil
}

// oldest returns the number of the first unanswered pull, or next without one. k.mu is held.
func (k *link) oldest(next uint64) uint64 {
	for _, it := range k.queue {
		if !it.change {
			return it.head.Number
		}
	}
	return next
}

// itemFault adds a message's description to an error.
func (k *link) itemFault(it *outMessage, err error) error {
	return k.fault(k.describe(it.t, it.head), it.head.Step, err)
}

func (k *link) describe(t wire.Type, h message.Head) string {
	sc := &k.c.cfg.Schema
	switch t {
	case message.TypePullRows, message.TypePushRows:
		return fmt.Sprintf("%s of table %q", message.Name(t), sc.Sparse[h.Table].Name)
	case message.TypePullDense, message.TypePushDense, message.TypeSetDense:
		return fmt.Sprintf("%s %q", message.Name(t), sc.Dense[h.Table].Name)
	}
	return message.Name(t)
}

func (k *link) rowsOf(dim int) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return max(1, min(k.limits.Keys, k.limits.Values/dim))
}

// valuesOf returns the maximum number of values per message, a multiple of the block lengths of all
// encodings.
func (k *link) valuesOf() int {
	const block = 256
	k.mu.Lock()
	defer k.mu.Unlock()
	return max(1, k.limits.Values/block*block)
}

// change queues a change; fill writes its body of size bytes.
func (k *link) change(t wire.Type, head message.Head, size int, fill func(body []byte) error) error {
	it, err := k.newMessage(true, message.Front+size)
	if err != nil {
		return err
	}
	it.t, it.head, it.change = t, head, true
	if fill != nil {
		if err := fill(it.frame[message.Front:]); err != nil {
			k.discard(it)
			return k.itemFault(it, err)
		}
	}
	return k.add(it)
}

// pushRows queues gradients, with counts if the rule needs them, for all keys or, if places is not
// nil, for the keys at these indices.
func (k *link) pushRows(head message.Head, keys []uint64, places []int32, grads []float32) error {
	front, dim, counts := message.KeySize*head.Count, k.limits.Dims[head.Table], k.c.counts[head.Table]
	return k.change(message.TypePushRows, head, front+head.Code.RowsSize(head.Count, dim, counts), func(body []byte) (err error) {
		putKeys(body[:front], keys, places)
		k.plain, err = head.Code.EncodeRows(body[front:], grads, dim, counts, k.plain)
		return err
	})
}

// putKeys writes keys or, if places is not nil, the keys at these indices.
func putKeys(body []byte, keys []uint64, places []int32) {
	if places == nil {
		copy(bytesview.As[uint64](body), keys)
		return
	}
	to := bytesview.As[uint64](body)
	for i, p := range places {
		to[i] = keys[p]
	}
}

// pullRows queues a pull of rows into dst. If places is not nil, it pulls only the keys at these
// indices, into the same indices of the pull's destination.
func (k *link) pullRows(p *Pull, head message.Head, keys []uint64, places []int32, dst []float32) error {
	it, err := k.newRequest(message.TypePullRows, p, head, message.KeySize*head.Count)
	if err != nil {
		return err
	}
	it.dst, it.places = dst, places
	putKeys(it.frame[message.Front:], keys, places)
	return k.add(it)
}

// newRequest returns a message for p with a body of size bytes.
func (k *link) newRequest(t wire.Type, p *Pull, head message.Head, size int) (*outMessage, error) {
	it, err := k.newMessage(false, message.Front+size)
	if err == nil {
		it.t, it.head, it.change, it.pull, it.dst, it.places = t, head, false, p, nil, nil
	}
	return it, err
}

// pullDense queues a pull of a range of an array into dst.
func (k *link) pullDense(p *Pull, head message.Head, dst []float32) error {
	it, err := k.newRequest(message.TypePullDense, p, head, 0)
	if err != nil {
		return err
	}
	it.dst = dst
	return k.add(it)
}

const maxWrite = 16

// load passes unsent messages to the writer. At the limit of pulls in flight later pulls wait.
// Changes and gathers overtake them, because the answer to an earlier pull may depend on a change
// or a gather.
func (k *link) load(items []*outMessage) []*outMessage {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.confirmed { // a restarted server lacks the last gather
		k.confirmed = true
		items = append(items, &outMessage{frame: k.lastGather})
	}
	for i := k.sent; i < len(k.queue) && len(items) < maxWrite; i++ {
		it := k.queue[i]
		if it.delivered || !it.change && it.t != message.TypeGather && k.activePulls >= k.pulling {
			continue
		}
		if !it.change {
			k.activePulls++
		}
		it.delivered, it.writing = true, true
		items = append(items, it)
	}
	for k.sent < len(k.queue) && k.queue[k.sent].delivered {
		k.sent++
	}
	return items
}

// written takes messages back from the writer.
func (k *link) written(items []*outMessage) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, it := range items {
		if it.writing = false; it.dropped {
			k.free(it)
		}
	}
}

// drop removes a message from the queue. k.mu is held.
func (k *link) drop(i int) {
	it := k.queue[i]
	k.queue = slices.Delete(k.queue, i, i+1)
	if i < k.sent {
		k.sent--
	}
	if it.change {
		k.changes--
	} else {
		k.pulls--
		k.activePulls-- // only sent messages have an answer
		k.wakeWriter()
	}
	k.c.record.End(it.entry, false)
	if it.dropped = true; !it.writing {
		k.free(it)
	}
	k.changed.Broadcast()
}

// write writes the queue, and heartbeats when idle, until stop is closed or the connection breaks.
func (k *link) write(conn *message.Conn, w message.Welcome, stop <-chan struct{}) {
	heartbeat, err := message.AppendFrame(nil, message.TypeHeartbeat, nil)
	if err != nil {
		panic(err) // frame without a payload
	}
	tick := time.NewTicker(w.Heartbeat)
	defer tick.Stop()
	var items []*outMessage
	var frames [][]byte
	for {
		items, frames = k.load(items[:0]), frames[:0]
		for _, it := range items {
			frames = append(frames, it.frame)
		}
		if len(items) == 0 {
			if k.partWith(conn) {
				return
			}
			select {
			case <-k.wake:
				continue
			case <-stop:
				return
			case <-tick.C:
				frames = append(frames, heartbeat)
			}
		}
		k.c.count.messages.Add(int64(len(items)))
		err := conn.Write(net.Buffers(frames))
		k.written(items)
		if err != nil {
			leaveToReader(err, w.Silence, stop)
			conn.Link().Close() // ends the reader
			return
		}
	}
}

// leaveToReader waits after a write timeout: the goroutine that reads decides, by the server's
// heartbeats, whether the connection is broken.
func leaveToReader(err error, silence time.Duration, stop <-chan struct{}) {
	if !errors.Is(err, transport.ErrTimeout) {
		return
	}
	timer := time.NewTimer(silence)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-stop:
	}
}

// partWith sends the goodbye if Leave has requested it and all changes are acknowledged.
func (k *link) partWith(conn *message.Conn) bool {
	k.mu.Lock()
	due := k.leaving
	k.mu.Unlock()
	if due && conn.WriteFrame(message.TypeGoodbye, nil) != nil {
		conn.Link().Close()
	}
	return due
}

// checkAges ends the client when the oldest message has waited longer than Timeout.
func (k *link) checkAges(now time.Time) {
	k.mu.Lock()
	err := error(nil)
	for _, it := range k.queue {
		limit := k.c.cfg.Timeout
		if it.t == message.TypeSave {
			limit = max(limit, longest)
		}
		if now.Sub(it.since) <= limit {
			continue
		}
		what := "answer"
		if it.change {
			what = "acknowledgement"
		}
		err = k.itemFault(it, fmt.Errorf("no %s within %v: is the server stuck, or does it wait for other trainers?", what, limit))
		break
	}
	k.mu.Unlock()
	if err != nil {
		k.c.fail(err)
	}
}
