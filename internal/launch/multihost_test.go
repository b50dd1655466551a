package launch

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/leakcheck"
)

// pipes is a connection to a host's launcher that is a goroutine of this process.
type pipes struct {
	io.Reader
	io.WriteCloser
	why    string
	cut    func()
	ended  chan error
	closed sync.Once
}

func (p *pipes) Reason() string { return p.why }

// Close waits for the launcher there.
func (p *pipes) Close() error {
	p.closed.Do(func() {
		_ = p.WriteCloser.Close()
		p.ended <- <-p.ended
	})
	return nil
}

// beside is a host that is this one, behind pipes. change, if set, changes what it knows of itself.
func beside(name, program string, change func(*AgentConfig)) (Host, *pipes) {
	toHost, said := io.Pipe()
	heard, fromHost := io.Pipe()
	p := &pipes{Reader: heard, WriteCloser: said, why: "the test has cut it", ended: make(chan error, 1)}
	p.cut = func() { _ = heard.CloseWithError(io.EOF); _ = toHost.CloseWithError(io.EOF) }
	cfg := AgentConfig{Version: "1", Hash: "h", Program: program, Env: role(name), Reached: "127.0.0.1 1 127.0.0.1 2"}
	if change != nil {
		change(&cfg)
	}
	return Host{Name: "b", Connect: func(context.Context) (Connection, error) {
		go func() {
			p.ended <- RunAgent(context.Background(), toHost, fromHost, cfg)
			_ = fromHost.Close()
		}()
		return p, nil
	}}, p
}

// spanned runs processes of a role, of which the last ones are on host b.
func spanned(t *testing.T, ranks, away int, name string, args []string, b Host, set func(*Config)) launched {
	t.Helper()
	return launch(t, context.Background(), ranks, name, args, func(c *Config) {
		c.Hosts, c.Hash, c.Self = []Host{{Name: "a"}, b}, "h", os.Args[0]
		for i := range ranks {
			c.Roles[0].Hosts = append(c.Roles[0].Hosts, oneIf(i >= ranks-away))
		}
		if set != nil {
			set(c)
		}
	})
}

// A rank has its number on its host, its output the host's name, and its program is the one that its host has.
func TestSpannedOutput(t *testing.T) {
	leakcheck.Check(t)
	b, _ := beside("hello", os.Args[0], nil)
	l := spanned(t, 3, 2, "hello", nil, b, func(c *Config) { c.HostEnv = []string{RankVar + "=7"} })
	if l.err != nil {
		t.Fatal(l.err)
	}
	for _, want := range []string{"rank 0 of 3, local 0, launched true\n", "[b: rank 1] rank 1 of 3, local 0, launched true\n", "[b: rank 2] rank 2 of 3, local 1, launched true\n"} {
		if !strings.Contains(l.out, want) {
			t.Errorf("%q is not in\n%s", want, l.out)
		}
	}
	if want := "[b: rank 2] to stderr by 2\n"; !strings.Contains(l.log, want) {
		t.Errorf("%q is not in\n%s", want, l.log)
	}
}

// A rank that dies on another host is named with that and its last words, and the others end.
func TestSpannedDeath(t *testing.T) {
	leakcheck.Check(t)
	b, _ := beside("exit", os.Args[0], nil)
	l := spanned(t, 3, 2, "exit", []string{"2", "5"}, b, nil)
	var death *LostProcessError
	if !errors.As(l.err, &death) || death.Host != "b" || death.Rank != 2 || !strings.HasPrefix(l.err.Error(), "rank 2 on b is lost: exit status 5") || !strings.Contains(l.err.Error(), "last words") {
		t.Error(l.err)
	}
	b, _ = beside("stubborn", os.Args[0], nil)
	ctx, cancel := context.WithCancelCause(context.Background())
	l = launch(t, ctx, 2, "stubborn", nil, func(c *Config) { // told to end, and it does not
		c.Hosts, c.Hash, c.Self, c.Roles[0].Hosts = []Host{b}, "h", os.Args[0], []int{0, 0}
		onStarted(c, 2, func() { cancel(errors.New("enough")) })
	})
	if l.err == nil || l.err.Error() != "interrupted: enough" {
		t.Error(l.err)
	}
}

