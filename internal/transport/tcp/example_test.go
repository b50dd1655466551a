package tcp_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/internal/transport/tcp"
	"github.com/ringo-ml/ringo/transport"
)

// Two ranks, here in one process, join a mesh: the first listens, the second knows where.
func ExampleNew() {
	ticket := transport.NewTicket()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	addrs := []string{listener.Addr().String(), ""}
	rank := func(cfg tcp.Config, use func(m *tcp.Mesh) error) {
		cfg.Size, cfg.Ticket, cfg.Version, cfg.Addrs, cfg.JoinTimeout = 2, ticket, "1", addrs, time.Minute
		m, err := tcp.New(context.Background(), cfg)
		if err == nil {
			err = use(m)
		}
		if err == nil {
			err = m.Close()
		}
		if err != nil {
			fmt.Println(err)
		}
	}
	tag := transport.Tag{Seq: 1}
	var both sync.WaitGroup
	both.Go(func() {
		rank(tcp.Config{Rank: 0, Listener: listener}, func(m *tcp.Mesh) error { return m.Send(1, tag, []byte("gradient"), time.Minute) })
	})
	both.Go(func() {
		rank(tcp.Config{Rank: 1}, func(m *tcp.Mesh) error {
			var r transport.Recv
			got := make([]byte, 8)
			m.Post(&r, 0, tag, got)
			err := r.Wait(time.Minute)
			fmt.Printf("%s\n", got)
			return err
		})
	})
	both.Wait()
	// Output:
	// gradient
}
