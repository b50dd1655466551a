package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/transport"
)

// Requests arrive as they are drawn, and the answers' status comes back.
func TestRequests(t *testing.T) {
	var hosts []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hosts = append(hosts, r.Host)
		if r.Header.Get("Authorization") != "Bearer 7" {
			w.WriteHeader(http.StatusUnauthorized)
		}
		fmt.Fprint(w, "the body")
	}))
	defer server.Close()
	a := admin{address: server.Listener.Addr().String(), token: "Authorization: Bearer 7"}
	for _, c := range []struct {
		hostileRequest
		status int
		host   string
	}{
		{hostileRequest{Text: ask("GET", "/", stranger)}, 401, stranger},
		{hostileRequest{Text: ask("POST", "/", "HOST", "TOKEN", "Content-Length: 0")}, 200, a.address},
		{hostileRequest{Text: ask("POST", "/", "HOST", "Content-Length: 65536"), Times: 1}, 401, a.address},
	} {
		status, body, err := request(a.address, c.fill(a))
		if status != c.status || body != "the body" || err != nil || hosts[len(hosts)-1] != c.host {
			t.Errorf("%q: status %d, %q, %v from %s, want %d from %s", c.Text, status, body, err, hosts, c.status, c.host)
		}
	}
}

// Each path gets requests of every kind, and none that is honest: it names another host, comes from another
// origin, or is an order without the token or with parameters that are none.
func TestPagesHaveAllKinds(t *testing.T) {
	kinds := map[string]bool{}
	c := drawPage(dice(1, "pages", 3), 3)
	for _, r := range c.Requests {
		kinds[r.Kind] = true
	}
	if len(c.Requests) != pageRequests || len(kinds) != 15 {
		t.Errorf("%d requests of %d kinds, want %d of 15", len(c.Requests), len(kinds), pageRequests)
	}
}

// The port of a listening socket of this process is found, and its open files are counted.
func TestFindsPorts(t *testing.T) {
	if !supported {
		t.Skip("there is no /proc")
	}
	server := httptest.NewServer(nil)
	defer server.Close()
	var port int
	fmt.Sscanf(server.Listener.Addr().String(), "127.0.0.1:%d", &port)
	if ports := listening(os.Getpid()); !slices.Contains(ports, port) {
		t.Errorf("port %d is not among %v", port, ports)
	}
	if n := descriptors(os.Getpid()); n < 3 {
		t.Errorf("%d open files", n)
	}
}

// Each port but that of HTTP is flooded under TLS, too, where a stranger's certificate reaches the other end's judgement.
func TestStrangersUnderTLS(t *testing.T) {
	ports := map[string]bool{}
	for _, f := range floods {
		if ports[f.port] {
			t.Errorf("%s port is twice there", f.port)
		}
		ports[f.port] = true
		for _, args := range f.members {
			if slices.Contains(args, "network.tls=on") != f.tls {
				t.Errorf("%s port: %v", f.port, args)
			}
		}
	}
	if len(floods) != 2*len(plainFloods)-1 {
		t.Errorf("%d ports of %d", len(floods), len(plainFloods))
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if conn, err := net.Dial("tcp", l.Addr().String()); err == nil {
			_ = strangeTLS(conn, rand.New(rand.NewPCG(1, 1)))
		}
	}()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	who := transport.NewTicket().Under(transport.TLS{Mode: transport.TLSOn})
	if _, _, err := transport.ServerHandshake(t.Context(), conn, who, transport.Hello{Version: "1"}, nil); !errors.Is(err, transport.ErrTicket) {
		t.Errorf("got %v", err)
	}
}

// Hostile files are drawn anew for each case, and the same for the same one.
func TestInputsRepeat(t *testing.T) {
	names := map[string]bool{}
	for _, h := range hostileInputs {
		if names[h.name] {
			t.Errorf("two inputs have the name %q", h.name)
		}
		names[h.name] = true
		if h.blame == nil && h.mayTrain == nil {
			t.Errorf("%s: nothing is right", h.name)
		}
	}
	write := func(at uint64) string {
		tr := &trap{dir: t.TempDir(), rng: rand.New(rand.NewPCG(at, 0))}
		args := tr.digits("train-images-idx3-ubyte", nil)
		content, err := os.ReadFile(args[3] + "/t10k-images-idx3-ubyte")
		if tr.err != nil || err != nil {
			t.Fatal(tr.err, err)
		}
		return string(content)
	}
	first := write(1)
	if again, other := write(1), write(2); again != first || other == first {
		t.Error("the bytes of a hostile input are not a function of what they are drawn from")
	}
}
