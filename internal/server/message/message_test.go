package message

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/wire"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// limits of two tables and two arrays.
func testLimits() *Limits {
	return &Limits{Dims: []int{3, 16}, Arrays: []int{100, 7}, Keys: 50, Values: 400, Trainers: 3}
}

var goldenHello = Hello{
	Trainer: 2, Trainers: 3, Session: 1, Sessions: 2, Server: 4, Servers: 5, Incarnation: 0x0102030405060708, From: 9, Clock: 10,
	Hash: [32]byte{0: 0xaa, 31: 0xbb}, Job: "job 7", Settings: setting.Values{"sync": "ssp"},
}

var goldenWelcome = Welcome{Keys: 1 << 16, Values: 1 << 20, Pulls: 32, Last: 77, Heartbeat: time.Second, Silence: 10 * time.Second}

// The bytes on the wire do not change by accident: whoever changes them also changes
// Protocol.
func TestGoldenBytes(t *testing.T) {
	var head [HeadSize]byte
	PutHead(&head, Head{Number: 0x0102030405060708, Step: 0x1112131415161718, At: 0x2122232425262728, Count: 0x31323334, Table: 0x4142, Code: Int8})
	failure := &Failure{Reason: ReasonLost, Trainer: 5, Text: "gone"}
	for what, c := range map[string]struct {
		got  []byte
		want string
	}{
		"head": {head[:], "0807060504030201" + "1817161514131211" + "2827262524232221" + "34333231" + "4241" + "03" + "00"},
		"hello": {goldenHello.Append(nil), "07000000" + "02000000" + "03000000" + "01000000" + "02000000" + "04000000" + "05000000" + "05000b00" +
			"0807060504030201" + "0900000000000000" + "0a00000000000000" + "aa" + strings.Repeat("00", 30) + "bb" + "6a6f622037" + "0400" + "73796e63" + "0300" + "737370"},
		"welcome": {goldenWelcome.Append(nil), "07000000" + "00000100" + "00001000" + "20000000" + "4d00000000000000" + "e8030000" + "10270000"},
		"failure": {failure.Append(nil), "04000000" + "05000000" + "676f6e65"},
	} {
		if got := hex.EncodeToString(c.got); got != c.want {
			t.Errorf("%s: got %s, want %s", what, got, c.want)
		}
	}
	frame := make([]byte, Front+8)
	must(t, PutFront(frame, TypePullRows, Head{Number: 1, Count: 1}))
	const want = "7267" + "02" + "47" + "00000000" + "00000000" + "00000000" + "0000000000000000" + "28000000"
	if got := hex.EncodeToString(frame[:28]); got != want {
		t.Errorf("frame: got %s, want %s", got, want)
	}
}

func TestTypesKeepTheirNumbers(t *testing.T) {
	order := []wire.Type{
		TypeHello, TypeSchema, TypeWelcome, TypeNeedSchema, TypeFailure, TypeHeartbeat, TypeGoodbye,
		TypePullRows, TypePullDense, TypeSetDense, TypePushRows, TypePushDense, TypeClock, TypeLeave,
		TypeRows, TypeValues, TypeFailed, TypeAck, TypeGather, TypeGathered, TypeSave, TypeSaved,
	}
	for i, typ := range order {
		if typ != wire.FirstFree+wire.Type(i) {
			t.Errorf("%s is %d, want %d", Name(typ), typ, int(wire.FirstFree)+i)
		}
		sequenced := i >= 9 && i <= 13
		if Sequenced(typ) != sequenced {
			t.Errorf("%s: sequenced is %v", Name(typ), !sequenced)
		}
		fromTrainer := i == 0 || i == 1 || i == 5 || i >= 6 && i <= 13 || i >= 18 && i <= 20
		fromServer := i >= 2 && i <= 6 || i >= 14 && i != 18 && i != 20
		if Trainer.sends(typ) != fromTrainer || Server.sends(typ) != fromServer {
			t.Errorf("%s: a trainer sends it: %v, a server: %v", Name(typ), Trainer.sends(typ), Server.sends(typ))
		}
	}
	if last := TypeSaved + 1; Trainer.sends(last) || Server.sends(last) || Trainer.sends(wire.Data) || Server.sends(wire.Data) {
		t.Error("an unknown type may be sent")
	}
	if len(typeNames) != len(order) || Name(wire.Data) != "data" {
		t.Errorf("%d names for %d types", len(typeNames), len(order))
	}
}

