package wire_test

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/ringo-ml/ringo/internal/wire"
)

// A header is checked before its length is used.
func ExampleParseHeader() {
	var b [wire.HeaderSize]byte
	if err := wire.PutHeader(&b, wire.Header{Type: wire.Data, Group: 1, Seq: 7, Length: 4096}); err != nil {
		fmt.Println(err)
		return
	}
	h, err := wire.ParseHeader(&b, wire.MaxPayload)
	fmt.Println(h.Seq, h.Length, err)
	b[27] = 0xff // a length of gigabytes
	_, err = wire.ParseHeader(&b, wire.MaxPayload)
	fmt.Println(errors.Is(err, wire.ErrChecksum))
	// Output:
	// 7 4096 <nil>
	// true
}

// Each side first sends a preface with a fixed layout.
func ExampleReadPreface() {
	b, err := wire.AppendPreface(nil, "0.1.0")
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := wire.ReadPreface(bytes.NewReader(b))
	fmt.Println(p.Version, err)
	_, err = wire.ReadPreface(bytes.NewReader([]byte("GET / HTTP/1.1\r\n")))
	fmt.Println(errors.Is(err, wire.ErrPreface))
	// Output:
	// 0.1.0 <nil>
	// true
}
