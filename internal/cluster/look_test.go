package cluster

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/cluster/rendezvous"
	"github.com/ringo-ml/ringo/internal/freeport"
	"github.com/ringo-ml/ringo/transport"
)

// A member looks for its coordinator until it is there: one that says nothing yet, an address where nobody listens any more, one
// of another job, then the right one.
func TestMemberLooksAgain(t *testing.T) {
	ticket := transport.NewTicket()
	c, err := NewCoordinator(CoordinatorConfig{Address: "127.0.0.1:0", WorldSize: 1, Ticket: ticket, Version: "v"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	other, err := NewCoordinator(CoordinatorConfig{Address: "127.0.0.1:0", WorldSize: 2, Ticket: transport.NewTicket(), Version: "v"})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	dead, looks := freeport.Address(t), 0
	m, err := Join(t.Context(), MemberConfig{WorldSize: 1, Version: "v", Look: func() (string, transport.Ticket, error) {
		switch looks++; looks {
		case 1:
			return "", nil, errors.New("nothing yet")
		case 2:
			return dead, ticket, nil
		case 3:
			return other.Addr().String(), ticket, nil // it has another ticket
		}
		return c.Addr().String(), ticket, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if looks != 4 || m.Ticket().String() != ticket.String() {
		t.Errorf("%d looks", looks)
	}
	if err := m.Leave(""); err != nil {
		t.Error(err)
	}
}

func TestMemberStopsLooking(t *testing.T) {
	unsafe := &rendezvous.UnsafeError{Path: "/x", Why: "it is anybody's"}
	for name, c := range map[string]struct {
		address string
		err     error
		want    string
	}{
		"unsafe":  {"", unsafe, "it is anybody's"},
		"nothing": {"", errors.New("no such file"), "no coordinator for 30ms; is the launcher, or rank 0, running there? no such file"},
		"strange": {"here", nil, `rendezvous "here": want HOST:PORT`},
	} {
		_, err := Join(t.Context(), MemberConfig{WorldSize: 1, Version: "v", Times: Times{Join: 30 * time.Millisecond}, Look: func() (string, transport.Ticket, error) {
			return c.address, transport.NewTicket(), c.err
		}})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// Names that nobody knows may come later: that is told once, and the error says so.
func TestNamesMayComeLate(t *testing.T) {
	const name = "no-such-host.invalid:4000"
	if _, err := net.LookupHost("no-such-host.invalid"); !unknown(err) || noNetwork(err) != nil {
		t.Skip("NOT tested: this host has no resolver that rejects the name: ", err)
	}
	var told []string
	report := func(line string) { told = append(told, line) }
	times := Times{Join: 100 * time.Millisecond}
	_, err := Join(t.Context(), MemberConfig{Rendezvous: name, Ticket: transport.NewTicket(), WorldSize: 1, Version: "v", Times: times, Report: report})
	if err == nil || !strings.Contains(err.Error(), "no coordinator for 100ms") {
		t.Error(err)
	}
	if _, err = Listen(t.Context(), name, times.Join, report); err == nil || !strings.Contains(err.Error(), "not known for 100ms") {
		t.Error(err)
	}
	if len(told) != 2 || !strings.Contains(told[0], name+": the name does not resolve yet") || told[0] != told[1] {
		t.Errorf("told %q", told)
	}
	if _, err := Listen(t.Context(), "127.0.0.1:70000", times.Join, report); err == nil || len(told) != 2 {
		t.Error(err)
	}
}

// A resolver that does not answer in time may do so later.
func TestUnknown(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"no such host":        {&net.DNSError{IsNotFound: true}, true},
		"no answer":           {&net.OpError{Op: "listen", Err: &net.DNSError{IsTimeout: true}}, true},
		"busy":                {&net.DNSError{IsTemporary: true}, true},
		"refused for good":    {&net.DNSError{Err: "no name"}, false},
		"nobody listens":      {&net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}, false},
		"nothing is at fault": {nil, false},
	} {
		if unknown(c.err) != c.want {
			t.Errorf("%s: %v", name, !c.want)
		}
	}
}

func TestHostAddress(t *testing.T) {
	if ip, err := HostAddress("", true); err != nil || !ip.IsLoopback() {
		t.Error(ip, err)
	}
	if ip, err := HostAddress("", false); err != nil || ip.IsUnspecified() || ip.IsLinkLocalUnicast() {
		t.Error(ip, err)
	}
	if _, err := HostAddress("no such network", false); err == nil || !strings.Contains(err.Error(), "no such network") {
		t.Error(err)
	}
}