func TestHeadRoundTrip(t *testing.T) {
	for _, h := range []Head{{}, {Number: 1<<64 - 1, Step: 1<<64 - 1, At: 1<<64 - 1, Count: 1<<32 - 1, Table: 1<<16 - 1, Code: 255}} {
		var b [HeadSize]byte
		PutHead(&b, h)
		if got, err := ParseHead(&b); err != nil || got != h {
			t.Errorf("got %+v, %v, want %+v", got, err, h)
		}
		b[31] = 1
		if _, err := ParseHead(&b); !errors.Is(err, ErrMalformed) {
			t.Errorf("a head that ends with 1: %v", err)
		}
	}
}

func TestHelloRoundTrip(t *testing.T) {
	one := Hello{Trainers: 1, Sessions: 1, Servers: 1, Incarnation: 1, From: 1}
	most := Hello{Trainer: 511, Trainers: 512, Session: 1, Sessions: 2, Server: 65535, Servers: 65536, Incarnation: 1<<64 - 1, From: 1<<64 - 1, Clock: 1<<64 - 1, Job: strings.Repeat("ü", MaxJob/2), Settings: setting.Values{"a": strings.Repeat("x", 4096), "b": ""}}
	reader := one
	reader.Reader = true
	for _, h := range []Hello{one, most, goldenHello, reader} {
		b := h.Append(nil)
		if got, err := ParseHello(b); err != nil || !reflect.DeepEqual(got, h) {
			t.Errorf("got %+v, %v, want %+v", got, err, h)
		}
		for n := range len(b) {
			if _, err := ParseHello(b[:n]); !errors.Is(err, ErrMalformed) {
				t.Errorf("%d of %d bytes: %v", n, len(b), err)
			}
		}
	}
	b := one.Append(nil)
	b[0] = Protocol + 1
	if _, err := ParseHello(b); !errors.Is(err, ErrProtocol) || !strings.Contains(err.Error(), "this end speaks 7") {
		t.Errorf("another version: %v", err)
	}
}

func TestHelloFaults(t *testing.T) {
	for says, change := range map[string]func(h *Hello){
		"trainer 3 of 3":    func(h *Hello) { h.Trainer = 3 },
		"trainer 0 of 1025": func(h *Hello) { h.Trainer, h.Trainers = 0, 1025 },
		"session 2 of 2":    func(h *Hello) { h.Session = 2 },
		"session 0 of 0":    func(h *Hello) { h.Session, h.Sessions = 0, 0 },
		"server 5 of 5":     func(h *Hello) { h.Server = 5 },
		"at most 1024":      func(h *Hello) { h.Trainers, h.Sessions = 513, 2 },
		"process number 0":  func(h *Hello) { h.Incarnation = 0 },
		"number 0":          func(h *Hello) { h.From = 0 },
		"the job":           func(h *Hello) { h.Job = "a\x1b[31m" },
		"256 bytes":         func(h *Hello) { h.Job = strings.Repeat("j", 257) },
		"be printed":        func(h *Hello) { h.Job = "two\nlines" },
		"setting a with":    func(h *Hello) { h.Settings = setting.Values{"a": "\x1b"} },
	} {
		h := goldenHello
		change(&h)
		if err := h.Validate(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, want it to say %q", h, err, says)
		}
		if _, err := ParseHello(h.Append(nil)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%+v is read: %v", h, err)
		}
	}
}

