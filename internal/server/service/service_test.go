package service

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/server/message"
	"github.com/ringo-ml/ringo/internal/server/rows"
	"github.com/ringo-ml/ringo/internal/server/service/fake"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/wire"
	"github.com/ringo-ml/ringo/ps/schema"
	"github.com/ringo-ml/ringo/transport"
)

// A short life: a trainer comes, brings the schema, sets, pushes, pulls in every code,
// clocks and leaves, and the server ends.
func TestServe(t *testing.T) {
	leakcheck.Check(t)
	w := start(t, 1, nil)
	p, welcome := w.join(hello(0, 1))
	if want := (message.Welcome{Keys: 32 << 10, Values: 512 << 10, Pulls: 64, Heartbeat: time.Second, Silence: 10 * time.Second}); welcome != want {
		t.Errorf("got %+v, want %+v", welcome, want)
	}
	p.pulls(1, 1, 7)
	p.row(1, 0, 0, 0)
	p.pushes(1, 1, 7, 1, 2, 3)
	p.gets(message.TypeAck, 1)
	p.pulls(2, 1, 7)
	p.row(2, 1, 2, 3)
	p.send(message.TypeSetDense, message.Head{Number: 2, Count: 7, Table: 1}, bytesview.Bytes([]float32{1, 2, 3, 4, 5, 6, 7}))
	p.gets(message.TypeAck, 2)
	for i, code := range []message.Code{message.FP32, message.FP16, message.BF16, message.Int8} {
		grad := make([]byte, code.Size(2))
		must(t, code.Encode(grad, []float32{127, -127}))
		number := uint64(3 + i)
		p.send(message.TypePushDense, message.Head{Number: number, Step: 1, Count: 2, Table: 1, At: 3, Code: code}, grad)
		p.gets(message.TypeAck, number)
		p.send(message.TypePullDense, message.Head{Number: number, Count: 2, Table: 1, At: 3, Code: code}, nil)
		got := make([]float32, 2)
		must(t, code.Decode(got, p.gets(message.TypeValues, number)))
		want := []float32{4 + 127*float32(i+1), 5 - 127*float32(i+1)}
		for j := range want {
			if d := got[j] - want[j]; d < -4 || d > 4 { // a step of int8
				t.Errorf("%v: got %v, want %v", code, got, want)
			}
		}
	}
	p.send(message.TypeClock, message.Head{Number: 7, Step: 1, At: 0x3ff0000000000000}, nil)
	p.gets(message.TypeAck, 7)
	p.leaves(8)
	if err := w.end(); err != nil {
		t.Error(err)
	}
	if rates := w.engine.Rates(); !slices.Equal(rates, []float64{1}) {
		t.Errorf("rates %v", rates)
	}
	f := w.server.Stats()
	if f.Connections != 1 || f.Pulls != 6 || f.Changes != 8 || f.RowsPulled != 2 || f.RowsPushed != 1 || f.BytesRead == 0 || f.BytesWritten == 0 {
		t.Errorf("%+v", f)
	}
	if w.reported("has connected") {
		t.Error("that it came as it should is news")
	}
	if w.reported("has ended") {
		t.Error("that it left in good order is news")
	}
}

