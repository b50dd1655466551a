package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/transport"
)

// session is one with a host that is a goroutine of the test.
type session struct {
	io.Reader
	io.WriteCloser
	ended chan error
}

// answering starts one, and says how it ends.
func answering(t hostReport) *session {
	in, say := io.Pipe()
	hear, out := io.Pipe()
	s := &session{Reader: hear, WriteCloser: say, ended: make(chan error, 1)}
	go func() {
		s.ended <- respond(context.Background(), in, out, t, net.IPv4(127, 0, 0, 1))
		_ = out.CloseWithError(io.EOF)
		_ = in.CloseWithError(io.ErrClosedPipe)
	}()
	return s
}

func never() string { return "its session has ended" }

// Links to another host are measured, with and without TLS, and what it says of itself is told with its name.
func TestVisit(t *testing.T) {
	leakcheck.Check(t)
	s := answering(hostReport{Version: "1", Hash: "h", Found: []finding{{Subject: "memory", Found: "little", Level: warn, Costs: "much"}}})
	p, err := probeHost("b", s, never)
	if err != nil {
		t.Fatal(err)
	}
	got := p.findings(context.Background(), "1", "h")
	if text := words(got[:2]); text != "ok    b: program: version 1\nwarn  b: memory: little\n      much" {
		t.Error(text)
	}
	for i, what := range []string{"b: link", "b: link under TLS"} {
		if f := got[2+i]; f.Subject != what || f.Level != ok || !strings.Contains(f.Found, "there and back") {
			t.Errorf("%+v", f)
		}
	}
	other := p.findings(context.Background(), "1", "another")[0]
	if want := "bad   b: program: version 1\n      here is version 1 (sha256 another), there 1 (h): they form no job"; !strings.HasPrefix(other.words(), want) {
		t.Error(other.words())
	}
	p.ticket = transport.NewTicket() // a stranger's
	if f, _ := p.link(context.Background(), "link", p.Plain, "1", transport.TLSOff); f.Level != bad || f.Mend == "" || !strings.Contains(f.Found, p.Plain) {
		t.Errorf("%+v", f)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
	if f, _ := p.link(context.Background(), "link", p.Plain, "1", transport.TLSOff); f.Level != bad {
		t.Errorf("it still listens: %+v", f)
	}
}

// A host that says something else is told so, and one that asks without a ticket is not answered.
func TestVisitFaults(t *testing.T) {
	leakcheck.Check(t)
	for said, want := range map[string]string{"": "its session has ended", "Welcome!\n": "what it says is not understood", "{}": "its session has ended"} {
		near, far := net.Pipe()
		go func() {
			_, _ = io.ReadFull(far, make([]byte, 65))
			_, _ = far.Write([]byte(said))
			_ = far.Close()
		}()
		if _, err := probeHost("b", near, never); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", said, err, want)
		}
	}
	for in, want := range map[string]string{"": "no ticket", "hello\n": "ticket"} {
		if err := respond(context.Background(), strings.NewReader(in), io.Discard, hostReport{}, net.IPv4(127, 0, 0, 1)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", in, err)
		}
	}
	if err := respond(context.Background(), strings.NewReader(transport.NewTicket().String()+"\n"), io.Discard, hostReport{}, net.IPv4(192, 0, 2, 1)); err == nil {
		t.Error("it listens at an address that this host has not")
	}
}

// What is asked for is done, within bounds.
func TestAnswer(t *testing.T) {
	leakcheck.Check(t)
	near, far := net.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- answer(far) }()
	_ = near.SetDeadline(time.Now().Add(10 * time.Second))
	buf := make([]byte, 1000)
	write := func(what byte, n int, body string) {
		t.Helper()
		if err := errors.Join(ask(near, what, n), pour(near, len(body), []byte(body))); err != nil {
			t.Fatal(err)
		}
	}
	read := func(n int) []byte {
		t.Helper()
		if _, err := io.ReadFull(near, buf[:n]); err != nil {
			t.Fatal(err)
		}
		return buf[:n]
	}
	if write(echo, 5, "hello"); !bytes.Equal(read(5), []byte("hello")) {
		t.Errorf("%q comes back", buf[:5])
	}
	write(take, 5, "other")
	read(1)
	write(give, 1000, "")
	read(1000)
	_ = near.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		what byte
		n    int
	}{{'x', 1}, {give, mostSent + 1}, {echo, piece + 1}} {
		near, far := net.Pipe()
		go func() { ended <- answer(far) }()
		if err := ask(near, c.what, c.n); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err == nil || !strings.HasSuffix(err.Error(), "asked for") {
			t.Errorf("%q %d: %v", c.what, c.n, err)
		}
		_, _ = near.Close(), far.Close()
	}
}

// The command prints findings, or an object each, and fails where a job would.
func TestCommand(t *testing.T) {
	run := func(args ...string) (string, error) {
		var out bytes.Buffer
		cmd := Command("1")
		cmd.SetArgs(args)
		cmd.SetOut(&out)
		cmd.SetErr(io.Discard)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		err := cmd.Execute()
		return out.String(), err
	}
	if out, err := run(); err != nil || !strings.Contains(out, "processor: ") || !strings.Contains(out, "network: ") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err := run("--json", "-", "--interface", "none-of-that-name")
	if err == nil || err.Error() != "1 fault would make jobs fail" {
		t.Error(err)
	}
	for line := range strings.Lines(out) {
		var f finding
		d := json.NewDecoder(strings.NewReader(line))
		d.DisallowUnknownFields()
		if err := d.Decode(&f); err != nil || f.Subject == "" {
			t.Errorf("%s: %v", line, err)
		}
	}
	out, err = run("--hosts", "nowhere", "--ssh", "/no/ssh")
	if want := "bad   nowhere: host nowhere: ssh cannot be started"; err == nil || !strings.Contains(out, want) {
		t.Errorf("%v, want %q\n%s", err, want, out)
	}
	if _, err := run("--hosts", "-oProxyCommand=x"); err == nil || !strings.Contains(err.Error(), "want a name or address") {
		t.Error(err)
	}
	for reached, want := range map[string]string{"10.0.0.1 1 10.0.0.2 22": "10.0.0.2", "": ""} {
		if ip, err := reachedAt("", reached); err != nil || want != "" && ip.String() != want {
			t.Errorf("%q: %v, %v", reached, ip, err)
		}
	}
}
