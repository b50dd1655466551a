package transport

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
)

func TestTicket(t *testing.T) {
	a, b := NewTicket(), NewTicket()
	if bytes.Equal(a, b) || len(a) != 32 || len(a.String()) != 64 {
		t.Errorf("tickets %v and %v", a, b)
	}
	if got, err := ParseTicket(" " + a.String() + "\n"); err != nil || !bytes.Equal(got, a) {
		t.Errorf("got %v, %v", got, err)
	}
	for _, s := range []string{"", "abc", strings.Repeat("g", 64), a.String()[2:], a.String() + "00"} {
		_, err := ParseTicket(s)
		if err == nil || !strings.Contains(err.Error(), "64 hexadecimal digits") {
			t.Errorf("%q: got %v", s, err)
		}
		if len(s) > 3 && strings.Contains(err.Error(), s[:4]) {
			t.Errorf("the error shows the secret: %v", err)
		}
	}
}

// The proof covers every part of what was said, where one part ends, and who
// speaks. The golden value holds the handshake of released versions together.
func TestProof(t *testing.T) {
	ticket := Ticket(bytes.Repeat([]byte{7}, 32))
	proofs := map[string]bool{}
	for _, p := range [][]byte{
		ticket.prove("dial", []byte("ab"), []byte("c")),
		ticket.prove("accept", []byte("ab"), []byte("c")),
		ticket.prove("dial", []byte("a"), []byte("bc")),
		ticket.prove("dial", []byte("abc")),
		NewTicket().prove("dial", []byte("ab"), []byte("c")),
	} {
		proofs[string(p)] = true
	}
	if len(proofs) != 5 {
		t.Errorf("only %d of 5 proofs differ", len(proofs))
	}
	const golden = "4d4bda7e0ba19227710e26da7d8a131ad2f6414a7c28881fee8f749cdad1db8c"
	if got := hex.EncodeToString(ticket.prove("dial", []byte("ab"), []byte("c"))); got != golden {
		t.Errorf("got %s, want %s", got, golden)
	}
}

func TestHelloRoundTrip(t *testing.T) {
	nonce := bytes.Repeat([]byte{9}, nonceBytes)
	for _, h := range []Hello{
		{Purpose: Control, Rank: -1},
		{Purpose: MeshLink, Rank: 1<<31 - 1, WorldSize: 1<<31 - 1, Addr: strings.Repeat("a", maxAddr), Streams: 255, Stream: 254},
	} {
		b, err := appendHello(nil, h, nonce)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := parseHello(b); err != nil || got != h {
			t.Errorf("got %+v, %v, want %+v", got, err, h)
		}
		for n := range len(b) {
			if _, err := parseHello(b[:n]); !errors.Is(err, errHello) {
				t.Errorf("%d of %d bytes: %v", n, len(b), err)
			}
		}
		if _, err := parseHello(append(b, 0)); !errors.Is(err, errHello) {
			t.Errorf("one byte too many: %v", err)
		}
	}
	for _, h := range []Hello{{Rank: -2}, {WorldSize: 1 << 31}, {Addr: strings.Repeat("a", maxAddr+1)}, {Streams: 256}, {Stream: -1}} {
		if _, err := appendHello(nil, h, nonce); err == nil {
			t.Errorf("%+v is accepted", h)
		}
	}
}

func FuzzParseHello(f *testing.F) {
	b, _ := appendHello(nil, Hello{Purpose: MeshLink, Rank: 3, WorldSize: 4, Addr: "127.0.0.1:1"}, make([]byte, nonceBytes))
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseHello(b)
		if err != nil {
			return
		}
		if again, err := appendHello(nil, h, b[:nonceBytes]); err != nil || !bytes.Equal(again, b) {
			t.Fatalf("% x is written as % x, %v", b, again, err)
		}
	})
}

func FuzzParseRefusal(f *testing.F) {
	f.Add([]byte("\x03no"))
	f.Fuzz(func(t *testing.T, b []byte) {
		err := parseRefusal(b)
		if !errors.Is(err, ErrRefused) || strings.ContainsAny(err.Error(), "\x00\x1b\r\n") {
			t.Fatalf("%q: %v", b, err)
		}
	})
}
