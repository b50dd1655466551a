package client

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/heter"
	"github.com/ringo-ml/ringo/heter/message"
	"github.com/ringo-ml/ringo/heter/near"
	"github.com/ringo-ml/ringo/heter/service"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/transport"
	"github.com/ringo-ml/ringo/wire"
)

// frameOf is a frame as it travels.
func frameOf(t testing.TB, typ wire.Type, payload []byte) []byte {
	var head [wire.HeaderSize]byte
	must(t, wire.PutHeader(&head, wire.Header{Type: typ, Length: len(payload)}))
	return append(head[:], payload...)
}

// Whatever a trainer with the ticket says, a heter-trainer ends by itself: with an error that names the trainer, or in good order.
func FuzzTrainer(f *testing.F) {
	c, err := heter.Find(spec(f), model.Options{}, nil)
	must(f, err)
	lent := c.Slots[len(c.Slots)-1].Offset + c.Slots[len(c.Slots)-1].Padded // values
	l := message.Layout{Cut: c}
	m := &heter.Micro{}
	m.Size(c, 2)
	micro := make([]byte, l.There(2))
	must(f, l.Micro(micro, m, 1, 1))
	end := frameOf(f, message.TypeEnd, message.End{Step: 1, Attempt: 1, Count: 1, Rate: 0.1}.Append(nil))
	ask := frameOf(f, message.TypeAsk, message.Ask{Step: 2, Count: 3}.Append(nil))
	bye := frameOf(f, message.TypeGoodbye, nil)
	all := append(frameOf(f, message.TypeMicro, micro), end...)
	f.Add(append(append(all, ask...), bye...), false)
	f.Add(bye, false)
	put := frameOf(f, message.TypePut, append(message.Ask{Step: 1, Count: lent}.Append(nil), make([]byte, 4*lent)...))
	for _, slots := range [][2]int{{0, 0}, {1, 7}, {2, 0}, {0, 8}} {
		placed := message.Placed{Head: message.Head{Number: 1, Step: 1, Samples: 2, Seed: 1}, There: slots[0], Back: slots[1]}.Append(nil)
		one := append(append(frameOf(f, message.TypePlaced, placed), end...), bye...)
		f.Add(one, false)
		f.Add(append(slices.Clone(put), one...), true)
	}
	f.Add(end, false)
	f.Add(frameOf(f, message.TypeEnd, message.End{Step: 1, Attempt: 2, Open: true, Here: []uint64{0}}.Append(nil)), false)
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), false)
	f.Add(append(slices.Clone(put), put...), true)
	f.Add(frameOf(f, message.TypePut, message.Ask{Step: 1, Lo: 1, Count: 1}.Append(nil)), true)
	f.Add(append(slices.Clone(end), bye...), true)
	f.Add(slices.Concat(frameOf(f, message.TypePut, nil), frameOf(f, message.TypeMicro, micro), end, bye), true)
	f.Fuzz(func(t *testing.T, said []byte, lent bool) {
		r := newRig(t, 1, 1, func(c *service.Config) { c.Lent = lent })
		r.config.Lent = lent
		k, w := r.greeted()
		mine, err := near.New(2, message.BodyAt+l.There(2))
		must(t, err)
		defer mine.Close()
		for i := range mine.Slots() { // of which the second one has labels that there are not
			b, err := mine.Slot(i, message.BodyAt+l.There(2))
			must(t, err)
			copy(b[message.BodyAt-message.HeadSize:], micro)
			b[len(b)-1-message.HeadSize] = byte(7 * i)
		}
		v, err := near.Swap(context.Background(), r.desk(), 0, w.Near, w.Key, func() (*near.Memory, error) { return mine, nil })
		must(t, err)
		defer v.Close()
		_ = k.WriteEncoded(net.Buffers{said}, time.Second) // it may end the connection before all is read
		_ = k.CloseWrite(time.Second, io.EOF)
		select {
		case <-r.ends[0]:
		case <-time.After(20 * time.Second):
			t.Errorf("%x: it goes on", said)
		}
	})
}

// Whatever a heter-trainer with the ticket says, a trainer ends by itself.
func FuzzHeterTrainer(f *testing.F) {
	welcome := frameOf(f, message.TypeWelcome, message.Welcome{Micros: 8, Samples: 100, Bytes: 1 << 20, Values: 9, State: 9, Life: 5, Heartbeat: time.Second, Silence: 2 * time.Second}.Append(nil))
	after := func(more ...[]byte) (all []byte) {
		all = append(all, welcome...)
		for _, b := range more {
			all = append(all, b...)
		}
		return all
	}
	f.Add(after(), false)
	f.Add(after(frameOf(f, message.TypeCommit, message.Commit(1).Append(nil))), false)
	f.Add(after(frameOf(f, message.TypeAgain, message.Again{Step: 1, Attempt: 2, Gone: []uint64{5}}.Append(nil))), false)
	f.Add(after(frameOf(f, message.TypeAgain, message.Again{Step: 1, Attempt: 2, Gone: []uint64{7}}.Append(nil))), false)
	f.Add(after(frameOf(f, message.TypeDone, make([]byte, message.HeadSize))), false)
	f.Add(after(frameOf(f, message.TypePlacedDone, make([]byte, message.HeadSize))), false)
	f.Add(after(frameOf(f, message.TypeValues, message.Ask{Step: 1, Count: 1}.Append(nil)), frameOf(f, message.TypeFailure, []byte("no"))), false)
	f.Add(frameOf(f, message.TypeFailure, []byte("no")), false)
	f.Add(after(frameOf(f, message.TypeValues, append(message.Ask{Step: 1, Count: 9}.Append(nil), make([]byte, 36)...))), true)
	f.Add(after(frameOf(f, message.TypeDone, make([]byte, message.HeadSize)), frameOf(f, message.TypeCommit, message.Commit(1).Append(nil))), true)
	f.Add(after(frameOf(f, message.TypeDone, make([]byte, message.HeadSize)), frameOf(f, message.TypeValues, nil)), true)
	s := spec(f)
	c, err := heter.Find(s, model.Options{}, nil)
	must(f, err)
	f.Fuzz(func(t *testing.T, said []byte, lent bool) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		cfg := Config{Ticket: transport.NewTicket(), Version: "1", Addrs: []string{l.Addr().String()}, Trainers: 1, Cut: c, Lent: lent, Timeout: 10 * time.Second}
		go func() {
			nc, err := l.Accept()
			_ = l.Close() // another try is refused at once
			if err != nil {
				return
			}
			k, _, err := transport.NewDoor(8, nil).Knock(nc).Accept(context.Background(), cfg.Ticket, transport.Hello{Version: "1", Purpose: transport.Heter, WorldSize: 1}, nil)
			if err != nil {
				return
			}
			defer k.Close()
			_ = k.WriteEncoded(net.Buffers{said}, time.Second)
			_ = k.CloseWrite(time.Second, io.EOF)
			time.Sleep(20 * time.Millisecond)
		}()
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		client, err := Dial(ctx, cfg)
		if err != nil {
			return
		}
		defer client.Abort(errors.New("the test is over"))
		if lent {
			_ = client.Lend(make([]float32, client.Len())) // it may have failed already
			_ = client.Collect()                           // so that sums are asked for
		}
		_, err = side(t, s, c, 2, client).Backward(batch(s, rand.New(rand.NewPCG(1, 2)), 8), 0, nil)
		if err == nil {
			t.Errorf("%x: a batch has come back", said)
		}
	})
}
