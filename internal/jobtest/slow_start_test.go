package jobtest

import (
	"errors"
	"flag"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/dnstest"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/transport"
)

var pods = flag.Int("pods", 6, "how many pods TestPods pretends")

// resolver makes this process ask a server of names that knows none, until the returned function is called.
func resolver(t *testing.T) (know func()) {
	names, err := dnstest.Listen()
	if err != nil {
		t.Fatal(err)
	}
	before := net.DefaultResolver
	net.DefaultResolver = dnstest.Resolver(names.Address())
	t.Cleanup(func() { net.DefaultResolver = before; names.Close() })
	return names.Know
}

// Pods whose names appear when some of them have long tried meet soon after the last has started.
func TestPods(t *testing.T) {
	know := resolver(t)
	t.Setenv(launch.TicketVar, transport.NewTicket().String())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	cfgs := make([]ringo.Config, *pods)
	for r := range cfgs {
		cfgs[r] = ringo.Config{Size: *pods, Rank: r, Rendezvous: "job-0.workers:" + port, Transport: ringo.TransportTCP, Bind: launch.BindNone, Times: cluster.Times{Join: patience}}
	}
	slices.Reverse(cfgs)
	var last time.Time
	first := make(chan struct{})
	go func() {
		<-first
		time.Sleep(100 * time.Millisecond) // the others' names come late
		know()
	}()
	cfgs[0].Report = func(string) { close(first) } // its name is not known
	all := start(t.Context(), cfgs[:len(cfgs)-1], exchange)
	<-first
	time.Sleep(200 * time.Millisecond)
	last = time.Now()
	met := make(chan time.Duration, 1)
	errs := runAll(t, cfgs[len(cfgs)-1:], func(job *ringo.Job) error {
		met <- time.Since(last)
		return exchange(job)
	})
	if err := errors.Join(append(errs, await(t, all)...)...); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d pods met %v after the last had started", *pods, <-met)
}