// Who does not belong here is told why, and nobody else notices.
func TestRefusals(t *testing.T) {
	leakcheck.Check(t)
	w := start(t, 2, nil)
	good, _ := w.join(hello(0, 2))
	for says, change := range map[string]func(h *message.Hello){
		`of job "k", this server is of "j"`:                   func(h *message.Hello) { h.Job = "k" },
		"sync is async on server 0 and bsp on trainer 1":      func(h *message.Hello) { h.Settings = setting.Values{"sync": "bsp"} },
		"training.lr is 0.1 on server 0 and 0.2 on trainer 1": func(h *message.Hello) { h.Settings = setting.Values{"training.lr": "0.2"} },
		"takes this for server 1 of 2":                        func(h *message.Hello) { h.Server, h.Servers = 1, 2 },
		"one of 3 with 1 sessions each":                       func(h *message.Hello) { h.Trainers = 3 },
		"this server waits for 2 with 1":                      func(h *message.Hello) { h.Sessions = 2 },
		"…, it said 0500000000000000…":                        func(h *message.Hello) { h.Hash = [32]byte{5} },
		"the schema of trainer 1 has the hash ":               func(h *message.Hello) { h.Hash[31]++ },
		"changes 1 to 4 were acknowledged and a":              func(h *message.Hello) { h.From = 5 },
	} {
		h := hello(1, 2)
		change(&h)
		p := w.knock()
		typ, b := p.greets(h)
		reason := message.ReasonMismatch
		if h.From > 1 {
			reason = message.ReasonFailed
		}
		if h.Settings != nil {
			reason = message.ReasonSettings
		}
		p.failed(typ, b, reason, "server 0", says)
	}
	other := testSchema()
	other.Sparse[1].Dim = 17
	js, err := json.Marshal(other)
	must(t, err)
	h := hello(1, 2)
	_, err = hex.Decode(h.Hash[:], []byte(other.Hash()))
	must(t, err)
	p := w.knock()
	must(t, p.WriteFrame(message.TypeHello, h.Append(nil)))
	if typ, _ := p.next(); typ != message.TypeNeedSchema {
		t.Errorf("a %s", message.Name(typ))
	}
	must(t, p.WriteFrame(message.TypeSchema, js))
	p.failure(message.ReasonMismatch, "trainer 1 has other tables than trainer 0: table 1 is even of rows of 17 weights, ", " there, and even of rows of 16 weights, ", " on trainer 0: all ranks must build the same model")
	geo := start(t, 1, func(c *Config, _ *fake.Config) { c.Settings = setting.Values{message.PathSync: message.SyncGeo} })
	typ, b := geo.knock().greets(hello(0, 1))
	geo.knock().failed(typ, b, message.ReasonMismatch, "trainer 0 has not said that it pushes moves", "mode bsp, async or ssp")
	h = hello(0, 1)
	h.Settings = setting.Values{message.PathSync: message.SyncGeo}
	geo.join(h)
	p = w.knock()
	old := hello(1, 2).Append(nil)
	old[0] = message.Protocol + 1
	must(t, p.WriteFrame(message.TypeHello, old))
	p.failure(message.ReasonProtocol, "another version of the protocol")
	p = w.knock()
	must(t, p.WriteFrame(message.TypeSchema, nil))
	p.failure(message.ReasonProtocol, "a schema in place of the hello")
	p = w.knock()
	must(t, p.WriteFrame(message.TypeGoodbye, nil))
	p.failure(message.ReasonProtocol, "a goodbye in place of the hello")
	good.pulls(1, 1, 1)
	good.row(1, 0, 0, 0)
}

// Those that do not hold the ticket, or are of another version, or look for something
// else come no further than the door.
func TestStrangers(t *testing.T) {
	leakcheck.Check(t)
	w := start(t, 1, nil)
	good := transport.Hello{Version: "1", Purpose: transport.Service}
	for _, c := range []struct {
		ticket transport.Ticket
		change func(h *transport.Hello)
		want   error
	}{
		{transport.NewTicket(), func(*transport.Hello) {}, transport.ErrTicket},
		{w.ticket, func(h *transport.Hello) { h.Version = "2" }, transport.ErrVersion},
		{w.ticket, func(h *transport.Hello) { h.Purpose = transport.MeshLink }, transport.ErrRefused},
	} {
		h := good
		c.change(&h)
		nc, err := w.net.Dial(context.Background(), "server")
		must(t, err)
		if _, _, err := transport.ClientHandshake(context.Background(), nc, c.ticket, h); !errors.Is(err, c.want) {
			t.Errorf("got %v, want %v", err, c.want)
		}
	}
	if w.server.Stats().Connections != 0 {
		t.Errorf("%+v", w.server.Stats())
	}
}

