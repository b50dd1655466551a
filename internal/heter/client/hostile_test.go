package client

import (
	"context"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/heter"
	"github.com/ringo-ml/ringo/internal/heter/message"
	"github.com/ringo-ml/ringo/internal/heter/service"
	"github.com/ringo-ml/ringo/internal/heter/sharedmem"
	"github.com/ringo-ml/ringo/internal/wire"
	"github.com/ringo-ml/ringo/transport"
)

// A trainer that breaks the protocol is told how, and ends the job by name: oversized micro-batches, those out of turn, for another
// step or uncounted, more than there are credits for, labels that there are not, and frames that are none.
func TestHostile(t *testing.T) {
	frame := func(r *rig, n int, number, step uint64, label int32) []byte {
		l := message.Layout{Cut: r.cut}
		m := &heter.MicroBatch{}
		m.Size(r.cut, n)
		for _, x := range m.In {
			clear(x)
		}
		clear(m.Labels)
		m.Labels[0], m.Seed = label, 1
		b := make([]byte, l.RequestBytes(n))
		must(r.t, l.Micro(b, m, number, step))
		return b
	}
	for want, attack := range map[string]func(r *rig, l *transport.Link) error{
		"one of 16384 samples, the most, has": func(r *rig, l *transport.Link) error {
			return l.WriteFrame(wire.Header{Type: message.TypeMicroBatch}, frame(r, 16385, 1, 1, 0), time.Second)
		},
		"of 3 samples has": func(r *rig, l *transport.Link) error {
			return l.WriteFrame(wire.Header{Type: message.TypeMicroBatch}, append(frame(r, 3, 1, 1, 0), 0), time.Second)
		},
		"micro-batch 2 where 1 must come": func(r *rig, l *transport.Link) error {
			return l.WriteFrame(wire.Header{Type: message.TypeMicroBatch}, frame(r, 3, 2, 1, 0), time.Second)
		},
		"is at step 1 and sends for step 2": func(r *rig, l *transport.Link) error {
			return l.WriteFrame(wire.Header{Type: message.TypeMicroBatch}, frame(r, 3, 1, 2, 0), time.Second)
		},
		"the end of step 1 after 4 micro-batches, 0 have come": func(_ *rig, l *transport.Link) error {
			return l.WriteFrame(wire.Header{Type: message.TypeEnd}, message.End{Step: 1, Attempt: 1, Count: 4}.Append(nil), time.Second)
		},
		"ends step 3 in attempt 1, it has ended 0": func(_ *rig, l *transport.Link) error {
			return l.WriteFrame(wire.Header{Type: message.TypeEnd}, message.End{Step: 3, Attempt: 1}.Append(nil), time.Second)
		},
		"micro-batch 1: sample 0 has label 5, and there are 2 classes": func(r *rig, l *transport.Link) error {
			return l.WriteFrame(wire.Header{Type: message.TypeMicroBatch}, frame(r, 3, 1, 1, 5), time.Second)
		},
		"a trainer does not send done frames": func(_ *rig, l *transport.Link) error {
			return l.WriteFrame(wire.Header{Type: message.TypeDone}, nil, time.Second)
		},
		"an ask for 5000 values from 0 on": func(_ *rig, l *transport.Link) error {
			return l.WriteFrame(wire.Header{Type: message.TypeAsk}, message.Ask{Step: 1, Count: 5000}.Append(nil), time.Second)
		},
	} {
		t.Run(want, func(t *testing.T) {
			r := newRig(t, 1, 1, nil)
			l, _, err := transport.Dial(context.Background(), r.config.Addrs[0], r.config.Ticket, heterHello)
			must(t, err)
			defer l.Close()
			hello := message.Hello{Trainers: 1, Count: 1, Hash: r.cut.Hash}
			must(t, l.WriteFrame(wire.Header{Type: message.TypeHello}, hello.Append(nil), time.Second))
			must(t, attack(r, l))
			must(t, l.CloseWrite(time.Second, transport.ErrClosed)) // it has nothing more to say
			if err := <-r.ends[0]; err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "heter-trainer 0: ") || !strings.Contains(err.Error(), "trainer 0") {
				t.Errorf("%v, want %q", err, want)
			}
		})
	}
}

// greeted is a trainer that says what it likes, after its hello and the welcome to it.
func (r *rig) greeted() (*transport.Link, message.Welcome) {
	r.t.Helper()
	r.hostile.Store(true)
	l, _, err := transport.Dial(context.Background(), r.config.Addrs[0], r.config.Ticket, heterHello)
	must(r.t, err)
	r.t.Cleanup(func() { _ = l.Close() })
	return l, greet(r.t, l, r.cut, r.config.Lent)
}

