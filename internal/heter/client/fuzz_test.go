package client

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/heter"
	"github.com/ringo-ml/ringo/internal/heter/message"
	"github.com/ringo-ml/ringo/internal/heter/service"
	"github.com/ringo-ml/ringo/internal/heter/sharedmem"
	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/wire"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/transport"
)

// frameOf is a frame as it travels.
func frameOf(t testing.TB, typ wire.Type, payload []byte) []byte {
	var head [wire.HeaderSize]byte
	must(t, wire.PutHeader(&head, wire.Header{Type: typ, Length: len(payload)}))
	return append(head[:], payload...)
}

// hall is where heter-trainers of fuzz cases are, each for one trainer: their socket, ticket and device are made once, for to make them takes
// longer than a case does.
type hall struct {
	net.Listener
	ticket transport.Ticket
	cut    *heter.Cut
	device lasting
	first  [][]float32 // values of the device
}

// lasting is a device that is used again.
type lasting struct{ *heter.CPU }

func (lasting) Close() {}

func newHall(f *testing.F, s model.Spec, c *heter.Cut) *hall {
	l, err := net.Listen("unix", filepath.Join(f.TempDir(), "s"))
	must(f, err)
	h := &hall{Listener: l, ticket: transport.NewTicket(), cut: c, device: lasting{device(f, s, c, sgd)}}
	f.Cleanup(func() { _ = l.Close(); h.device.CPU.Close() })
	for _, x := range h.device.State() {
		h.first = append(h.first, slices.Clone(x))
	}
	return h
}

// serve begins a heter-trainer, and returns its trainer's connection and what gets its end.
func (h *hall) serve(ctx context.Context, t *testing.T, lent bool) (*transport.Link, <-chan error) {
	for i, x := range h.device.State() {
		copy(x, h.first[i])
	}
	clear(h.device.Gradients())
	s, err := service.New(service.Config{
		Ticket: h.ticket, Version: "1", Count: 1, Trainers: 1, Stateless: lent,
		Open: func([]byte) (*heter.Cut, heter.Device, error) { return h.cut, h.device, nil },
	})
	must(t, err)
	mine, err := net.Dial("unix", h.Addr().String())
	must(t, err)
	theirs, err := h.Accept()
	must(t, err)
	comes := &once{Listener: h.Listener, conns: make(chan net.Conn, 1)}
	comes.closed, comes.stop = context.WithCancel(ctx)
	comes.conns <- theirs
	end := make(chan error, 1)
	go func() {
		_, err := s.Serve(ctx, comes)
		end <- err
	}()
	k, _, err := transport.ClientHandshake(ctx, mine, h.ticket, heterHello)
	must(t, err)
	return k, end
}

// once is a listener that one connection comes to.
type once struct {
	net.Listener
	conns  chan net.Conn
	closed context.Context
	stop   context.CancelFunc
}

func (o *once) Close() error { o.stop(); return nil }

func (o *once) Accept() (net.Conn, error) {
	select {
	case c := <-o.conns:
		return c, nil
	case <-o.closed.Done():
		return nil, net.ErrClosed
	}
}

// Whatever a trainer with the ticket says, a heter-trainer ends by itself: with an error that names the trainer, or in good order. Who has not been
// greeted yet ends alone. With -fuzzminimizetime 1x: else the go command tries for a minute to shorten each input that reaches something new.
func FuzzTrainer(f *testing.F) {
	s := specOf(f, 1, 1) // what is said is short, so that most of it decides what happens
	c, err := heter.Find(s, model.Options{}, nil)
	must(f, err)
	lent := c.Slots[len(c.Slots)-1].Offset + c.Slots[len(c.Slots)-1].Padded // values
	l := message.Layout{Cut: c}
	m := &heter.MicroBatch{}
	m.Size(c, 2)
	micro := make([]byte, l.RequestBytes(2))
	must(f, l.Micro(micro, m, 1, 1))
	end := frameOf(f, message.TypeEnd, message.End{Step: 1, Attempt: 1, Count: 1, Rate: 0.1}.Append(nil))
	ask := frameOf(f, message.TypeAsk, message.Ask{Step: 2, Count: 3}.Append(nil))
	bye := frameOf(f, message.TypeGoodbye, nil)
	all := append(frameOf(f, message.TypeMicroBatch, micro), end...)
	f.Add(append(append(all, ask...), bye...), false, true)
	f.Add(bye, false, true)
	put := frameOf(f, message.TypePut, append(message.Ask{Step: 1, Count: lent}.Append(nil), make([]byte, 4*lent)...))
	for _, slots := range [][2]int{{0, 0}, {1, 7}, {2, 0}, {0, 8}} {
		placed := message.SharedMicroBatch{Head: message.Head{Number: 1, Step: 1, Samples: 2, Seed: 1}, RequestSlot: slots[0], ResultSlot: slots[1]}.Append(nil)
		one := append(append(frameOf(f, message.TypePlaced, placed), end...), bye...)
		f.Add(one, false, true)
		f.Add(append(slices.Clone(put), one...), true, true)
	}
	f.Add(end, false, true)
	f.Add(frameOf(f, message.TypeEnd, message.End{Step: 1, Attempt: 2, Open: true, Members: []uint64{0}}.Append(nil)), false, true)
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), false, true)
	f.Add(append(slices.Clone(put), put...), true, true)
	f.Add(frameOf(f, message.TypePut, message.Ask{Step: 1, Lo: 1, Count: 1}.Append(nil)), true, true)
	f.Add(append(slices.Clone(end), bye...), true, true)
	f.Add(slices.Concat(frameOf(f, message.TypePut, nil), frameOf(f, message.TypeMicroBatch, micro), end, bye), true, true)
	hello := frameOf(f, message.TypeHello, message.Hello{Trainers: 1, Count: 1, Hash: c.Hash}.Append(nil))
	for _, first := range [][]byte{hello, end, frameOf(f, message.TypeWhere, []byte("a meeting"))} {
		f.Add(append(slices.Clone(first), bye...), false, false)
	}
	h := newHall(f, s, c)
	mine, err := sharedmem.New(2, message.BodyAt+l.RequestBytes(2))
	must(f, err)
	f.Cleanup(mine.Close)
	for i := range mine.Slots() { // of which the second one has labels that there are not
		b, err := mine.Slot(i, message.BodyAt+l.RequestBytes(2))
		must(f, err)
		copy(b[message.BodyAt-message.HeadSize:], micro)
		b[len(b)-1-message.HeadSize] = byte(7 * i)
	}
	f.Fuzz(func(t *testing.T, said []byte, lent, greeted bool) {
		leakcheck.Check(t)
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		k, end := h.serve(ctx, t, lent)
		defer k.Close()
		if greeted {
			w := greet(t, k, c, lent)
			v, err := sharedmem.Exchange(ctx, sharedmem.Config{Ticket: h.ticket, Version: "1", Trainers: 1}, 0, w.ShmSocket, w.Key, func() (*sharedmem.Region, error) { return mine, nil })
			must(t, err)
			defer v.Close()
		}
		_ = k.WriteEncoded(net.Buffers{said}, time.Second) // it may end the connection before all is read
		_ = k.CloseWrite(time.Second, io.EOF)
		if !greeted { // it ends the connection, and may wait for its trainer
			nc, _ := k.Detach()
			_, _ = io.Copy(io.Discard, nc)
			cancel()
		}
		if err := <-end; errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%x: it goes on", said)
		}
	})
}

