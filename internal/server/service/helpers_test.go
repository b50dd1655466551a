package service

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/server/message"
	"github.com/ringo-ml/ringo/internal/server/service/fake"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/wire"
	"github.com/ringo-ml/ringo/ps/schema"
	"github.com/ringo-ml/ringo/transport"
)

var must, says = fake.Must, fake.Says

func testSchema() schema.Schema { return fake.Schema(100) }

// world is a server in memory with an engine of maps.
type world struct {
	t      testing.TB
	net    fake.Net
	engine *fake.Engine
	server *Server
	ticket transport.Ticket
	ended  chan error
	cancel context.CancelFunc

	mu    sync.Mutex
	lines []string
}

func (w *world) report(line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, line)
}

// reported tells whether a line was reported that has all of the words.
func (w *world) reported(words ...string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
next:
	for _, line := range w.lines {
		for _, word := range words {
			if !strings.Contains(line, word) {
				continue next
			}
		}
		return true
	}
	return false
}

// start makes a world; change may alter both configurations first.
func start(t testing.TB, trainers int, change func(c *Config, e *fake.Config)) *world {
	t.Helper()
	w := &world{t: t, ticket: transport.NewTicket(), ended: make(chan error, 1)}
	cfg := Config{
		Ticket: w.ticket, Version: "1", Job: "j", Settings: setting.Values{"sync": "async", "training.lr": "0.1"}, Servers: 1, Trainers: trainers, Report: w.report,
	}
	ec := fake.Config{Trainers: trainers, LostLeaves: true}
	if change != nil {
		change(&cfg, &ec)
	}
	ec.Sessions = max(1, cfg.Sessions)
	if cfg.Open == nil {
		cfg.Open = func(sc schema.Schema) (Engine, error) {
			w.engine = fake.New(ec, sc)
			return w.engine, nil
		}
	}
	var err error
	w.server, err = New(cfg)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	l := w.net.Listen("server")
	go func() { w.ended <- w.server.Serve(ctx, l) }()
	t.Cleanup(func() { cancel(); w.end() })
	return w
}

// end waits until Serve has returned, once.
func (w *world) end() error {
	err, ok := <-w.ended
	if ok {
		close(w.ended)
	}
	return err
}

// peer is a trainer's bare end of a connection.
type peer struct {
	*message.Conn
	t      testing.TB
	raw    net.Conn
	limits *message.Limits
}

// knock makes a connection and shakes hands.
func (w *world) knock() *peer {
	w.t.Helper()
	nc, err := w.net.Dial(context.Background(), "server")
	must(w.t, err)
	link, _, err := transport.ClientHandshake(context.Background(), nc, w.ticket, transport.Hello{Version: "1", Purpose: transport.Service})
	must(w.t, err)
	w.t.Cleanup(func() { link.Close() })
	limits := &message.Limits{Dims: []int{3, 16}, Arrays: []int{100, 7}, Keys: 1 << 16, Values: 1 << 22}
	return &peer{message.NewConn(link, message.Trainer, limits, time.Minute), w.t, nc, limits}
}

func hello(trainer, trainers int) message.Hello {
	sc := testSchema()
	h := message.Hello{Trainer: trainer, Trainers: trainers, Sessions: 1, Servers: 1, Incarnation: uint64(trainer) + 100, From: 1, Job: "j"}
	b, err := hex.DecodeString(sc.Hash())
	if err != nil {
		panic(err)
	}
	h.Hash = [32]byte(b)
	return h
}

// greets says hello, with a schema if it is asked for, and returns what came in the end.
func (p *peer) greets(h message.Hello) (wire.Type, []byte) {
	p.t.Helper()
	must(p.t, p.WriteFrame(message.TypeHello, h.Append(nil)))
	for {
		t, b := p.next()
		if t != message.TypeNeedSchema {
			return t, b
		}
		js, err := json.Marshal(testSchema())
		must(p.t, err)
		must(p.t, p.WriteFrame(message.TypeSchema, js))
	}
}

// next is the next frame that has no head.
func (p *peer) next() (wire.Type, []byte) {
	p.t.Helper()
	t, _, n, err := p.Next()
	must(p.t, err)
	b, err := p.ReadAll(n)
	must(p.t, err)
	return t, b
}

// failure is the next frame, which must be a failure that says all of the words.
func (p *peer) failure(reason message.Reason, words ...string) {
	p.t.Helper()
	t, b := p.next()
	p.failed(t, b, reason, words...)
}

func (p *peer) failed(t wire.Type, b []byte, reason message.Reason, words ...string) {
	p.t.Helper()
	if t != message.TypeFailure {
		p.t.Fatalf("got %s %q, want a failure", message.Name(t), b)
	}
	f, err := message.ParseFailure(b)
	must(p.t, err)
	if f.Reason != reason {
		p.t.Errorf("got reason %d, want %d: %v", f.Reason, reason, f)
	}
	says(p.t, f, words...)
}

// join connects and is welcome.
func (w *world) join(h message.Hello) (*peer, message.Welcome) {
	w.t.Helper()
	p := w.knock()
	t, b := p.greets(h)
	if t != message.TypeWelcome {
		w.t.Fatalf("got %s %q, want a welcome", message.Name(t), b)
	}
	welcome, err := message.ParseWelcome(b)
	must(w.t, err)
	return p, welcome
}

// frame is a frame with a head.
func frame(t testing.TB, typ wire.Type, h message.Head, body []byte) []byte {
	t.Helper()
	b := append(make([]byte, message.Front), body...)
	must(t, message.PutFront(b, typ, h))
	return b
}

// send sends frames of which each has a head.
func (p *peer) send(typ wire.Type, h message.Head, body []byte) {
	p.t.Helper()
	must(p.t, p.Write(net.Buffers{frame(p.t, typ, h, body)}))
}

// pushes one row of the odd table.
func (p *peer) pushes(seq, step, key uint64, row ...float32) {
	p.t.Helper()
	body := append(append([]byte(nil), bytesview.Bytes([]uint64{key})...), bytesview.Bytes(row)...)
	p.send(message.TypePushRows, message.Head{Number: seq, Step: step, Count: 1}, body)
}

// pulls one row of the odd table.
func (p *peer) pulls(number, step, key uint64) {
	p.t.Helper()
	p.send(message.TypePullRows, message.Head{Number: number, Step: step, Count: 1}, bytesview.Bytes([]uint64{key}))
}

// gets the next frame, which must have this type and number, and returns its body.
func (p *peer) gets(typ wire.Type, number uint64) []byte {
	p.t.Helper()
	t, h, n, err := p.Next()
	must(p.t, err)
	b, err := p.ReadAll(n)
	must(p.t, err)
	if t != typ || h.Number != number {
		p.t.Fatalf("got %s number %d, want %s number %d: %q", message.Name(t), h.Number, message.Name(typ), number, b)
	}
	return b
}

// row gets the answer to a pull of one row.
func (p *peer) row(number uint64, want ...float32) {
	p.t.Helper()
	got := bytesview.As[float32](p.gets(message.TypeRows, number))
	for i := range want {
		if got[i] != want[i] {
			p.t.Fatalf("pull %d: got %v, want %v", number, got, want)
		}
	}
}

func (p *peer) leaves(seq uint64) {
	p.t.Helper()
	p.send(message.TypeLeave, message.Head{Number: seq}, nil)
	p.gets(message.TypeAck, seq)
	must(p.t, p.WriteFrame(message.TypeGoodbye, nil))
}