func TestWelcomeRoundTrip(t *testing.T) {
	b := goldenWelcome.Append(nil)
	if got, err := ParseWelcome(b); err != nil || got != goldenWelcome {
		t.Errorf("got %+v, %v, want %+v", got, err, goldenWelcome)
	}
	for n := range len(b) {
		if _, err := ParseWelcome(b[:n]); !errors.Is(err, ErrMalformed) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	for says, change := range map[string]func(w *Welcome){
		"keys of a message 0":           func(w *Welcome) { w.Keys = 0 },
		"values of a message 134217729": func(w *Welcome) { w.Values = 1<<27 + 1 },
		"pulls of a connection 0":       func(w *Welcome) { w.Pulls = 0 },
		"ms between heartbeats 0":       func(w *Welcome) { w.Heartbeat = 0 },
		"ms of silence 1999":            func(w *Welcome) { w.Silence = 1999 * time.Millisecond },
	} {
		w := goldenWelcome
		change(&w)
		if _, err := ParseWelcome(w.Append(nil)); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, want it to say %q", w, err, says)
		}
	}
}

func TestFailureRoundTrip(t *testing.T) {
	conflict := &setting.ConflictError{Over: setting.Disagreements{{Path: "sync", Process: "server 0", Text: "bsp", Other: "trainer 1", OtherText: "ssp"}}}
	for _, f := range []*Failure{{Reason: ReasonMismatch, Text: "a\nb"}, {Reason: ReasonFailed, Trainer: MaxSessions - 1}, {Reason: ReasonSettings, Text: conflict.Error(), Over: conflict.Over}} {
		if got, err := ParseFailure(f.Append(nil)); err != nil || !reflect.DeepEqual(got, f) {
			t.Errorf("got %+v, %v, want %+v", got, err, f)
		}
	}
	long := &Failure{Reason: ReasonFailed, Text: strings.Repeat("é", MaxText) + "x"}
	got, err := ParseFailure(long.Append(nil))
	if err != nil || got.Text != strings.Repeat("é", MaxText/2) {
		t.Errorf("a long text became %d bytes, %v", len(got.Text), err)
	}
	if cut := CutText("x" + long.Text); len(cut) != MaxText-1 {
		t.Errorf("cut in a letter: %d bytes", len(cut))
	}
	b := (&Failure{Reason: ReasonFailed, Text: "\x1b[31m"}).Append(nil)
	if got, err := ParseFailure(b); err != nil || got.Error() != "?[31m" {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range [][]byte{nil, b[:7], append(slices.Clone(b), make([]byte, MaxText)...), append([]byte{0}, b[1:]...), append([]byte{6}, b[1:]...), append([]byte{7}, b[1:]...), {5, 0, 1, 0, 0, 0, 0, 0}, {5, 0, 0, 0, 0, 4, 0, 0}} {
		if _, err := ParseFailure(bad); !errors.Is(err, ErrMalformed) {
			t.Errorf("% x: %v", bad, err)
		}
	}
}

// Lengths follow from heads alone, and heads that have no meaning are refused.
func TestLimits(t *testing.T) {
	l := testLimits()
	rate := math.Float64bits(0.1)
	for _, c := range []struct {
		t    wire.Type
		h    Head
		want int    // -1: refused
		says string // then
	}{
		{TypePullRows, Head{Count: 50, Table: 0}, 400, ""},
		{TypePullRows, Head{Count: 25, Table: 1, Code: FP16}, 200, ""},
		{TypePullRows, Head{Count: 51}, -1, "51 keys, the limit is 50"},
		{TypePullRows, Head{Count: 26, Table: 1}, -1, "26 rows of 16 values"},
		{TypePullRows, Head{Count: 1, Table: 2}, -1, "sparse table 2"},
		{TypePullRows, Head{Count: 1, Code: Int8 + 1}, -1, "code 4"},
		{TypePullRows, Head{Count: 1, At: Peek}, 8, ""},
		{TypePullRows, Head{Count: 1, At: 2}, -1, "at 2"},
		{TypePushRows, Head{Number: 1, Count: 1, At: Peek}, -1, "at 1"},
		{TypeRows, Head{Count: 1, At: 1 << 40}, 12, ""},
		{TypePushRows, Head{Number: 1, Count: 10}, 10*8 + 10*3*4, ""},
		{TypePushRows, Head{Number: 1, Count: 10, Code: BF16}, 10*8 + 10*3*2, ""},
		{TypePushRows, Head{Number: 1, Count: 1, Code: Int8}, 8 + 4 + 3, ""},
		{TypePushRows, Head{Count: 1}, -1, "number 0"},
		{TypeRows, Head{Count: 20, Table: 1, Code: Int8}, 320 + 2*4, ""},
		{TypeRows, Head{Count: 0}, 0, ""},
		{TypePullDense, Head{Count: 100}, 0, ""},
		{TypePullDense, Head{Count: 7, Table: 1, At: 1}, -1, "7 values at 1 of array 1, which has 7"},
		{TypePullDense, Head{Count: 0, Table: 1, At: 1 << 63}, -1, "array 1"},
		{TypePullDense, Head{Table: 2}, -1, "dense array 2"},
		{TypeSetDense, Head{Number: 1, Count: 7, Table: 1}, 28, ""},
		{TypeSetDense, Head{Number: 1, Count: 7, Table: 1, Code: FP16}, -1, "fp16"},
		{TypeSetDense, Head{Number: 1, Count: 7, Table: 1, Step: 1}, -1, "step 1"},
		{TypePushDense, Head{Number: 1, Count: 60, At: 40, Code: FP16}, 120, ""},
		{TypeValues, Head{Count: 60, At: 40}, 240, ""},
		{TypeValues, Head{Count: 60, At: 41}, -1, "60 values at 41"},
		{TypeClock, Head{Number: 1, Step: 5, At: rate}, 0, ""},
		{TypeClock, Head{Number: 1, Step: 5, At: math.Float64bits(math.NaN())}, -1, "NaN"},
		{TypeClock, Head{Number: 1, Step: 5, Count: 1}, -1, "clock with the head"},
		{TypeLeave, Head{Number: 1}, 0, ""},
		{TypeLeave, Head{Number: 1, Step: 1}, -1, "leave with the head"},
		{TypeAck, Head{Number: 1}, 0, ""},
		{TypeAck, Head{Number: 1, Table: 1}, -1, "acknowledgement with the head"},
		{TypeFailed, Head{Number: 1, Step: 3, Table: 9, Count: MaxText}, MaxText, ""},
		{TypeFailed, Head{Number: 1, Count: MaxText + 1}, -1, "1025 bytes"},
		{TypeGather, Head{Number: 4, Step: 1, Count: MaxBlob}, MaxBlob, ""},
		{TypeGather, Head{Number: 4, Step: 1, Count: MaxBlob + 1}, -1, "of 262145 bytes"},
		{TypeGather, Head{Number: 4}, -1, "meeting number 0"},
		{TypeGather, Head{Step: 1, Code: FP16}, -1, "meeting with the head"},
		{TypeGathered, Head{Number: 4, Step: 1, Count: 3 * (MaxBlob + 8)}, 3 * (MaxBlob + 8), ""},
		{TypeGathered, Head{Step: 1, Count: 3*(MaxBlob+8) + 1}, -1, "the limit is 786456 bytes"},
		{TypeHello, Head{}, -1, "hello frame has no head"},
	} {
		body, err := l.Check(c.t, c.h)
		if c.want < 0 {
			if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s %+v: %d, %v, want it to say %q", Name(c.t), c.h, body, err, c.says)
			}
			continue
		}
		if err != nil || body != c.want {
			t.Errorf("%s %+v: %d, %v, want %d", Name(c.t), c.h, body, err, c.want)
		}
		if body+HeadSize > l.longest(c.t) {
			t.Errorf("%s %+v is longer than the longest, %d", Name(c.t), c.h, l.longest(c.t))
		}
	}
}