// Whatever a heter-trainer with the ticket says, a trainer ends by itself.
func FuzzHeterTrainer(f *testing.F) {
	welcome := frameOf(f, message.TypeWelcome, message.Welcome{Micros: 8, Samples: 100, Bytes: 1 << 20, Values: 9, State: 9, Incarnation: 5, Heartbeat: time.Second, Silence: 2 * time.Second}.Append(nil))
	after := func(more ...[]byte) (all []byte) {
		all = append(all, welcome...)
		for _, b := range more {
			all = append(all, b...)
		}
		return all
	}
	f.Add(after(), false)
	f.Add(after(frameOf(f, message.TypeCommit, message.Commit(1).Append(nil))), false)
	f.Add(after(frameOf(f, message.TypeAgain, message.RetryEnd{Step: 1, Attempt: 2, Lost: []uint64{5}}.Append(nil))), false)
	f.Add(after(frameOf(f, message.TypeAgain, message.RetryEnd{Step: 1, Attempt: 2, Lost: []uint64{7}}.Append(nil))), false)
	f.Add(after(frameOf(f, message.TypeDone, make([]byte, message.HeadSize))), false)
	f.Add(after(frameOf(f, message.TypeSharedResult, make([]byte, message.HeadSize))), false)
	f.Add(after(frameOf(f, message.TypeValues, message.Ask{Step: 1, Count: 1}.Append(nil)), frameOf(f, message.TypeFailure, []byte("no"))), false)
	f.Add(frameOf(f, message.TypeFailure, []byte("no")), false)
	f.Add(after(frameOf(f, message.TypeValues, append(message.Ask{Step: 1, Count: 9}.Append(nil), make([]byte, 36)...))), true)
	f.Add(after(frameOf(f, message.TypeDone, make([]byte, message.HeadSize)), frameOf(f, message.TypeCommit, message.Commit(1).Append(nil))), true)
	f.Add(after(frameOf(f, message.TypeDone, make([]byte, message.HeadSize)), frameOf(f, message.TypeValues, nil)), true)
	s := specOf(f, 1, 1)
	c, err := heter.Find(s, model.Options{}, nil)
	must(f, err)
	f.Fuzz(func(t *testing.T, said []byte, lent bool) {
		leakcheck.Check(t)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		ticket := transport.NewTicket()
		cfg := Config{Ticket: ticket, Version: "1", Addrs: []string{l.Addr().String()}, Trainers: 1, Cut: c, Lent: lent, Timeout: 10 * time.Second}
		ctx, cancel := context.WithCancel(context.Background()) // once it has closed its end the trainer looks for another one in vain
		defer cancel()
		go func() {
			defer cancel()
			say(said, l, ticket)
		}()
		client, err := Dial(ctx, cfg)
		if err != nil {
			return
		}
		defer client.Abort(errors.New("the test is over"))
		if lent {
			_ = client.Lend(make([]float32, client.Len())) // it may have failed already
			_ = client.RequestGradients()                  // so that sums are asked for
		}
		_, err = side(t, s, c, 2, client).Backward(batch(s, rand.New(rand.NewPCG(1, 2)), 8), 0, nil)
		if err == nil {
			t.Errorf("%x: a batch has come back", said)
		}
	})
}

// say is a heter-trainer's: it says something to the first who comes, and stays until that one has closed the connection.
func say(said []byte, l net.Listener, ticket transport.Ticket) {
	nc, err := l.Accept()
	_ = l.Close() // another try is refused at once
	if err != nil {
		return
	}
	k, _, err := transport.ServerHandshake(context.Background(), nc, ticket, heterHello, nil)
	if err != nil {
		return
	}
	defer k.Close()
	_ = k.WriteEncoded(net.Buffers{said}, time.Second)
	_ = k.CloseWrite(time.Second, io.EOF)
	_, _ = io.Copy(io.Discard, nc)
}