// heterHello is what the only trainer says to a heter-trainer, or that to it.
var heterHello = transport.Hello{Version: "1", Purpose: transport.Heter, WorldSize: 1}

// greet says hello, and returns the welcome to it.
func greet(t testing.TB, l *transport.Link, c *heter.Cut, lent bool) message.Welcome {
	t.Helper()
	must(t, l.WriteFrame(wire.Header{Type: message.TypeHello}, message.Hello{Trainers: 1, Count: 1, Stateless: lent, Hash: c.Hash}.Append(nil), time.Second))
	h, err := l.ReadHeader()
	must(t, err)
	b := make([]byte, h.Length)
	_, err = l.ReadPayload(b)
	must(t, err)
	w, err := message.ParseWelcome(b)
	must(t, err)
	return w
}

// desk is the heter-trainer's of a rig.
func (r *rig) desk() sharedmem.Config {
	return sharedmem.Config{Ticket: r.config.Ticket, Version: "1", Trainers: 1}
}

// A trainer that says of shared memory what is not so ends the job by name, too: slots that there are not, of it or of results, more samples than a slot or the
// heter-trainer has, labels that there are not, and all that without memory.
func TestHostileMemory(t *testing.T) {
	for want, attack := range map[string]message.SharedMicroBatch{
		"":                        {Head: message.Head{Number: 1, Step: 1, Samples: 2, Seed: 1}},
		"and no memory is shared": {Head: message.Head{Number: 1, Step: 1, Samples: 2}},
		"of slot 5 of shared memory: it has 2 slots":                {Head: message.Head{Number: 1, Step: 1, Samples: 2}, RequestSlot: 5},
		"of slot 8 of shared memory: it has 8 slots":                {Head: message.Head{Number: 1, Step: 1, Samples: 2}, ResultSlot: 8},
		"of slot 4294967295 of shared memory: it has 2 slots":       {Head: message.Head{Number: 1, Step: 1, Samples: 2}, RequestSlot: 1<<32 - 1},
		"bytes of slot 0 of shared memory: it has 2 slots of":       {Head: message.Head{Number: 1, Step: 1, Samples: 16384}},
		"has 16385 samples, the limit is 16384":                     {Head: message.Head{Number: 1, Step: 1, Samples: 16385}},
		"micro-batch 3 where 1 must come":                           {Head: message.Head{Number: 3, Step: 1, Samples: 2}},
		"is at step 1 and sends for step 4":                         {Head: message.Head{Number: 1, Step: 4, Samples: 2}},
		"micro-batch 1: sample 0 has label 9, and there are 2 clas": {Head: message.Head{Number: 1, Step: 1, Samples: 2}, RequestSlot: 1},
	} {
		t.Run(want, func(t *testing.T) {
			r := newRig(t, 1, 1, nil)
			l, w := r.greeted()
			if want != "and no memory is shared" {
				lay := message.Layout{Cut: r.cut}
				mine, err := sharedmem.New(2, message.BodyAt+lay.RequestBytes(2))
				must(t, err)
				defer mine.Close()
				for i, label := range []int32{0, 9} {
					m := &heter.MicroBatch{}
					m.Size(r.cut, 2)
					clear(m.In[0])
					m.Labels[0], m.Labels[1] = label, 0
					b, err := mine.Slot(i, message.BodyAt+lay.RequestBytes(2))
					must(t, err)
					must(t, lay.Micro(b[message.BodyAt-message.HeadSize:][:lay.RequestBytes(2)], m, 1, 1))
				}
				v, err := sharedmem.Exchange(context.Background(), r.desk(), 0, w.ShmSocket, w.Key, func() (*sharedmem.Region, error) { return mine, nil })
				must(t, err)
				defer v.Close()
			}
			must(t, l.WriteFrame(wire.Header{Type: message.TypePlaced}, attack.Append(nil), time.Second))
			if want == "" {
				must(t, l.WriteFrame(wire.Header{Type: message.TypeGoodbye}, nil, time.Second))
			}
			must(t, l.CloseWrite(time.Second, transport.ErrClosed))
			err := <-r.ends[0]
			if want == "" {
				must(t, err)
			} else if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "heter-trainer 0: trainer 0") {
				t.Errorf("%v, want %q", err, want)
			}
		})
	}
}

