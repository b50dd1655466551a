package server

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/server/engine"
	"github.com/ringo-ml/ringo/ps/client"
	"github.com/ringo-ml/ringo/ps/schema"
	"github.com/ringo-ml/ringo/transport"
)

var oneTable = schema.Schema{
	Sparse: []schema.Sparse{{Name: "items", Dim: 2, Rule: schema.Rule{Name: "sgd", LR: 1}}},
	Dense:  []schema.Dense{{Name: "dense", Len: 5, Rule: schema.Rule{Name: "sgd", LR: 1}}},
}

// running is a server under way.
type running struct {
	addr, admin string
	token       string // for orders
	end         chan error
	stats       Stats
	stop        context.CancelFunc
}

func run(t *testing.T, ticket transport.Ticket, change func(*Config)) *running {
	t.Helper()
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	cfg := Config{
		Listener: listen(), Admin: listen(), Ticket: ticket, Version: "1", Servers: 1, Trainers: 1, Mode: engine.Async, Durability: engine.None,
		Times: cluster.Times{Join: 2 * time.Minute}, Rejoin: 2 * time.Minute,
	}
	if change != nil {
		change(&cfg)
	}
	r := &running{token: cfg.token(), addr: cfg.Listener.Addr().String(), admin: "http://" + cfg.Admin.Addr().String(), end: make(chan error, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	go func() {
		var err error
		r.stats, err = Run(ctx, cfg)
		r.end <- err
	}()
	return r
}

func (r *running) dial(t *testing.T, ticket transport.Ticket) *client.Client {
	t.Helper()
	c, err := client.Dial(context.Background(), client.Config{Servers: []string{r.addr}, Ticket: ticket, Version: "1", Trainers: 1, Schema: oneTable})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// push moves row 7 by -1, and the array's values.
func push(t *testing.T, c *client.Client, step uint64) {
	t.Helper()
	l := c.Session(0)
	err := errors.Join(
		l.PushRows(0, step, []uint64{7}, []float32{1, 1}),
		l.PushDense(0, step, 0, []float32{1, 1, 1, 1, 1}),
		l.Clock(step, -1),
		c.Flush(context.Background()),
	)
	if err != nil {
		t.Fatal(err)
	}
}

// row reads row 7.
func row(t *testing.T, c *client.Client, step uint64) []float32 {
	t.Helper()
	dst := make([]float32, 2)
	p, err := c.Session(0).PullRows(0, step, []uint64{7}, dst)
	if err == nil {
		err = p.Wait()
	}
	if err != nil {
		t.Fatal(err)
	}
	return dst
}

func (r *running) ask(t *testing.T, method, path string) (status int, out map[string]any) {
	t.Helper()
	req, err := http.NewRequest(method, r.admin+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.token)
	res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(&out); err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, out
}

// A server ends well when its trainer has left, with what it has done; a person may ask it.
func TestRun(t *testing.T) {
	leakcheck.Check(t)
	ticket := transport.NewTicket()
	dir := t.TempDir()
	r := run(t, ticket, func(c *Config) { c.Durability, c.Dir = engine.WAL, dir })
	if status, out := r.ask(t, "GET", "/health"); status != 200 || out["state"] != "waiting" {
		t.Errorf("%d %v", status, out)
	}
	if status, out := r.ask(t, "POST", "/save"); status == 200 {
		t.Errorf("saved what there is not: %v", out)
	}
	c := r.dial(t, ticket)
	if err := c.Session(0).SetDense(0, []float32{1, 2, 3, 4, 5}); err != nil {
		t.Fatal(err)
	}
	push(t, c, 1)
	if status, out := r.ask(t, "GET", "/stats"); status != 200 || out["tables"].(map[string]any)["mode"] != "async" {
		t.Errorf("%d %v", status, out)
	}
	for _, path := range []string{"/save", "/shrink?days=1"} {
		if status, out := r.ask(t, "POST", path); status != 200 {
			t.Errorf("%s: %d %v", path, status, out)
		}
	}
	if found, _ := filepath.Glob(filepath.Join(dir, "server-0", "checkpoints", "*")); len(found) == 0 {
		t.Error("no checkpoint was written")
	}
	if err := c.Leave(context.Background()); err != nil {
		t.Error(err)
	}
	if err := <-r.end; err != nil {
		t.Error(err)
	}
	if f := r.stats; f.RowsPushed != 1 || len(f.Tables.Tables) != 1 || f.Tables.Tables[0].Rows != 1 {
		t.Errorf("stats %+v", f)
	}
}

// A server that is told to end, and one that comes after it, have what was pushed; a client
// goes on. Another job's directory is refused.
func TestRunAgain(t *testing.T) {
	leakcheck.Check(t)
	for _, durability := range []engine.Durability{engine.WAL, engine.Checkpoint} {
		ticket, dir := transport.NewTicket(), t.TempDir()
		keep := func(c *Config) { c.Durability, c.Dir = durability, dir }
		r := run(t, ticket, keep)
		c := r.dial(t, ticket)
		if err := c.Session(0).SetDense(0, make([]float32, 5)); err != nil {
			t.Fatal(err)
		}
		push(t, c, 1)
		r.stop()
		if err := <-r.end; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, want that it was told to end", durability, err)
		}
		again := run(t, ticket, func(c *Config) {
			keep(c)
			_ = c.Listener.Close()
			l, err := net.Listen("tcp", r.addr)
			if err != nil {
				t.Fatal(err)
			}
			c.Listener = l
		})
		if got := row(t, c, 2); !slices.Equal(got, []float32{-1, -1}) {
			t.Errorf("%s: row 7 is %v, want -1", durability, got)
		}
		push(t, c, 2)
		if got := row(t, c, 3); got[0] != -2 {
			t.Errorf("%s: row 7 is %v, want -2", durability, got)
		}
		if err := errors.Join(c.Leave(context.Background()), <-again.end); err != nil {
			t.Errorf("%s: %v", durability, err)
		}
		stranger := transport.NewTicket()
		other := run(t, stranger, keep)
		_, err := client.Dial(context.Background(), client.Config{Servers: []string{other.addr}, Ticket: stranger, Version: "1", Trainers: 1, Schema: oneTable})
		if ended := <-other.end; err == nil || ended == nil || !strings.Contains(ended.Error(), "job") || !strings.Contains(err.Error(), "job") {
			t.Errorf("%s: a trainer of another job: %v; its server: %v", durability, err, ended)
		}
	}
}

// Checkpoints are written now and then; one that cannot be ends the server.
func TestSaveEvery(t *testing.T) {
	leakcheck.Check(t)
	ticket, dir := transport.NewTicket(), t.TempDir()
	r := run(t, ticket, func(c *Config) { c.Durability, c.Dir, c.SaveEvery = engine.WAL, dir, 20*time.Millisecond })
	c := r.dial(t, ticket)
	if err := c.Session(0).SetDense(0, make([]float32, 5)); err != nil {
		t.Fatal(err)
	}
	push(t, c, 1)
	folder := filepath.Join(dir, "server-0", "checkpoints")
	eventually(t, "a checkpoint", func() bool {
		found, _ := filepath.Glob(filepath.Join(folder, "*"))
		return len(found) > 0
	})
	for os.RemoveAll(folder) != nil || os.WriteFile(folder, nil, 0o600) != nil {
		time.Sleep(time.Millisecond) // another one is just being written
	}
	if err := <-r.end; err == nil || !strings.Contains(err.Error(), "ps: server 0: a checkpoint: ") {
		t.Errorf("ended with %v", err)
	}
	_ = c.Close()
}

func TestValidate(t *testing.T) {
	err := Config{SaveEvery: time.Second, Durability: engine.None, Mode: "both", Servers: 1, Trainers: 1}.Validate()
	for _, want := range []string{"nowhere to listen", "ps.checkpoint-every 1s has no effect with ps.durability none", `sync "both"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	if _, err := Run(context.Background(), Config{}); err == nil {
		t.Error("an empty configuration runs")
	}
}

// Rows travel encrypted where both ends say so, and a trainer that does not is told why it is refused.
func TestEncryptedServer(t *testing.T) {
	ticket := transport.NewTicket()
	on := transport.TLS{Mode: transport.TLSOn}
	r := run(t, ticket, func(c *Config) { c.TLS = on })
	cfg := client.Config{Servers: []string{r.addr}, Ticket: ticket, Version: "1", Trainers: 1, Schema: oneTable}
	if _, err := client.Dial(context.Background(), cfg); !errors.Is(err, transport.ErrRefused) || !strings.Contains(err.Error(), "network.tls") {
		t.Errorf("without TLS: got %v", err)
	}
	cfg.TLS = on
	c, err := client.Dial(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Session(0).SetDense(0, make([]float32, 5)); err != nil {
		t.Fatal(err)
	}
	push(t, c, 1)
	if got := row(t, c, 1); got[0] != -1 || got[1] != -1 {
		t.Errorf("row 7 is %v, want -1 -1", got)
	}
	if err := errors.Join(c.Leave(context.Background()), <-r.end); err != nil {
		t.Error(err)
	}
}