func TestValues(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for code := FP32; code.Valid(); code++ {
		if again, err := ParseCode(code.String()); err != nil || again != code {
			t.Errorf("%v: %v, %v", code, again, err)
		}
		for _, n := range []int{0, 1, 15, 16, 255, 256, 257, 5000} {
			x, got := make([]float32, n), make([]float32, n)
			for i := range x {
				x[i] = float32(r.NormFloat64())
			}
			b := make([]byte, code.Size(n))
			must(t, code.Encode(b, x))
			must(t, code.Decode(got, b))
			tolerance := map[Code]float64{FP32: 0, FP16: 1e-3, BF16: 1e-2, Int8: 0.03}[code]
			for i := range x {
				if math.Abs(float64(x[i]-got[i])) > tolerance*max(1, math.Abs(float64(x[i]))) {
					t.Fatalf("%v, %d values: %v became %v", code, n, x[i], got[i])
				}
			}
		}
		nan := []float32{1, float32(math.NaN())}
		if err := code.Encode(make([]byte, code.Size(2)), nan); err == nil || !errors.As(err, new(*compress.ValueError)) {
			t.Errorf("%v takes NaN: %v", code, err)
		}
	}
	if _, err := ParseCode("fp8"); err == nil {
		t.Error("fp8 is a code")
	}
	if err := Int8.Decode(make([]float32, 1), []byte{255, 255, 255, 255, 0}); !errors.Is(err, ErrMalformed) {
		t.Errorf("a scale that is NaN: %v", err)
	}
}