// A heter-trainer that shares memory and says of it what is not so is lost by name: results of micro-batches that are not there, too little memory for
// results, and results by the link that were wanted in memory.
func TestHostileResults(t *testing.T) {
	for want, c := range map[string]struct {
		size   int
		typ    wire.Type
		number uint64
		n      int
	}{
		"of slot 0 of shared memory: it has 8 slots of": {1, message.TypeSharedResult, 1, 1000},
		"the results of micro-batch 9, which is not un": {1 << 20, message.TypeSharedResult, 9, 1000},
		"the results of micro-batch 1, which is not un": {1 << 20, message.TypeDone, 1, 1000},
		"are of 10 samples and 10 terms of a loss, wan": {1 << 20, message.TypeSharedResult, 1, 10},
	} {
		t.Run(want, func(t *testing.T) {
			r := newRig(t, 1, 0, nil)
			theirs := make(chan *sharedmem.View, 1)
			mine, err := sharedmem.New(8, c.size)
			must(t, err)
			defer mine.Close()
			desk, err := sharedmem.Open(context.Background(), r.desk())
			must(t, err)
			defer desk.Close()
			key := desk.Register(0, func(v *sharedmem.View) (*sharedmem.Region, error) { theirs <- v; return mine, nil })
			welcome := message.Welcome{Micros: 8, Samples: 1000, Bytes: 1 << 20, Values: 9, State: 9, Incarnation: 5, Heartbeat: time.Second, Silence: 2 * time.Second, ShmSocket: desk.Name(), Key: key}
			head := message.Head{Number: c.number, Samples: c.n, Terms: c.n}
			l, err := net.Listen("tcp", "127.0.0.1:0")
			must(t, err)
			defer l.Close()
			r.config.Addrs = []string{l.Addr().String()}
			go answer(r, l, welcome, c.typ, head)
			client := r.dial(0)
			defer (<-theirs).Close()
			_, err = side(t, r.spec, r.cut, 1, client).Backward(batch(r.spec, rand.New(rand.NewPCG(1, 2)), 1000), 0, nil)
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "heter-trainer 0") {
				t.Errorf("%v, want %q", err, want)
			}
		})
	}
}

// answer is a heter-trainer that welcomes one trainer, and answers its first micro-batch.
func answer(r *rig, l net.Listener, w message.Welcome, typ wire.Type, h message.Head) {
	nc, err := l.Accept()
	if err != nil {
		return
	}
	k, _, err := transport.NewDoor(8, nil).Admit(nc).Accept(context.Background(), r.config.Ticket, heterHello, nil)
	if err != nil {
		return
	}
	defer k.Close()
	hear := func() wire.Type {
		f, err := k.ReadHeader()
		if err == nil {
			_, err = k.ReadPayload(make([]byte, f.Length))
		}
		if err != nil {
			return 0
		}
		return f.Type
	}
	hear()
	_ = k.WriteFrame(wire.Header{Type: message.TypeWelcome}, w.Append(nil), time.Second)
	for t := hear(); t != message.TypePlaced; t = hear() {
		if t == 0 {
			return
		}
	}
	b := make([]byte, message.HeadSize)
	h.Put(b)
	if typ == message.TypeDone {
		b = append(b, make([]byte, message.Layout{Cut: r.cut}.ResultBytes(h.Samples, false)-len(b))...)
	}
	_ = k.WriteFrame(wire.Header{Type: typ}, b, time.Second)
	hear()
}

// Where there is no memory any more micro-batches go by the link, which is said once.
func TestMemoryEnds(t *testing.T) {
	r := newRig(t, 1, 1, func(c *service.Config) { c.LinkOnly = false })
	var lines []string
	r.config.Report = func(line string) { lines = append(lines, line) }
	want, _ := r.oracle()
	c := r.dial(0)
	tr := side(t, r.spec, r.cut, 1, c)
	for i, b := range r.batches(0) {
		if i == 2 {
			c.mu.Lock()
			c.frames.memory.Close()
			c.frames.slots = []int{5, 6} // for which there is no room yet
			c.mu.Unlock()
		}
		pass, err := tr.Backward(b, 0, func(int) {})
		must(t, err)
		if got := pass.Loss.Mean.Data[0]; got != want[0][i] {
			t.Errorf("step %d: loss %v, want %v", i+1, got, want[0][i])
		}
		must(t, tr.End(rate))
	}
	must(t, c.Leave())
	must(t, <-r.ends[0])
	if len(lines) != 1 || !strings.Contains(lines[0], "micro-batches go over links, no longer through memory that heter-trainers of this host have, too: ") {
		t.Errorf("%q", lines)
	}
}