// The mesh spans the hosts, and what a rank there is lost by is told to those here.
func TestSpannedMesh(t *testing.T) {
	leakcheck.Check(t)
	b, _ := beside("member", os.Args[0], nil)
	l := spanned(t, 2, 1, "member", []string{"1"}, b, nil)
	if want := "rank 1 on b is lost: killed by signal 9 (SIGKILL)"; l.err == nil || !strings.HasPrefix(l.err.Error(), want) || !strings.Contains(l.out, "told: rank 1") {
		t.Errorf("%v, want %q\n%s", l.err, want, l.out)
	}
	b, p := beside("member", os.Args[0], nil)
	l = spanned(t, 2, 1, "member", []string{"none"}, b, func(c *Config) { onStarted(c, 2, func() { p.cut() }) })
	if want := "rank 1 on b is lost: its host b is lost: the test has cut it"; l.err == nil || !strings.HasPrefix(l.err.Error(), want) {
		t.Errorf("%v, want %q", l.err, want)
	}
}

// A host that stops answering is lost in time, though nothing ends its connection.
func TestSilentHost(t *testing.T) {
	leakcheck.Check(t)
	b, p := beside("sleep", os.Args[0], nil)
	silent := make(chan struct{})
	connect := b.Connect
	b.Connect = func(ctx context.Context) (Connection, error) {
		_, err := connect(ctx)
		return &mute{pipes: p, from: silent}, err
	}
	l := spanned(t, 2, 1, "sleep", nil, b, func(c *Config) {
		c.Times = cluster.Times{Heartbeat: 50 * time.Millisecond, DeadAfter: 200 * time.Millisecond}
		onStarted(c, 2, func() { close(silent) })
	})
	if want := "rank 1 on b is lost: its host b is lost: no sign of life for 600ms"; l.err == nil || !strings.HasPrefix(l.err.Error(), want) {
		t.Errorf("%v, want %q", l.err, want)
	}
}

// mute is a connection from which nothing comes any more, until it is closed.
type mute struct {
	*pipes
	from  <-chan struct{}
	close sync.Once
}

func (m *mute) Read(b []byte) (int, error) {
	n, err := m.pipes.Read(b)
	select {
	case <-m.from:
		for {
			if n, err = m.pipes.Read(b); err != nil {
				return n, err
			}
		}
	default:
		return n, err
	}
}

func (m *mute) Close() error {
	m.close.Do(m.pipes.cut)
	return m.pipes.Close()
}

// What hinders the start is told with the host, and leaves nothing behind.
func TestHostFaults(t *testing.T) {
	leakcheck.Check(t)
	refuse := Host{Name: "b", Connect: func(context.Context) (Connection, error) { return nil, errors.New("host b: ssh says no") }}
	other, _ := beside("hello", os.Args[0], func(a *AgentConfig) { a.Hash = "another" })
	gone, _ := beside("hello", "/no/such/program", nil)
	dead := Host{Name: "b", Connect: func(context.Context) (Connection, error) {
		r, w := io.Pipe()
		_ = w.Close()
		_, said := io.Pipe()
		ended := make(chan error, 1)
		ended <- nil
		return &pipes{Reader: r, WriteCloser: said, why: "there is no such program there", ended: ended}, nil
	}}
	for want, b := range map[string]Host{
		"host b: ssh says no": refuse,
		"host b: the program there is another than here: version 1 (sha256 another) there, 1 (h) here: copy this one there": other,
		`host b: cannot start "/no/such/program"`: gone,
		"host b: there is no such program there":  dead,
	} {
		l := spanned(t, 2, 1, "hello", nil, b, nil)
		if l.err == nil || !strings.Contains(l.err.Error(), want) || len(l.pids) > 0 {
			t.Errorf("%v, want %q", l.err, want)
		}
	}
	for _, hosts := range [][]int{{0}, {0, 1}} {
		err := Run(context.Background(), Config{Roles: []Role{{Name: "rank", Count: 2, Command: []string{"x"}, Hosts: hosts}}, Hosts: []Host{{Name: "a"}}})
		if err == nil || !strings.Contains(err.Error(), `role "rank": `) {
			t.Error(err)
		}
	}
}

// Where a launcher is seen from is where its hosts meet, if it is its own address.
func TestSeenAt(t *testing.T) {
	own := []net.Addr{&net.IPNet{IP: net.IPv4(10, 0, 0, 1)}, &net.IPNet{IP: net.ParseIP("fd00::1")}}
	for seen, want := range map[string]string{"": "<nil>", "1.2.3.4 fd00::1": "fd00::1", "10.0.0.1": "10.0.0.1", "x 1.2.3.4": "<nil>"} {
		if got := peerView(strings.Fields(seen), own).String(); got != want {
			t.Errorf("%s: %s, want %s", seen, got, want)
		}
	}
}
