package mem

import (
	"bytes"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/transport"
)

func BenchmarkPingPong(b *testing.B) {
	m := New(2)
	var tag, back transport.Tag
	buf, echo := make([]byte, 64), make([]byte, 64)
	go func() {
		var r transport.Recv
		for i := range b.N {
			t := transport.Tag{Seq: uint32(i)}
			m[1].Post(&r, 0, t, echo)
			if r.Wait(time.Second) != nil {
				return
			}
			m[1].Send(0, t, echo, time.Second)
		}
	}()
	var r transport.Recv
	b.ReportAllocs()
	for i := range b.N {
		tag.Seq, back.Seq = uint32(i), uint32(i)
		m[0].Post(&r, 1, back, buf)
		if err := m[0].Send(1, tag, buf, time.Second); err != nil {
			b.Fatal(err)
		}
		if err := r.Wait(time.Second); err != nil {
			b.Fatal(err)
		}
	}
}

func TestSendThenPostThenBoth(t *testing.T) {
	m := New(2)
	var r transport.Recv
	dst := make([]byte, 3)
	for i, early := range []bool{true, false} {
		tag := transport.Tag{Seq: uint32(i)}
		if early {
			m[1].Post(&r, 0, tag, dst)
		}
		if err := m[0].Send(1, tag, []byte{1, 2, byte(i)}, time.Second); err != nil {
			t.Fatal(err)
		}
		if !early {
			m[1].Post(&r, 0, tag, dst)
		}
		if err := r.Wait(time.Second); err != nil || !bytes.Equal(dst, []byte{1, 2, byte(i)}) {
			t.Fatal(err, dst)
		}
	}
}
