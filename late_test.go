package ringo_test

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/cluster"
	"github.com/ringo-ml/ringo/launch"
	"github.com/ringo-ml/ringo/transport"
)

var pods = flag.Int("pods", 6, "how many pods TestPods pretends")

// resolver makes this process ask a server of names that knows none, until the returned function is called, and then says that each
// is 127.0.0.1.
func resolver(t *testing.T) (know func()) {
	var known atomic.Bool
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	before := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", server.LocalAddr().String())
	}}
	t.Cleanup(func() { net.DefaultResolver = before; server.Close() })
	go func() {
		for b := make([]byte, 1500); ; {
			n, from, err := server.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = server.WriteTo(answer(b[:n], known.Load()), from)
		}
	}()
	return func() { known.Store(true) }
}

// answer is what a server of names says to a question (RFC 1035): no such name, or, of an address of version 4, 127.0.0.1.
func answer(question []byte, known bool) []byte {
	end := 12
	for question[end] != 0 {
		end += 1 + int(question[end])
	}
	kind := binary.BigEndian.Uint16(question[end+1:])
	out := slices.Clone(question[:end+5])
	binary.BigEndian.PutUint16(out[2:], 0x8180) // an answer, and all is well
	copy(out[6:], []byte{0, 0, 0, 0, 0, 0})
	switch {
	case !known:
		out[3] |= 3
	case kind == 1:
		out[7] = 1
		out = append(out, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4, 127, 0, 0, 1)
	}
	return out
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
