package mem

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/transport"
)

// patience is for what must happen, on a machine that others use, too.
const patience = time.Minute

func BenchmarkPingPong(b *testing.B) {
	m := New(2)
	var tag, back transport.Tag
	buf, echo := make([]byte, 64), make([]byte, 64)
	go func() {
		var r transport.Recv
		for i := range b.N {
			t := transport.Tag{Seq: uint32(i)}
			m[1].Post(&r, 0, t, echo)
			if r.Wait(patience) != nil {
				return
			}
			m[1].Send(0, t, echo, patience)
		}
	}()
	var r transport.Recv
	b.ReportAllocs()
	for i := range b.N {
		tag.Seq, back.Seq = uint32(i), uint32(i)
		m[0].Post(&r, 1, back, buf)
		if err := m[0].Send(1, tag, buf, patience); err != nil {
			b.Fatal(err)
		}
		if err := r.Wait(patience); err != nil {
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
		if err := m[0].Send(1, tag, []byte{1, 2, byte(i)}, patience); err != nil {
			t.Fatal(err)
		}
		if !early {
			m[1].Post(&r, 0, tag, dst)
		}
		if err := r.Wait(patience); err != nil || !bytes.Equal(dst, []byte{1, 2, byte(i)}) {
			t.Fatal(err, dst)
		}
	}
}

// A message that waits for room shows that the ranks disagree as one that has
// arrived does.
func TestMismatchOfAMessageThatWaits(t *testing.T) {
	m := NewLimited(2, 1)
	sent := make(chan error, 1)
	go func() { sent <- m[0].Send(1, transport.Tag{Sig: 1}, []byte{7}, patience) }()
	var mismatch *transport.MismatchError
	dst := make([]byte, 1)
	for start := time.Now(); mismatch == nil; { // until the sender waits
		var r transport.Recv
		m[1].Post(&r, 0, transport.Tag{Part: 5, Sig: 2}, dst)
		if err := r.Wait(5 * time.Millisecond); !errors.As(err, &mismatch) && time.Since(start) > patience {
			t.Fatal(err)
		}
	}
	if *mismatch != (transport.MismatchError{Mine: 2, Theirs: 1}) {
		t.Error(mismatch)
	}
	var r transport.Recv
	m[1].Post(&r, 0, transport.Tag{Sig: 1}, dst)
	if err := r.Wait(patience); err != nil || dst[0] != 7 {
		t.Error(err, dst)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}
