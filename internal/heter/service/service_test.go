package service_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/heter"
	"github.com/ringo-ml/ringo/internal/heter/message"
	"github.com/ringo-ml/ringo/internal/heter/service"
	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/wire"
	"github.com/ringo-ml/ringo/transport"
)

// panics is the seed and the rate at which a slope panics.
const panics = 13

// slope is a device whose part is y = w·x of one value, with the sum of outputs as its loss.
type slope struct {
	w, g   []float32
	closed bool
	slow   time.Duration // what a micro-batch takes
}

var theCut = &heter.Cut{Model: "slope", In: []heter.CutTensor{{Name: "x", Shape: []int{1}, Grad: true}}, Out: []int{1}, Values: 1}

func (d *slope) Run(m *heter.MicroBatch) error {
	time.Sleep(d.slow)
	if m.Seed == panics {
		panic("a part of one's own")
	}
	m.Loss, m.Terms = 0, m.N
	for i, x := range m.In[0] {
		m.Out[i] = d.w[0] * x
		m.Loss += m.Out[i] / float32(m.N)
		if !m.Eval {
			m.Grads[0][i] = m.Seed * d.w[0] / float32(m.N)
			d.g[0] += m.Seed * x / float32(m.N)
		}
	}
	return nil
}

func (d *slope) Gradients() []float32 { return d.g }
func (d *slope) Values() []float32    { return d.w }
func (d *slope) State() [][]float32   { return [][]float32{d.w} }
func (d *slope) Reset()               { d.g[0] = 0 }
func (d *slope) Close()               { d.closed = true }
func (d *slope) Source() heter.Start  { return heter.StartSeed }
func (d *slope) Err() error           { return nil }

func (d *slope) Update(rate float64, scale float32) error {
	if rate == panics {
		panic("a rule of one's own")
	}
	d.w[0] -= float32(rate) * scale * d.g[0]
	d.g[0] = 0
	return nil
}

// home is a server that runs, and its end.
type home struct {
	t      *testing.T
	device *slope
	ticket transport.Ticket
	addr   string
	end    chan error
	life   uint64        // as it has said
	others int           // heter-trainers
	served service.Stats // once it has ended
}

func newHome(t *testing.T, trainers int, change func(*service.Config)) *home {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return newHomeAt(t, l, trainers, change)
}

func newHomeAt(t *testing.T, l net.Listener, trainers int, change func(*service.Config)) *home {
	t.Helper()
	leakcheck.Check(t)
	h := &home{t: t, device: &slope{w: []float32{2}, g: make([]float32, 1)}, ticket: transport.NewTicket(), end: make(chan error, 1)}
	cfg := service.Config{
		Ticket: h.ticket, Version: "1", Count: 1, Trainers: trainers,
		Open: func([]byte) (*heter.Cut, heter.Device, error) { return theCut, h.device, nil },
	}
	if change != nil {
		change(&cfg)
	}
	h.others = cfg.Count - 1
	s, err := service.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	h.addr = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	go func() {
		f, err := s.Serve(ctx, l)
		h.served = f
		h.end <- err
	}()
	return h
}

// guest is a trainer that says what it likes.
type guest struct {
	*transport.Link
	h *home
}

func (h *home) guest(hello message.Hello) guest {
	h.t.Helper()
	l, _, err := transport.Dial(context.Background(), h.addr, h.ticket, transport.Hello{Version: "1", Purpose: transport.Heter, Rank: hello.Trainer, WorldSize: hello.Trainers})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = l.Close() })
	g := guest{l, h}
	g.say(message.TypeHello, hello.Append(nil))
	return g
}

// say writes a frame; hear reads the next one that is no heartbeat.
func (g guest) say(t wire.Type, payload []byte) {
	g.h.t.Helper()
	if err := g.WriteFrame(wire.Header{Type: t}, payload, time.Second); err != nil {
		g.h.t.Fatal(err)
	}
}

func (g guest) hear(want wire.Type) []byte {
	g.h.t.Helper()
	for {
		_ = g.SetReadDeadline(time.Now().Add(10 * time.Second))
		f, err := g.ReadHeader()
		if err != nil {
			g.h.t.Fatal(err)
		}
		b := make([]byte, f.Length)
		if _, err := g.ReadPayload(b); err != nil {
			g.h.t.Fatal(err)
		}
		if f.Type == message.TypeHeartbeat {
			continue
		}
		if f.Type != want {
			g.h.t.Fatalf("a %s (%q), want a %s", message.Name(f.Type), b, message.Name(want))
		}
		if w, err := message.ParseWelcome(b); want == message.TypeWelcome && err == nil {
			g.h.life = w.Incarnation
		}
		return b
	}
}