// Rows that are pushed with counts have these as they are, in every code, and take the length that
// limits say.
func TestRowsWithCounts(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	l := testLimits()
	l.Counts = []int{2, 0}
	var in, out []float32
	for c := FP32; c.Valid(); c++ {
		for _, n := range []int{0, 1, 2, 7, 50} {
			const dim, counts = 3, 2
			x := make([]float32, n*(dim+counts))
			for i := range x {
				if x[i] = r.Float32() - 0.5; i%(dim+counts) >= dim {
					x[i] = float32(r.IntN(1 << 24))
				}
			}
			body, err := l.Check(TypePushRows, Head{Number: 1, Count: n, Code: c})
			must(t, err)
			b := make([]byte, body)
			in, err = c.EncodeRows(b, x, dim, counts, in)
			must(t, err)
			got := make([]float32, len(x))
			out, err = c.DecodeRows(got, b, dim, counts, out)
			must(t, err)
			plain := make([]float32, 0, n*dim) // gradients as a table without counts has them
			for i := range n {
				plain = append(plain, x[i*(dim+counts):][:dim]...)
			}
			coded := make([]byte, c.Size(len(plain)))
			must(t, c.Encode(coded, plain))
			must(t, c.Decode(plain, coded))
			for i := range got {
				want := x[i]
				if row, j := i/(dim+counts), i%(dim+counts); j < dim {
					want = plain[row*dim+j]
				}
				if got[i] != want {
					t.Fatalf("%v, %d rows: value %d is %v, want %v", c, n, i, got[i], want)
				}
			}
		}
		if body, err := l.Check(TypePushRows, Head{Number: 1, Count: 2, Table: 1, Code: c}); err != nil || body != 16+c.Size(32) {
			t.Errorf("%v: a table without counts: %d bytes, %v", c, body, err)
		}
		if body, err := l.Check(TypeRows, Head{Count: 2, Code: c}); err != nil || body != c.Size(6) {
			t.Errorf("%v: rows that are pulled: %d bytes, %v", c, body, err)
		}
	}
	l.Values = 10
	if _, err := l.Check(TypePushRows, Head{Number: 1, Count: 3}); !errors.Is(err, ErrMalformed) {
		t.Errorf("3 rows of 3 values and 2 counts within 10: %v", err)
	}
}

