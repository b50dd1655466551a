package cluster

import (
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/transport"
)

func TestParsePortRange(t *testing.T) {
	for text, want := range map[string]PortRange{"": {}, "20000-20100": {20000, 20100}, "7-7": {7, 7}} {
		got, err := ParsePortRange(text)
		if err != nil || got != want || got.String() != text || !got.valid() {
			t.Errorf("%q: got %v, %v", text, got, err)
		}
	}
	if got, err := ParsePortRange("80"); err != nil || got != (PortRange{80, 80}) {
		t.Error(got, err)
	}
	for _, text := range []string{"-", "0-5", "9-8", "1-65536", "a-b", "1-2-3", " 1-2"} {
		if _, err := ParsePortRange(text); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%q: got %v", text, err)
		}
	}
	for _, p := range []PortRange{{0, 5}, {5, 0}, {5, 70000}, {-1, 3}} {
		if p.valid() {
			t.Errorf("%v is taken for a range", p)
		}
	}
}

func TestChooseAddress(t *testing.T) {
	nets := func(texts ...string) (out []net.Addr) {
		for _, text := range texts {
			ip, n, err := net.ParseCIDR(text)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, &net.IPNet{IP: ip, Mask: n.Mask})
		}
		return out
	}
	all := nets("fe80::1/64", "2001:db8::7/64", "10.0.0.7/24", "10.0.0.8/24", "fd00::7/64")
	for like, want := range map[string]string{"10.9.9.9": "10.0.0.7", "2001:db8::1": "2001:db8::7", "127.0.0.1": "10.0.0.7", "::1": "2001:db8::7"} {
		if got := choose(all, net.ParseIP(like)); got.String() != want {
			t.Errorf("like %s: got %v, want %s", like, got, want)
		}
	}
	if got := choose(all[:2], net.ParseIP("10.0.0.1")); got.String() != "2001:db8::7" {
		t.Errorf("of another family only: got %v", got)
	}
	if got := choose(all[:1], net.ParseIP("::1")); got != nil {
		t.Errorf("got %v, which is valid on one link only", got)
	}
}

// Ranks of several hosts must be reachable from each other; which of them is not
// is said to all.
func TestLoopbackIsForOneHost(t *testing.T) {
	for _, fine := range [][]string{
		{}, {"127.0.0.1:5"}, {"127.0.0.1:5", "127.0.1.1:6"}, {"[::1]:5", "127.0.0.1:5"}, {"10.0.0.1:5", "[2001:db8::1]:5"},
	} {
		if err := checkReach(fine); err != nil {
			t.Errorf("%v: %v", fine, err)
		}
	}
	for _, addrs := range [][]string{{"10.0.0.1:5", "127.0.1.1:6"}, {"[::1]:6", "10.0.0.1:5"}} {
		err := checkReach(addrs)
		if err == nil || !strings.Contains(err.Error(), addrs[0]) || !strings.Contains(err.Error(), addrs[1]) {
			t.Errorf("%v: %v", addrs, err)
		}
	}
	c, cfg := job(t, 2, nil)
	a, b := pipes()
	go c.seat(1, b, nil)
	far := newMember(MemberConfig{Rank: 1, WorldSize: 2, Rendezvous: cfg.Rendezvous, Times: Times{}.WithDefaults()}, a, elsewhere{})
	joined := make(chan error, 1)
	go func() { joined <- far.join(t.Context()) }()
	_, err := Join(t.Context(), cfg)
	for r, err := range []error{err, <-joined} {
		if err == nil || !strings.Contains(err.Error(), "rank 0 listens on 127.0.0.1:") || !strings.Contains(err.Error(), "rank 1 is at 10.1.2.3:99") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
	far.Leave("")
}

// elsewhere is the listener of a rank of another host.
type elsewhere struct{ nowhere }

func (elsewhere) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 99} }

// A rank listens where it is told to, or says why it cannot.
func TestListen(t *testing.T) {
	local := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 5}
	taken, err := listen(local, "127.0.0.1:5", "", PortRange{})
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	if _, err := listen(local, "127.0.0.1:5", "", PortRange{port, port}); err == nil || !strings.Contains(err.Error(), "in use on 127.0.0.1") {
		t.Errorf("got %v", err)
	}
	next, err := listen(local, "127.0.0.1:5", loopbackInterface(t), PortRange{port, min(port+50, 65535)})
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	if at := next.Addr().(*net.TCPAddr); at.Port <= port || !at.IP.IsLoopback() {
		t.Errorf("listens on %v, though %d is taken", at, port)
	}
	if _, err := listen(local, "", "no such", PortRange{}); err == nil || !strings.Contains(err.Error(), `"no such"`) || !strings.Contains(err.Error(), loopbackInterface(t)) {
		t.Errorf("got %v", err)
	}
	if _, err := listen(&net.TCPAddr{IP: net.ParseIP("fe80::1"), Zone: "x"}, "", "", PortRange{}); err == nil || !strings.Contains(err.Error(), "one link") {
		t.Errorf("got %v", err)
	}
}

func loopbackInterface(t *testing.T) string {
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range all {
		if i.Flags&net.FlagLoopback != 0 {
			return i.Name
		}
	}
	t.Skip("no loopback interface")
	return ""
}

// The rendezvous may be an IPv6 address; ranks then listen on such too.
func TestIPv6Rendezvous(t *testing.T) {
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("no IPv6 here: ", err)
	}
	_, cfg := job(t, 2, func(c *CoordinatorConfig) { c.Listener, c.Address = l, "" })
	for r, m := range joinAll(t, cfg) {
		if !strings.HasPrefix(m.Addrs()[r], "[::1]:") {
			t.Errorf("rank %d is at %s", r, m.Addrs()[r])
		}
	}
}

func TestMemberConfigChecksPorts(t *testing.T) {
	err := MemberConfig{WorldSize: 1, Rendezvous: "a:1", Ticket: transport.NewTicket(), Ports: PortRange{5, 4}}.Validate()
	if err == nil || !strings.Contains(err.Error(), "5-4") {
		t.Error(err)
	}
	var missing *MissingError
	if errors.As(err, &missing) {
		t.Error("a wrong configuration is no missing rank")
	}
}