// micro is a micro-batch of some values.
func (g guest) micro(number, step uint64, seed float32, eval bool, x ...float32) {
	g.h.t.Helper()
	m := &heter.MicroBatch{}
	m.Size(theCut, len(x))
	m.Index, m.Seed, m.Eval = int(number), seed, eval
	copy(m.In[0], x)
	l := message.Layout{Cut: theCut}
	b := make([]byte, l.RequestBytes(m.N))
	if err := l.Micro(b, m, number, step); err != nil {
		g.h.t.Fatal(err)
	}
	g.say(message.TypeMicroBatch, b)
}

func (g guest) done(n int, eval bool) (head message.Head, m *heter.MicroBatch) {
	g.h.t.Helper()
	m = &heter.MicroBatch{Eval: eval}
	m.Size(theCut, n)
	b := g.hear(message.TypeDone)
	head, err := message.ParseHead(b)
	if err == nil {
		err = (message.Layout{Cut: theCut}).ParseDone(b, m)
	}
	if err != nil {
		g.h.t.Fatal(err)
	}
	return head, m
}

// A step is that of all trainers: micro-batches add up, evaluations change nothing, the parameters move by the mean over trainers when
// the last one has ended it, and what is asked for the next step waits for that.
func TestStep(t *testing.T) {
	h := newHome(t, 2, nil)
	one, two := h.guest(message.Hello{Trainer: 0, Trainers: 2, Count: 1}), h.guest(message.Hello{Trainer: 1, Trainers: 2, Count: 1})
	for _, g := range []guest{one, two} {
		if w, err := message.ParseWelcome(g.hear(message.TypeWelcome)); err != nil || w.Values != 1 || w.Micros != 8 || w.Samples != 16<<10 || w.Bytes != 64<<20 {
			t.Fatalf("%+v, %v", w, err)
		}
	}
	one.micro(1, 1, 0.5, false, 1, 3)
	if head, m := one.done(2, false); head.Number != 1 || m.Out[1] != 6 || m.Grads[0][0] != 0.5 || m.Loss != 4 {
		t.Errorf("%+v: %+v", head, m)
	}
	one.micro(2, 1, 0, true, 5)
	if _, m := one.done(1, true); m.Out[0] != 10 {
		t.Errorf("evaluated to %v", m.Out)
	}
	one.micro(3, 1, 0.5, false, 4)
	one.done(1, false)
	one.end(message.End{Step: 1, Attempt: 1, Count: 3, Rate: 0.5})
	one.say(message.TypeAsk, message.Ask{Step: 2, Count: 1}.Append(nil))
	two.micro(1, 1, 1, false, 1)
	two.done(1, false)
	two.end(message.End{Step: 1, Attempt: 1, Count: 1, Rate: 0.5})
	if c, err := message.ParseCommit(one.hear(message.TypeCommit)); err != nil || c != 1 {
		t.Errorf("a commit of step %d, %v", c, err)
	}
	one.hear(message.TypeValues)
	one.say(message.TypeGoodbye, nil)
	two.say(message.TypeGoodbye, nil)
	if err := <-h.end; err != nil || !h.device.closed {
		t.Errorf("%v, the device is closed: %t", err, h.device.closed)
	}
	want := 2 - float32(0.5)*0.5*(0.5*2+0.5*4+1)
	if h.device.w[0] != want {
		t.Errorf("w is %v, want %v", h.device.w[0], want)
	}
	if f := h.served; f.MicroBatches != 4 || f.Samples != 5 || f.Steps != 1 || f.Starved == 0 || f.Read == 0 || f.Written == 0 {
		t.Errorf("%+v", f)
	}
}

// Trainers that disagree on the learning rate, or that do not come, end the job by name.
func TestDisagree(t *testing.T) {
	h := newHome(t, 2, nil)
	for i, rate := range []float64{0.5, 0.25} {
		g := h.guest(message.Hello{Trainer: i, Trainers: 2, Count: 1})
		g.hear(message.TypeWelcome)
		g.end(message.End{Step: 1, Attempt: 1, Rate: rate})
	}
	if err := <-h.end; err == nil || !strings.Contains(err.Error(), "ends step 1 at the learning rate ") {
		t.Error(err)
	}
	h = newHome(t, 2, func(c *service.Config) { c.Times = cluster.Times{Join: 50 * time.Millisecond} })
	h.guest(message.Hello{Trainer: 1, Trainers: 2, Count: 1})
	if err := <-h.end; err == nil || !strings.Contains(err.Error(), "have not come within 50ms") {
		t.Error(err)
	}
}

