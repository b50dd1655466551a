package cluster

import (
	"errors"
	"net"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringo-ml/ringo/transport"
)

// A host whose loopback interface is down, or without a network, is an error at once, which names the remedy.
func TestHostWithoutNetwork(t *testing.T) {
	done := make(chan string)
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread ends with this goroutine, in its own network
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- err.Error()
			return
		}
		check := func(what string, got, want error) {
			if !errors.Is(got, want) {
				t.Errorf("%s: %v, want %v", what, got, want)
			}
		}
		far := &net.OpError{Op: "dial", Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}, Err: syscall.ENETUNREACH}
		near := &net.OpError{Op: "dial", Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, Err: syscall.ENETUNREACH}
		for _, address := range []string{"127.0.0.1:0", "localhost:0"} {
			_, err := Listen(t.Context(), address, time.Minute, nil)
			check(address, err, errLoopbackDown)
		}
		_, err := Join(t.Context(), MemberConfig{Rank: 1, WorldSize: 2, Rendezvous: "127.0.0.1:9", Ticket: transport.NewTicket(), Version: "v", Times: Times{Join: time.Minute}})
		check("joining", err, errLoopbackDown)
		check("loopback", noNetwork(near), errLoopbackDown)
		check("another host", noNetwork(far), errNoNetwork)
		check("a name", noNetwork(&net.DNSError{IsTemporary: true}), errNoNetwork)
		if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
			t.Logf("ip: %v: %s: loopback alone is NOT tested", err, out)
			return
		}
		if l, err := Listen(t.Context(), "127.0.0.1:0", time.Minute, nil); err != nil {
			t.Error(err)
		} else {
			_ = l.Close()
		}
		check("loopback alone", noNetwork(near), nil)
		check("another host, with loopback alone", noNetwork(far), errNoNetwork)
	}()
	if why, skipped := <-done; skipped {
		t.Skip("NOT tested: this user may not make a network namespace: ", why)
	}
}
