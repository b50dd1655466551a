package client

import (
	"fmt"
	"io"
	"slices"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/server/message"
	"github.com/ringo-ml/ringo/internal/wire"
)

// receive reads answers and acknowledgements until the connection ends, and returns the cause.
func (k *link) receive(conn *message.Conn) error {
	for {
		t, h, n, err := conn.Next()
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		switch t {
		case message.TypeAck:
			err = k.acknowledged(h.Number)
		case message.TypeRows, message.TypeValues, message.TypeFailed, message.TypeGathered, message.TypeSaved:
			err = k.answered(conn, t, h, n)
		default:
			var b []byte
			if b, err = conn.ReadAll(n); err == nil {
				err = parting(t, b)
			}
		}
		if err != nil {
			return err
		}
	}
}

// acknowledged drops all changes up to a number.
func (k *link) acknowledged(number uint64) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if number > k.number {
		return fmt.Errorf("%w: the acknowledgement of change %d, of %d", message.ErrMalformed, number, k.number)
	}
	for i := 0; i < len(k.queue); {
		it := k.queue[i]
		switch {
		case !it.change:
			i++
		case it.head.Number > number:
			return nil
		case !it.delivered:
			return fmt.Errorf("%w: the acknowledgement of change %d, which was not sent", message.ErrMalformed, it.head.Number)
		default:
			if it.t == message.TypeClock {
				k.clock = it.head.Step
			}
			k.drop(i)
		}
	}
	return nil
}

func (k *link) answered(conn *message.Conn, t wire.Type, h message.Head, n int) error {
	it, err := k.asked(t, h)
	if err != nil {
		return err
	}
	if t == message.TypeFailed {
		b, err := conn.ReadAll(n)
		if err != nil {
			return err
		}
		k.finish(it, k.itemFault(it, &message.Failure{Reason: message.ReasonFailed, Text: message.Text(b)}))
		return nil
	}
	switch it.t {
	case message.TypeGather:
		err = k.metAt(conn, it, n)
	case message.TypeSave:
		k.savedAs(h.At)
	default:
		if err = k.place(conn, it, n); err == nil && t == message.TypeRows {
			it.pull.clocked(h.At)
		}
	}
	if err == nil {
		k.finish(it, nil)
	}
	return err
}

func (k *link) asked(t wire.Type, h message.Head) (*outMessage, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	i := slices.IndexFunc(k.queue, func(it *outMessage) bool { return !it.change && it.head.Number == h.Number })
	if i < 0 || !k.queue[i].delivered {
		return nil, fmt.Errorf("%w: an answer to request %d, which was not made", message.ErrMalformed, h.Number)
	}
	it := k.queue[i]
	want, head := message.TypeValues, it.head
	switch it.t {
	case message.TypePullRows:
		if want = message.TypeRows; head.At != message.Peek {
			head.At = h.At
		}
	case message.TypeGather:
		want, head.Count = message.TypeGathered, h.Count
	case message.TypeSave:
		want, head.At = message.TypeSaved, h.At
	}
	if t != message.TypeFailed && (t != want || h != head) {
		return nil, fmt.Errorf("%w: %s %+v in answer to %s %+v", message.ErrMalformed, message.Name(t), h, message.Name(it.t), it.head)
	}
	return it, nil
}

func (k *link) place(conn *message.Conn, it *outMessage, n int) error {
	code, fits := it.head.Code, it.dst != nil
	if code == message.FP32 && fits {
		return conn.Read(bytesview.Bytes(it.dst))
	}
	body := k.aside.Sized(n)
	if err := conn.Read(body); err != nil {
		return err
	}
	if fits {
		return code.Decode(it.dst, body)
	}
	dim, values := it.pull.dim, []float32(nil)
	if code == message.FP32 {
		values = bytesview.As[float32](body)
	} else {
		k.decoded = bytesview.Sized(k.decoded, len(it.places)*dim)
		values = k.decoded
		if err := code.Decode(values, body); err != nil {
			return err
		}
	}
	dst := it.pull.dst
	for i, p := range it.places {
		copy(dst[int(p)*dim:][:dim], values[i*dim:][:dim])
	}
	return nil
}

// finish removes an answered pull from the queue, unless the link was abandoned.
func (k *link) finish(it *outMessage, err error) {
	k.mu.Lock()
	i := slices.Index(k.queue, it)
	p := it.pull
	if i >= 0 {
		k.drop(i)
	}
	k.mu.Unlock()
	if i >= 0 {
		p.part(err)
	}
}