// A schema that a trainer brings must be one, and that of its hello.
func TestWrongSchemas(t *testing.T) {
	leakcheck.Check(t)
	w := start(t, 1, nil)
	for says, js := range map[string]string{
		"the schema of trainer 0":      "{",
		"nothing to serve":             "{}",
		"of trainer 0 has the hash ":   `{"dense":[{"name":"x","len":1,"rule":{"name":"sgd","lr":1}}]}`,
		"cannot unmarshal string into": `{"dense":"all"}`,
	} {
		p := w.knock()
		h := hello(0, 1)
		must(t, p.WriteFrame(message.TypeHello, h.Append(nil)))
		if typ, _ := p.next(); typ != message.TypeNeedSchema {
			t.Fatalf("got %s", message.Name(typ))
		}
		must(t, p.WriteFrame(message.TypeSchema, []byte(js)))
		p.failure(message.ReasonMismatch, says)
	}
	if w.server.Health().State != "waiting" {
		t.Errorf("%+v", w.server.Health())
	}
	p, _ := w.join(hello(0, 1)) // no harm was done
	p.leaves(1)
	must(t, w.end())
}

// A server that cannot open its tables ends, and tells who waits.
func TestOpenFails(t *testing.T) {
	leakcheck.Check(t)
	w := start(t, 1, func(c *Config, _ *fake.Config) {
		c.Open = func(schema.Schema) (Engine, error) { return nil, errors.New("the disk is on fire") }
	})
	p := w.knock()
	typ, b := p.greets(hello(0, 1))
	p.failed(typ, b, message.ReasonFailed, "opening the tables: the disk is on fire")
	says(t, w.end(), "ps: server 0: opening the tables", "on fire")

	sc := testSchema()
	cfg := w.server.cfg
	cfg.Schema = &sc
	s, err := New(cfg)
	must(t, err)
	says(t, s.Serve(context.Background(), w.net.Listen("another")), "on fire")
	says(t, s.Serve(context.Background(), w.net.Listen("another")), "has served already")
}

// A pull of a step that others have not come to waits, and what comes behind it is
// answered first.
func TestParkedPulls(t *testing.T) {
	leakcheck.Check(t)
	prefetched := atomic.Int64{}
	w := start(t, 2, func(c *Config, _ *fake.Config) {
		c.Open = func(sc schema.Schema) (Engine, error) {
			return &prefetcher{fake.New(fake.Config{Trainers: 2, Bounded: true}, sc), &prefetched}, nil
		}
	})
	a, _ := w.join(hello(0, 2))
	b, _ := w.join(hello(1, 2))
	a.pulls(1, 2, 5) // waits for step 1 of both
	a.pulls(2, 3, 5) // and of step 2
	a.pulls(3, 1, 5)
	a.row(3, 0, 0, 0)
	a.pushes(1, 1, 5, 1, 1, 1)
	a.gets(message.TypeAck, 1)
	a.send(message.TypeClock, message.Head{Number: 2, Step: 1}, nil)
	a.gets(message.TypeAck, 2)
	b.pushes(1, 1, 5, 1, 2, 3)
	b.gets(message.TypeAck, 1)
	b.send(message.TypeClock, message.Head{Number: 2, Step: 1}, nil)
	b.gets(message.TypeAck, 2)
	a.row(1, 2, 3, 4)
	for _, p := range []*peer{a, b} {
		p.send(message.TypeClock, message.Head{Number: 3, Step: 2}, nil)
	}
	b.gets(message.TypeAck, 3)
	first, h, n, err := a.Next() // the answer and the acknowledgement, in any order
	must(t, err)
	_, err = a.ReadAll(n)
	must(t, err)
	second, h2, n, err := a.Next()
	must(t, err)
	_, err = a.ReadAll(n)
	must(t, err)
	if !(first == message.TypeAck && h.Number == 3 && second == message.TypeRows && h2.Number == 2) &&
		!(second == message.TypeAck && h2.Number == 3 && first == message.TypeRows && h.Number == 2) {
		t.Errorf("%s %d, %s %d", message.Name(first), h.Number, message.Name(second), h2.Number)
	}
	if told := max(h.At, h2.At); told != 2 { // the acknowledgement has 0
		t.Errorf("the rows have all pushes up to step %d, want 2", told)
	}
	if f := w.server.Stats(); f.Parked != 2 || f.Pulls != 3 {
		t.Errorf("%+v", f)
	}
	if n := prefetched.Load(); n != 2 { // the rows of those that waited
		t.Errorf("%d keys prefetched", n)
	}
}