// TestPanicOfTheDevice ends the job with step, micro-batch, trainer and line of a panic in a model or its optimizer.
func TestPanicOfTheDevice(t *testing.T) {
	for want, rate := range map[string]float64{
		"step 1: micro-batch 1 of trainer 0: panic: a part of one's own (in ": 1,
		"step 1: panic: a rule of one's own (in ":                             panics,
	} {
		h := newHome(t, 1, nil)
		g := h.guest(message.Hello{Trainers: 1, Count: 1})
		g.hear(message.TypeWelcome)
		if rate == panics {
			g.micro(1, 1, 1, false, 1)
			g.done(1, false)
			g.end(message.End{Step: 1, Attempt: 1, Count: 1, Rate: rate})
		} else {
			g.micro(1, 1, panics, false, 1)
		}
		if err := <-h.end; err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "service_test.go:") {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// Micro-batches under way have so many bytes at most, unless it is one alone: those of a step that has not begun are under way.
func TestBytes(t *testing.T) {
	h := newHome(t, 2, func(c *service.Config) { c.Bytes = 1 })
	g := h.guest(message.Hello{Trainers: 2, Count: 1})
	g.hear(message.TypeWelcome)
	for number := uint64(1); number <= 20; number++ {
		g.micro(number, 1, 1, false, 1)
		g.done(1, false)
	}
	g.end(message.End{Step: 1, Attempt: 1, Count: 20, Rate: 1})
	g.micro(21, 2, 1, false, 1)
	g.micro(22, 2, 1, false, 1)
	size := wire.HeaderSize + message.Layout{Cut: theCut}.RequestBytes(1)
	want := fmt.Sprintf("trainer 0: malformed: micro-batches of %d bytes under way, the limit is 1", 2*size)
	if text := string(g.hear(message.TypeFailure)); text != want {
		t.Errorf("%q, want %q", text, want)
	}
	_ = g.Close()
	if err := <-h.end; err == nil || !strings.Contains(err.Error(), want) {
		t.Error(err)
	}
}

// A part that cannot be made is told to who asks for it, and no reason to end: another trainer may know better.
func TestNoPart(t *testing.T) {
	tried := 0
	h := newHome(t, 1, func(c *service.Config) {
		open := c.Open
		c.Open = func(about []byte) (*heter.Cut, heter.Device, error) {
			if tried++; tried == 1 {
				return nil, nil, errors.New("no such model")
			}
			return open(about)
		}
	})
	hello := message.Hello{Trainers: 1, Count: 1}
	if text := string(h.guest(hello).hear(message.TypeFailure)); text != "trainer 0: no such model" {
		t.Errorf("%q", text)
	}
	g := h.guest(hello)
	g.hear(message.TypeWelcome)
	g.say(message.TypeGoodbye, nil)
	if err := <-h.end; err != nil {
		t.Error(err)
	}
}

// A trainer that goes before it has its welcome may come again.
func TestGoneBeforeWelcome(t *testing.T) {
	opening, gone := make(chan struct{}), make(chan struct{})
	refused := make(chan string, 8)
	h := newHome(t, 1, func(c *service.Config) {
		open, tried := c.Open, 0
		c.Open = func(about []byte) (*heter.Cut, heter.Device, error) {
			if tried++; tried == 1 {
				close(opening)
				<-gone
			}
			return open(about)
		}
		c.Report = func(line string) { refused <- line }
	})
	hello := message.Hello{Trainers: 1, Count: 1}
	first := h.guest(hello)
	<-opening
	nc, _ := first.Detach()
	_ = nc.(*net.TCPConn).SetLinger(0) // a write to it then fails at once
	_ = nc.Close()
	close(gone)
	if line := <-refused; !strings.Contains(line, "trainer 0: ") {
		t.Error(line)
	}
	g := h.guest(hello)
	g.hear(message.TypeWelcome)
	g.say(message.TypeGoodbye, nil)
	if err := <-h.end; err != nil {
		t.Error(err)
	}
}

// All faults of a configuration are told together.
func TestValidate(t *testing.T) {
	err := service.Config{Index: 2, Count: 2, Micros: -1, Times: cluster.Times{Join: -1}}.Validate()
	for _, want := range []string{"want a ticket", "heter-trainer 2 of 2 for 0 trainers", "2 heter-trainers, and nothing by which they agree", "-1 micro-batches", "join"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
