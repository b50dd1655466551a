package tcp

import (
	"net"
	"testing"

	"github.com/ringo-ml/ringo/transport"
)

// Two ends are of one host where both have its address, or any of loopback.
func TestWithinHost(t *testing.T) {
	for _, c := range []struct {
		listen, dial string
		want         bool
	}{
		{"127.0.0.1:0", "", true}, {"127.0.0.1:0", "127.0.0.2:0", true}, {"[::1]:0", "", true},
	} {
		l, err := net.Listen("tcp", c.listen)
		if err != nil {
			t.Logf("not tested: %v", err)
			continue
		}
		defer l.Close()
		d := net.Dialer{}
		if c.dial != "" {
			if d.LocalAddr, err = net.ResolveTCPAddr("tcp", c.dial); err != nil {
				t.Fatal(err)
			}
		}
		conn, err := d.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Logf("not tested: %v", err) // 127.0.0.2 is not everywhere
			continue
		}
		defer conn.Close()
		if got := withinHost(conn.(*net.TCPConn)); got != c.want {
			t.Errorf("%s to %s: %t", conn.LocalAddr(), conn.RemoteAddr(), got)
		}
	}
	for near, far := range map[string]string{"10.0.0.1": "10.0.0.2", "127.0.0.1": "10.0.0.2"} {
		if transport.SameHost(net.ParseIP(near), net.ParseIP(far)) {
			t.Errorf("%s and %s are taken for one host", near, far)
		}
	}
	if !transport.SameHost(net.ParseIP("10.0.0.1"), net.ParseIP("10.0.0.1")) {
		t.Error("an address and itself are taken for two hosts")
	}
}
