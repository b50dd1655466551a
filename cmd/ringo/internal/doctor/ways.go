package doctor

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/transport"
)

// route is an address of another host that jobs only use if configured.
type route struct {
	Interface string `json:"interface"`
	Addr      string `json:"addr"` // listen address
}

// tried is a route with the measured speed.
type tried struct {
	route
	speed speed
	err   error
}

// briefly is the timeout for reaching a route: many interfaces serve only containers.
const briefly = 3 * time.Second

// otherAddresses returns this host's other reachable addresses, with their interfaces.
func otherAddresses(but net.IP) (out []route) {
	all, _ := net.Interfaces() // without a list only the chosen address remains
	for _, i := range all {
		if i.Flags&net.FlagUp == 0 || i.Flags&net.FlagLoopback != 0 {
			continue
		}
		addrs, _ := i.Addrs()
		for _, a := range addrs {
			if n, is := a.(*net.IPNet); is && !n.IP.Equal(but) && n.IP.IsGlobalUnicast() {
				out = append(out, route{i.Name, n.IP.String()})
			}
		}
	}
	return out
}

func (p *remoteHost) try(ctx context.Context, version string) (out []tried) {
	for _, w := range p.Others {
		t := tried{route: w}
		near, cancel := context.WithTimeout(ctx, briefly)
		conn, err := dial(near, w.Addr, version, p.ticket, transport.TLSOff)
		if cancel(); err == nil {
			t.speed, err = measure(conn)
			_ = conn.Close()
		}
		t.err = err
		out = append(out, t)
	}
	return out
}

// compare reports the reachable interfaces of a host, and an interface faster than the chosen one.
func compare(host string, chosen speed, all []tried) finding {
	f := finding{Subject: host + ": other interfaces", Level: ok}
	var words []string
	for _, t := range all {
		name, _, _ := net.SplitHostPort(t.Addr)
		if t.err != nil {
			words = append(words, fmt.Sprintf("%s (%s) is not reached from here", t.Interface, name))
			continue
		}
		words = append(words, fmt.Sprintf("%s (%s) is reached: %v", t.Interface, name, t.speed))
		const clearly = 1.5
		if slower := min(t.speed.To, t.speed.From) / max(1, min(chosen.To, chosen.From)); slower > clearly {
			f.warns(fmt.Sprintf("jobs take another way, on which bytes take %s times as long as by %s", quantity.FloatDigits(slower, 2), t.Interface), "--interface "+t.Interface+", where all hosts call it so")
		}
	}
	f.Found = strings.Join(words, "; ")
	return f
}
