package shm_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/internal/transport/shm"
	"github.com/ringo-ml/ringo/transport"
)

// The ranks of a host, here of one process, agree on memory that all of them see: what one stores another loads.
func ExampleNew() {
	ticket := transport.NewTicket()
	var ranks sync.WaitGroup
	for _, inner := range mem.New(2) {
		ranks.Go(func() {
			m, err := shm.New(context.Background(), inner, shm.Config{Ticket: ticket, Version: "1", ArenaBytes: 1 << 16, JoinTimeout: time.Minute})
			if err != nil {
				fmt.Println(err)
				return
			}
			defer m.Close()
			w := m.SharedMemory()
			if w == nil {
				why, _ := m.Reason()
				fmt.Println(why)
				return
			}
			tag := transport.Tag{Seq: 1}
			if m.Rank() == 0 {
				copy(w.Arena(), "gradient")
				err = m.Send(1, tag, nil, time.Minute) // it is there
			} else {
				var r transport.Recv
				m.Post(&r, 0, tag, nil)
				err = r.Wait(time.Minute)
				fmt.Printf("%s\n", w.Arenas[0][:8])
			}
			if err != nil {
				fmt.Println(err)
			}
		})
	}
	ranks.Wait()
	// Output:
	// gradient
}
