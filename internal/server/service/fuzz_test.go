package service

import (
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/internal/server/message"
	"github.com/ringo-ml/ringo/internal/wire"
)

// Whatever a trainer that holds the ticket says after its greeting, the server
// survives, serves the others, and applies whole changes only.
func FuzzServer(f *testing.F) {
	push := frame(f, message.TypePushRows, message.Head{Number: 1, Step: 1, Count: 1}, make([]byte, 20))
	pull := frame(f, message.TypePullRows, message.Head{Number: 1, Step: 1, Count: 1, Code: message.Int8}, make([]byte, 8))
	f.Add(push)
	f.Add(append(slices.Clone(pull), push...))
	f.Add(append(slices.Clone(pull), push[:70]...))
	f.Add(frame(f, message.TypeClock, message.Head{Number: 1, Step: 1}, nil))
	f.Add(frame(f, message.TypeSetDense, message.Head{Number: 1, Count: 7, Table: 1}, make([]byte, 28)))
	f.Add(frame(f, message.TypePullDense, message.Head{Number: 3, Count: 7, Table: 1, Code: message.BF16}, nil))
	f.Add(frame(f, message.TypeGather, message.Head{Number: 3, Step: 1, Count: 2}, []byte("ab")))
	f.Add(frame(f, message.TypeGathered, message.Head{Step: 2, Count: 10}, message.AppendPart(nil, message.Part{Trainer: 1, Blob: []byte("ab")})))
	f.Add(frame(f, message.TypePushDense, message.Head{Number: 1, Step: 1, Count: 19, Table: 1, Code: message.Coded}, []byte{1, 2, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 3, 5, 0, 0, 128, 63, 0}))
	f.Add([]byte("garbage"))
	f.Fuzz(func(t *testing.T, b []byte) {
		w := start(t, 2, nil)
		good, _ := w.join(hello(0, 2))
		bad, _ := w.join(hello(1, 2))
		go func() {
			for {
				_, _, n, err := bad.Next()
				if err != nil {
					return
				}
				if _, err := bad.ReadAll(n); err != nil {
					return
				}
			}
		}()
		// A frame's header has a checksum that fuzzing would not find.
		b = slices.Clone(b)
		if len(b) >= wire.HeaderSize {
			h := wire.Header{Type: wire.Type(b[3]), Length: int(b[24]) | int(b[25])<<8}
			must(t, wire.PutHeader((*[wire.HeaderSize]byte)(b), h))
		}
		_, _ = bad.raw.Write(b)
		_ = bad.raw.Close()
		good.pulls(1, 1, 1)
		if n := len(good.gets(message.TypeRows, 1)); n != 12 {
			t.Fatalf("a row of %d bytes", n)
		}
	})
}