// prefetcher is an engine that counts keys of which it is told ahead.
type prefetcher struct {
	*fake.Engine
	keys *atomic.Int64
}

func (p *prefetcher) Prefetch(_ context.Context, _ int, keys []uint64) { p.keys.Add(int64(len(keys))) }

// meeting is an engine whose pulls of key 2 wait for each other, two at a time.
type meeting struct {
	*fake.Engine
	met chan struct{}
}

func (m *meeting) PullRows(id rows.PullID, table int, keys []uint64, dst []float32) error {
	if keys[0] == 2 {
		select {
		case m.met <- struct{}{}:
		case <-m.met:
		}
	}
	return m.Engine.PullRows(id, table, keys, dst)
}

// Where several pulls are under way two are gathered at once, and both before the
// change that comes behind them is applied.
func TestPullsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, 1, func(c *Config, e *fake.Config) {
			c.Open = func(sc schema.Schema) (Engine, error) {
				return &meeting{fake.New(fake.Config{Trainers: 1}, sc), make(chan struct{})}, nil
			}
		})
		p, _ := w.join(hello(0, 1))
		synctest.Wait()
		p.pulls(1, 1, 1) // its answer is not read yet
		synctest.Wait()
		p.pulls(2, 1, 2)
		p.pulls(3, 1, 2)
		p.pushes(1, 1, 2, 5, 5, 5)
		got := map[uint64]bool{}
		for range 3 {
			typ, h, n, err := p.Next()
			must(t, err)
			b, err := p.ReadAll(n)
			must(t, err)
			if typ != message.TypeRows || bytesview.As[float32](b)[0] != 0 {
				t.Errorf("%s %d: %v", message.Name(typ), h.Number, b)
			}
			got[h.Number] = true
		}
		if len(got) != 3 {
			t.Errorf("answers to %v", got)
		}
		p.gets(message.TypeAck, 1)
		p.leaves(2)
		must(t, w.end())
	})
}

// There are only so many pulls that wait.
func TestTooManyPulls(t *testing.T) {
	leakcheck.Check(t)
	w := start(t, 1, func(c *Config, e *fake.Config) { c.Pulls, e.Bounded = 2, true })
	p, _ := w.join(hello(0, 1))
	for i := range uint64(3) {
		p.pulls(i+1, 5, 1)
	}
	p.failure(message.ReasonProtocol, "a pull of rows while 2 wait")
}

// Changes are acknowledged when they are durable, many at a time, and the last of an
// earlier connection at once.
func TestAcknowledgements(t *testing.T) {
	leakcheck.Check(t)
	w := start(t, 1, nil)
	p, _ := w.join(hello(0, 1))
	w.engine.Hold(true)
	for i := range uint64(5) {
		p.pushes(i+1, 1, 9, 1, 0, 0)
	}
	p.pulls(1, 1, 9) // changes are there before they are durable
	p.row(1, 5, 0, 0)
	w.engine.Hold(false)
	seen := uint64(0)
	for seen < 5 {
		typ, h, _, err := p.Next()
		must(t, err)
		if typ != message.TypeAck || h.Number <= seen {
			t.Fatalf("%s %d after %d", message.Name(typ), h.Number, seen)
		}
		seen = h.Number
	}
	w.engine.Hold(true)
	p.pushes(6, 1, 9, 1, 0, 0)
	p.pulls(2, 1, 9)
	p.row(2, 6, 0, 0)
	p.Link().Close()
	w.engine.Hold(false)
	h := hello(0, 1)
	h.From = 6
	again, welcome := w.join(h)
	if welcome.Last != 6 {
		t.Errorf("%+v", welcome)
	}
	again.gets(message.TypeAck, 6)
	again.pushes(6, 1, 9, 1, 0, 0) // nobody needs that, and nothing happens
	again.pulls(2, 1, 9)
	again.row(2, 6, 0, 0)
}

