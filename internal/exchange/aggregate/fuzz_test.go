package aggregate

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/exchange"
	"github.com/ringo-ml/ringo/internal/transport/mem"
)

// Whatever comes as a head or a size is refused or what was encoded.
func FuzzHead(f *testing.F) {
	var b [headBytes]byte
	for _, h := range []head{
		{kind: kindLeave}, {kind: kindSparse, code: 4, block: 256, lo: 5, n: 100, segment: 1024}, {code: 200, block: 6, n: 1 << 30, segment: 6},
	} {
		h.encode(&b)
		f.Add(bytes.Clone(b[:]))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		if len(p) != headBytes {
			return
		}
		h, err := decodeHead((*[headBytes]byte)(p))
		if err != nil {
			return
		}
		var again [headBytes]byte
		if h.encode(&again); string(again[:]) != string(p) {
			t.Fatalf("%x decodes to %+v, which encodes to %x", p, h, again)
		}
		if h.kind == kindLeave {
			return
		}
		for _, servers := range []int{1, 3} {
			l := h.layout(servers)
			for s := range servers {
				if lo, hi := l.bounds(s); lo < 0 || hi < lo || hi > h.n {
					t.Fatalf("%v: server %d has %d to %d", h, s, lo, hi)
				}
			}
		}
	})
}

// A server survives whatever is pushed: it ends with an error or serves it, and
// needs no more memory than what was said can take.
func FuzzServer(f *testing.F) {
	var b [headBytes]byte
	head{kind: kindSparse, code: compress.CodeFP32, block: 1, n: 100, segment: 1000}.encode(&b)
	f.Add(bytes.Clone(b[:]), []byte{16, 0, 0, 0, 0, 0, 0, 0}, []byte("\x01\x02\x00\x00\x64\x00\x00\x00\x01\x00\x00\x00\x03\x07\x00\x00\x80\x3f"))
	head{kind: kindDense, code: compress.CodeSign, block: 256, n: 100, segment: 1000}.encode(&b)
	f.Add(bytes.Clone(b[:]), []byte{}, make([]byte, 17))
	f.Fuzz(func(t *testing.T, h, sz, body []byte) {
		if said, err := decodeHead((*[headBytes]byte)(append(append([]byte(nil), h...), make([]byte, headBytes)...))); err == nil && said.n > 1<<16 {
			return // it would wait for the rest
		}
		meshes := mem.New(2)
		defer closeAll(meshes)
		s, err := NewServer(meshes[1], Config{Trainers: 1, Timeout: 10 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		_ = meshes[0].Send(1, headTag(0), h, time.Second)
		_ = meshes[0].Send(1, sizeTag(0, 0), sz, time.Second)
		_ = meshes[0].Send(1, bodyTag(0, 0), body, time.Second)
		_ = meshes[0].Send(1, headTag(1), []byte("no head"), time.Second)
		if s.Run(context.Background()) == nil {
			var leave [headBytes]byte
			if (head{kind: kindLeave}).encode(&leave); string(h) != string(leave[:]) {
				t.Fatalf("%x is served to its end", h)
			}
		}
	})
}

// A client survives whatever a server answers, dense and sparse: it has a sum or an
// error.
func FuzzClient(f *testing.F) {
	q := Codes()
	f.Add(byte(0), []byte{212, 0, 0, 0, 0, 0, 0, 0}, make([]byte, 212))
	f.Add(byte(1), []byte("\x12\x00\x00\x00\x00\x00\x00\x00"), []byte("\x01\x02\x00\x00\x32\x00\x00\x00\x01\x00\x00\x00\x03\x07\x00\x00\x80\x3f"))
	for i, code := range q {
		f.Add(byte(2*i), []byte{}, make([]byte, code.Size(50)))
	}
	f.Fuzz(func(t *testing.T, what byte, sz, body []byte) {
		meshes := mem.New(2)
		defer closeAll(meshes)
		c, err := NewClient(meshes[0], Config{Trainers: 1, Timeout: 10 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		op := &exchange.Request{X: make([]float32, 50), Code: q[int(what)/2%len(q)]}
		if what%2 == 1 {
			op.Sparse = &compress.Sparse{Len: 50}
			_ = meshes[1].Send(0, sizeTag(0, 0), sz, time.Second)
		}
		_ = meshes[1].Send(0, bodyTag(0, 0), body, time.Second)
		err = reduce(c, op)
		if fits := len(body) == op.Code.Size(50); op.Sparse == nil && err == nil && !fits {
			t.Fatalf("%d bytes are taken for 50 values of %s", len(body), op.Code.Name())
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
