package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// The bytes on the wire are fixed: a change also changes Version or HandshakeVersion.
func TestGoldenBytes(t *testing.T) {
	var b [HeaderSize]byte
	h := Header{Type: Data, Group: 0x01020304, Seq: 0x05060708, Part: 0x090a0b0c, Sig: 0x1112131415161718, Length: 0x0d0e0f10}
	if err := PutHeader(&b, h); err != nil {
		t.Fatal(err)
	}
	const header = "7267" + "02" + "01" + "04030201" + "08070605" + "0c0b0a09" + "1817161514131211" + "100f0e0d" + "68cad8de"
	if got := hex.EncodeToString(b[:]); got != header {
		t.Errorf("header: got %s, want %s", got, header)
	}
	p, err := AppendPreface(nil, "0.1.0")
	if err != nil {
		t.Fatal(err)
	}
	const preface = "8b72696e676f0d0a" + "03" + "05" + "302e312e30"
	if got := hex.EncodeToString(p); got != preface {
		t.Errorf("preface: got %s, want %s", got, preface)
	}
}

func TestTypesKeepTheirNumbers(t *testing.T) {
	for i, want := range []Type{Data, Goodbye, Abort, Hello, Proof, Refusal, Summed} {
		if int(want) != i+1 {
			t.Errorf("%v is %d, want %d", want, int(want), i+1)
		}
	}
	for typ, want := range map[Type]string{Data: "data", Refusal: "refusal", 0: "type 0", FirstFree: "type 64"} {
		if typ.String() != want {
			t.Errorf("type %d is called %q, want %q", int(typ), typ, want)
		}
	}
}

func TestHeaderRoundTrip(t *testing.T) {
	for _, h := range []Header{
		{}, {Type: Goodbye}, {Type: 255, Group: 1<<32 - 1, Seq: 1<<32 - 1, Part: 1<<32 - 1, Sig: 1<<64 - 1, Length: MaxPayload},
	} {
		var b [HeaderSize]byte
		if err := PutHeader(&b, h); err != nil {
			t.Fatal(err)
		}
		if got, err := ParseHeader(&b, MaxPayload); err != nil || got != h {
			t.Errorf("got %+v, %v, want %+v", got, err, h)
		}
	}
}

// A payload's sum is the CRC-32C, for every cut.
func TestSum(t *testing.T) {
	p := []byte("123456789")
	for cut := range len(p) + 1 {
		if got := Sum(Sum(0, p[:cut]), p[cut:]); got != 0xe3069283 { // the check value of RFC 3720
			t.Errorf("cut at %d: %#x", cut, got)
		}
	}
}

func TestHeaderFaults(t *testing.T) {
	var good [HeaderSize]byte
	for _, n := range []int{-1, MaxPayload + 1} {
		if err := PutHeader(&good, Header{Length: n}); !errors.Is(err, ErrTooLong) {
			t.Errorf("a length of %d: %v", n, err)
		}
	}
	if err := PutHeader(&good, Header{Type: Data, Length: 1000}); err != nil {
		t.Fatal(err)
	}
	if _, err := ParseHeader(&good, 999); !errors.Is(err, ErrTooLong) || !strings.Contains(err.Error(), "data frame of 1000 bytes, the limit is 999") {
		t.Errorf("got %v", err)
	}
	for bit := range 8 * HeaderSize {
		b := good
		b[bit/8] ^= 1 << (bit % 8)
		want := ErrChecksum
		switch bit / 8 {
		case 0, 1:
			want = ErrMagic
		case 2:
			want = ErrVersion
		}
		if _, err := ParseHeader(&b, MaxPayload); !errors.Is(err, want) {
			t.Errorf("bit %d is wrong: got %v, want %v", bit, err, want)
		}
	}
}

func TestPreface(t *testing.T) {
	p, err := AppendPreface(nil, "1.2.3-rc1")
	if err != nil {
		t.Fatal(err)
	}
	r := bytes.NewReader(append(p, "rest"...))
	got, err := ReadPreface(iotest.OneByteReader(r))
	if err != nil || got != (Preface{HandshakeVersion, "1.2.3-rc1"}) || r.Len() != 4 {
		t.Errorf("got %+v, %v, %d bytes left", got, err, r.Len())
	}
	for n := range len(p) {
		_, err := ReadPreface(bytes.NewReader(p[:n]))
		if n == 0 && err != io.EOF || n > 0 && err != io.ErrUnexpectedEOF {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	for _, v := range []string{"", strings.Repeat("x", MaxVersion+1)} {
		if _, err := AppendPreface(nil, v); err == nil {
			t.Errorf("a version of %d bytes is accepted", len(v))
		}
	}
}

// A stranger is recognised at the first wrong byte, without waiting.
func TestPrefaceOfStrangers(t *testing.T) {
	for _, s := range []string{"G", "\n", "\x8br1", "\x8bringo\n", "\x8bringo\r\n\x01\x00", "\x8bringo\r\n\x01\x41"} {
		never := iotest.ErrReader(errors.New("read beyond"))
		if _, err := ReadPreface(io.MultiReader(strings.NewReader(s), never)); !errors.Is(err, ErrPreface) {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func FuzzParseHeader(f *testing.F) {
	var b [HeaderSize]byte
	PutHeader(&b, Header{Type: Abort, Part: 3, Sig: 1 << 40, Length: 17})
	f.Add(b[:], 100)
	f.Add(make([]byte, HeaderSize), 0)
	f.Fuzz(func(t *testing.T, p []byte, limit int) {
		if len(p) < HeaderSize {
			return
		}
		in := (*[HeaderSize]byte)(p)
		h, err := ParseHeader(in, limit)
		if err != nil {
			return
		}
		if h.Length < 0 || h.Length > limit || h.Length > MaxPayload {
			t.Fatalf("%+v is beyond the limit %d", h, limit)
		}
		var out [HeaderSize]byte
		if err := PutHeader(&out, h); err != nil || out != *in {
			t.Fatalf("% x is written as % x, %v", in[:], out[:], err)
		}
	})
}

func FuzzReadPreface(f *testing.F) {
	p, _ := AppendPreface(nil, "0.1.0")
	f.Add(p)
	f.Add([]byte("GET / HTTP/1.1\r\n"))
	f.Fuzz(func(t *testing.T, p []byte) {
		r := bytes.NewReader(p)
		got, err := ReadPreface(r)
		if err != nil {
			return
		}
		again, err := AppendPreface(nil, got.Version)
		used := p[:len(p)-r.Len()]
		if err != nil || len(again) != len(used) || got.Handshake == HandshakeVersion && !bytes.Equal(again, used) {
			t.Fatalf("% x is written as % x, %v", used, again, err)
		}
	})
}

func BenchmarkHeader(b *testing.B) {
	var buf [HeaderSize]byte
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if err := PutHeader(&buf, Header{Type: Data, Seq: uint32(i), Length: 1000}); err != nil {
			b.Fatal(err)
		}
		if _, err := ParseHeader(&buf, MaxPayload); err != nil {
			b.Fatal(err)
		}
	}
}