func TestViewsAndBuffers(t *testing.T) {
	keys := []uint64{1, 1 << 63, 7}
	if got := bytesview.As[uint64](bytesview.Bytes(keys)); !slices.Equal(got, keys) {
		t.Error(got)
	}
	x := []float32{1.5, -2}
	if got := bytesview.Bytes(x); hex.EncodeToString(got) != "0000c03f000000c0" || !slices.Equal(bytesview.As[float32](got), x) {
		t.Errorf("%x", got)
	}
	var b Buffer
	for _, n := range []int{1, 100, 50, 1000, 0} {
		got := b.Sized(n)
		if len(got) != n {
			t.Errorf("%d bytes for %d", len(got), n)
		}
		if n > 0 && address(got)%lineSize != 0 {
			t.Errorf("%d bytes begin within a cache line", n)
		}
	}
	if n := testing.AllocsPerRun(10, func() { b.Sized(1000) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzHello(f *testing.F) {
	f.Add(goldenHello.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := ParseHello(b); err == nil && !bytes.Equal(h.Append(nil), b) {
			t.Fatalf("% x is read as %+v", b, h)
		}
	})
}

func FuzzWelcome(f *testing.F) {
	f.Add(goldenWelcome.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if w, err := ParseWelcome(b); err == nil && !bytes.Equal(w.Append(nil), b) {
			t.Fatalf("% x is read as %+v", b, w)
		}
	})
}

func FuzzFailure(f *testing.F) {
	f.Add((&Failure{Reason: ReasonLost, Trainer: 3, Text: "gone"}).Append(nil))
	f.Add((&Failure{Reason: ReasonSettings, Over: setting.Disagreements{{Path: "sync", Process: "server 0", Text: "bsp", Other: "trainer 1"}}}).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		g, err := ParseFailure(b)
		if err == nil && strings.ContainsAny(g.Error(), "\x00\x1b\r") {
			t.Fatalf("% x says %q", b, g.Error())
		}
	})
}

// Whatever head comes, it is refused or implies a length within the limit.
func FuzzHead(f *testing.F) {
	var b [HeadSize]byte
	PutHead(&b, Head{Number: 1, Step: 2, Count: 20, Table: 1, Code: FP16})
	for typ := TypePullRows; typ <= TypeGathered; typ++ {
		f.Add(byte(typ), bytes.Clone(b[:]))
	}
	f.Fuzz(func(t *testing.T, typ byte, p []byte) {
		if len(p) != HeadSize {
			return
		}
		l := testLimits()
		h, err := ParseHead((*[HeadSize]byte)(p))
		if err != nil {
			return
		}
		var again [HeadSize]byte
		if PutHead(&again, h); !bytes.Equal(again[:], p) {
			t.Fatalf("% x is read as %+v", p, h)
		}
		body, err := l.Check(wire.Type(typ), h)
		if err == nil && (body < 0 || HeadSize+body > l.longest(wire.Type(typ))) {
			t.Fatalf("%s %+v stands for %d bytes, the longest is %d", Name(wire.Type(typ)), h, body, l.longest(wire.Type(typ)))
		}
	})
}

// The buffer that fits best is the smallest with room, else the largest; of equals the last.
func TestFitting(t *testing.T) {
	for _, c := range []struct {
		rooms   []int
		n, want int
	}{
		{nil, 5, -1}, {[]int{0}, 5, 0}, {[]int{9, 5, 7}, 5, 1}, {[]int{9, 5, 7}, 6, 2}, {[]int{9, 5, 7}, 10, 0},
		{[]int{0, 0, 0}, 1, 2}, {[]int{8, 3, 8}, 4, 2}, {[]int{3, 8, 3}, 9, 1}, {[]int{3, 0, 3}, 0, 1},
	} {
		if got := Fitting(len(c.rooms), c.n, func(i int) int { return c.rooms[i] }); got != c.want {
			t.Errorf("%d bytes and room for %v: buffer %d, want %d", c.n, c.rooms, got, c.want)
		}
	}
	var b Buffer
	if b.Room() != 0 {
		t.Errorf("room for %d bytes in nothing", b.Room())
	}
	b.Sized(1000)
	room := b.Room()
	if first := &b.Sized(room)[0]; room < 1000 || first != &b.Sized(1)[0] {
		t.Errorf("room for %d bytes of 1000", room)
	}
}