// What is wrong with a change ends its connection with an error that names it, and
// changes nothing.
func TestBadChanges(t *testing.T) {
	leakcheck.Check(t)
	w := start(t, 1, nil)
	two := append(append([]byte(nil), bytesview.Bytes([]uint64{4, 4})...), bytesview.Bytes(make([]float32, 6))...)
	for says, send := range map[string]func(p *peer){
		"push of rows number 3 of trainer 0, session 0, step 9: a gap in the changes": func(p *peer) { p.pushes(3, 9, 4, 1, 1, 1) },
		"key 4 is twice in the batch": func(p *peer) { p.send(message.TypePushRows, message.Head{Number: 1, Step: 1, Count: 2}, two) },
		"the engine's own reason": func(p *peer) {
			w.engine.FailNext(errors.New("the engine's own reason"))
			p.pushes(1, 1, 4, 1, 1, 1)
		},
	} {
		p, _ := w.join(hello(0, 1))
		send(p)
		p.failure(message.ReasonFailed, says)
	}
	bad := append(bytesview.Bytes([]uint64{4}), 255, 255, 255, 255, 1, 2, 3) // int8 with a scale that is none
	p, _ := w.join(hello(0, 1))
	p.send(message.TypePushRows, message.Head{Number: 1, Count: 1, Code: message.Int8}, bad)
	p.failure(message.ReasonProtocol, "malformed")
	if w.engine.Rows(0) != 0 || w.engine.Last(0) != 0 {
		t.Errorf("%d rows, last change %d", w.engine.Rows(0), w.engine.Last(0))
	}
	p, _ = w.join(hello(0, 1))
	w.engine.FailNext(errors.New("no such row today"))
	p.pulls(1, 1, 4)
	if text := p.gets(message.TypeFailed, 1); !strings.Contains(string(text), "no such row today") {
		t.Errorf("%q", text)
	}
	p.pulls(2, 1, 4) // a pull that failed ends nothing
	p.row(2, 0, 0, 0)
}

// Garbage after the handshake ends one connection and nothing else.
func TestGarbage(t *testing.T) {
	leakcheck.Check(t)
	w := start(t, 2, nil)
	good, _ := w.join(hello(0, 2))
	for _, garbage := range [][]byte{
		bytes.Repeat([]byte{0}, 100),
		bytes.Repeat([]byte("GET / HTTP/1.1\r\n"), 4),
		frame(t, wire.Data, message.Head{}, nil),
		frame(t, message.TypeRows, message.Head{Number: 1}, nil),
		frame(t, message.TypePullRows, message.Head{Number: 1, Count: 1 << 30}, nil),
		frame(t, message.TypePushRows, message.Head{Number: 1, Count: 1, Table: 7}, make([]byte, 20)),
	} {
		p, _ := w.join(hello(1, 2))
		go p.raw.Write(garbage)
		p.failure(message.ReasonProtocol, "server 0: ")
	}
	p, _ := w.join(hello(1, 2))
	p.raw.Write(frame(t, message.TypePushRows, message.Head{Number: 1, Count: 1}, make([]byte, 20))[:70])
	p.raw.Close() // in the middle
	good.pulls(1, 1, 1)
	good.row(1, 0, 0, 0)
	if w.engine.Last(1) != 0 {
		t.Error("half a push was applied")
	}
}

func TestConfigFaults(t *testing.T) {
	sc := schema.Schema{}
	err := Config{Servers: 2, Index: 2, Trainers: 1025, MaxKeys: -1, Pulls: -1, Replies: -1, Strangers: -1, Times: cluster.Times{Heartbeat: time.Minute}, Rejoin: time.Second, SocketBytes: 1, Schema: &sc}.Validate()
	says(t, err, "no ticket", "no version", "nothing opens", "server 2 of 2", "trainer 0 of 1025", "keys of a message -1", "pulls of a connection -1",
		"-1 answers", "-1 strangers", "ms of silence 10000", "Times.Heartbeat 1m0s: want at most 5s with servers that keep", "job.heartbeat-timeout 10s: want at least twice Times.Heartbeat, which is 1m0s", "stay away for 1s: want at least 10s", "1 bytes", "nothing to serve")
	if _, err := New(Config{}); err == nil {
		t.Error("the zero value is taken")
	}
}
