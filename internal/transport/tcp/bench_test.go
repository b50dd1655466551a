package tcp

import (
	"fmt"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/transport"
)

// BenchmarkPingPong is twice the latency of a message.
func BenchmarkPingPong(b *testing.B) { pingPong(b, nil) }

func pingPong(b *testing.B, change func(*Config)) {
	for _, size := range []int{64, 4 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			m := formed(b, 2, change)
			buf, echo := make([]byte, size), make([]byte, size)
			go func() {
				var r transport.Recv
				for i := 0; ; i++ {
					t := transport.Tag{Seq: uint32(i)}
					m[1].Post(&r, 0, t, echo)
					if r.Wait(time.Minute) != nil {
						return
					}
					m[1].Send(0, t, echo, time.Minute)
				}
			}()
			var r transport.Recv
			b.ReportAllocs()
			b.SetBytes(int64(2 * size))
			for i := 0; b.Loop(); i++ {
				t := transport.Tag{Seq: uint32(i)}
				m[0].Post(&r, 1, t, buf)
				if err := m[0].Send(1, t, buf, time.Minute); err != nil {
					b.Fatal(err)
				}
				if err := r.Wait(time.Minute); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkExchange is a step of a ring of two: both send and both receive.
func BenchmarkExchange(b *testing.B) { ringOfTwo(b, nil) }

func ringOfTwo(b *testing.B, change func(*Config)) {
	for _, size := range []int{256 << 10, 1 << 20, 4 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			m := formed(b, 2, change)
			step := func(rank, i int, r *transport.Recv, out, in []byte) error {
				t := transport.Tag{Seq: uint32(i)}
				m[rank].Post(r, 1-rank, t, in)
				if err := m[rank].Send(1-rank, t, out, time.Minute); err != nil {
					return err
				}
				return r.Wait(time.Minute)
			}
			go func() {
				var r transport.Recv
				out, in := make([]byte, size), make([]byte, size)
				for i := 0; step(1, i, &r, out, in) == nil; i++ {
				}
			}()
			var r transport.Recv
			out, in := make([]byte, size), make([]byte, size)
			b.ReportAllocs()
			b.SetBytes(int64(size)) // per direction
			for i := 0; b.Loop(); i++ {
				if err := step(0, i, &r, out, in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
