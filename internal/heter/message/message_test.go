package message

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/heter"
	"github.com/ringo-ml/ringo/internal/server/message"
	"github.com/ringo-ml/ringo/internal/wire"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// testCut has a tensor whose gradient comes back and one whose does not.
func testCut() *heter.Cut {
	return &heter.Cut{In: []heter.CutTensor{{Name: "rows", Shape: []int{5}, Grad: true}, {Name: "values", Shape: []int{2, 3}}}, Out: []int{2}, Labels: 1, Targets: 2}
}

// testMicro is a micro-batch of n samples with numbers in it.
func testMicro(c *heter.Cut, n int) *heter.MicroBatch {
	m := &heter.MicroBatch{}
	m.Size(c, n)
	m.Seed, m.Loss, m.Terms, m.Correct = 0.25, 1.5, n, n-1
	for i := range m.Labels {
		m.Labels[i] = int32(i)
	}
	for _, x := range append(slices.Clone(m.In), m.Targets, m.Out, m.Grads[0]) {
		for i := range x {
			x[i] = float32(i) - 0.5
		}
	}
	return m
}

// What is written is read back, and how long it is follows from the samples.
func TestRoundTrip(t *testing.T) {
	c := testCut()
	m := testMicro(c, 3)
	for _, code := range []message.Code{message.FP32, message.BF16} {
		l := Layout{c, code}
		there := make([]byte, l.RequestBytes(3))
		if err := l.Micro(there, m, 7, 9); err != nil {
			t.Fatal(err)
		}
		var got heter.MicroBatch
		h, err := l.ParseMicro(there, &got, 3)
		if err != nil || h.Number != 7 || h.Step != 9 || got.N != 3 || got.Seed != 0.25 {
			t.Fatalf("%+v, %v", h, err)
		}
		if !slices.Equal(got.In[0], m.In[0]) || !slices.Equal(got.In[1], m.In[1]) || !slices.Equal(got.Labels, m.Labels) || !slices.Equal(got.Targets, m.Targets) {
			t.Errorf("%v: %+v, want %+v", code, got, m)
		}
		back := make([]byte, l.ResultBytes(3, false))
		if err := l.Done(back, m, 7); err != nil {
			t.Fatal(err)
		}
		clear(got.Out)
		if err := l.ParseDone(back, &got); err != nil {
			t.Fatal(err)
		}
		if got.Loss != 1.5 || got.Terms != 3 || got.Correct != 2 || !slices.Equal(got.Out, m.Out) || !slices.Equal(got.Grads[0], m.Grads[0]) || got.Grads[1] != nil {
			t.Errorf("%v: %+v, want %+v", code, got, m)
		}
	}
	l := Layout{c, message.FP32}
	if n := l.RequestBytes(3); n != HeadSize+3*4*(5+6+1+2) {
		t.Errorf("%d bytes there", n)
	}
	if n, eval := l.ResultBytes(3, false), l.ResultBytes(3, true); n != HeadSize+3*4*(2+5) || eval != HeadSize+3*4*2 {
		t.Errorf("%d and %d bytes back", n, eval)
	}
	if n := l.RequestBytes(1 << 30); n != math.MaxInt64 {
		t.Errorf("%d bytes of more samples than a frame has room for", n)
	}
}

// What does not fit is malformed, before there is memory for it.
func TestMalformed(t *testing.T) {
	c := testCut()
	l := Layout{c, message.FP32}
	good := make([]byte, l.RequestBytes(3))
	if err := l.Micro(good, testMicro(c, 3), 1, 1); err != nil {
		t.Fatal(err)
	}
	huge := slices.Clone(good)
	Head{Number: 1, Step: 1, Samples: 1<<32 - 1}.Put(huge)
	none := slices.Clone(good)
	Head{Number: 1, Step: 1}.Put(none)
	for name, b := range map[string][]byte{"short": good[:len(good)-1], "long": append(slices.Clone(good), 0), "huge": huge, "none": none, "empty": nil} {
		var m heter.MicroBatch
		if _, err := l.ParseMicro(b, &m, 3); !errors.Is(err, ErrMalformed) || m.In != nil {
			t.Errorf("%s: %v, %d tensors", name, err, len(m.In))
		}
	}
	var m heter.MicroBatch
	if _, err := l.ParseMicro(good, &m, 2); !errors.Is(err, ErrMalformed) {
		t.Errorf("3 samples of 2: %v", err)
	}
}

// Decoders return what was written, or an error, and never panic.
func FuzzParse(f *testing.F) {
	c := testCut()
	l := Layout{c, message.FP32}
	micro := make([]byte, l.RequestBytes(2))
	if err := l.Micro(micro, testMicro(c, 2), 1, 1); err != nil {
		f.Fatal(err)
	}
	f.Add(micro)
	f.Add(Hello{Trainer: 1, Trainers: 2, Index: 0, Count: 1}.Append(nil))
	f.Add(Welcome{1, 2, 3, 4, 5, 6, time.Second, 5 * time.Second, [16]byte{1}, [16]byte{2}, heter.StartTrainer, heter.Precision{BF16: true, AMX: true, Times: [2]time.Duration{2, 1}}}.Append(nil))
	f.Add(End{1, 2, 0.1, 3, true, []uint64{0, 4}}.Append(nil))
	f.Add(Ask{1, 0, 10}.Append(nil))
	f.Add(append(Ask{1, 98, 2}.Append(nil), make([]byte, 8)...))
	f.Add(RetryEnd{3, 2, []uint64{1, 2}}.Append(nil))
	f.Add(Commit(7).Append(nil))
	f.Add(SharedMicroBatch{Head{Number: 1, Step: 2, Samples: 3}, 4, 5}.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		again := func(err error, written []byte) {
			if err == nil && !slices.Equal(written, b) {
				t.Errorf("%x is read as what is %x", b, written)
			}
			if err != nil && !errors.Is(err, ErrMalformed) {
				t.Errorf("%x: %v", b, err)
			}
		}
		h, err := ParseHello(b)
		again(err, h.Append(nil))
		w, err := ParseWelcome(b)
		again(err, w.Append(nil))
		e, err := ParseEnd(b)
		again(err, e.Append(nil))
		a, err := ParseAsk(b, 100)
		again(err, a.Append(nil))
		n := min(len(b), AskSize)
		p, err := ParsePiece(b[:n], len(b), 100)
		again(err, append(p.Append(nil), b[n:]...))
		g, err := ParseAgain(b)
		again(err, g.Append(nil))
		d, err := ParsePlaced(b)
		again(err, d.Append(nil))
		k, err := ParseCommit(b)
		again(err, k.Append(nil))
		var m heter.MicroBatch
		if _, err := l.ParseMicro(b, &m, 4); err != nil {
			again(err, nil)
		}
		if err := l.ParseDone(b, testMicro(c, 2)); err != nil {
			again(err, nil)
		}
	})
}

// Through memory come the same values as in frames: as fp32 without a copy, there and back. Labels, which are looked at, are copied first.
func TestPlaced(t *testing.T) {
	c := testCut()
	for _, code := range []message.Code{message.FP32, message.BF16, message.Int8} {
		for _, eval := range []bool{false, true} {
			l := Layout{Cut: c, Code: code}
			m, byFrame, placed := testMicro(c, 3), &heter.MicroBatch{}, &heter.MicroBatch{}
			m.Eval = eval
			slot := make([]byte, BodyAt-HeadSize+l.RequestBytes(3))
			frame := slot[BodyAt-HeadSize:]
			must(t, l.Micro(frame, m, 7, 9))
			p := SharedMicroBatch{RequestSlot: 5, ResultSlot: 6}
			var err error
			p.Head, err = l.ParseMicro(frame, byFrame, 3)
			must(t, err)
			if got, err := ParsePlaced(p.Append(nil)); err != nil || got != p {
				t.Errorf("%+v is %+v, %v", p, got, err)
			}
			back := make([]byte, l.ResultBytes(3, eval)-HeadSize)
			must(t, l.Borrow(p.Head, slot[BodyAt:], back, placed))
			if !slices.Equal(placed.Labels, byFrame.Labels) || !slices.Equal(placed.Targets, byFrame.Targets) || placed.Seed != byFrame.Seed || placed.Eval != eval {
				t.Errorf("%+v, want %+v", placed, byFrame)
			}
			for i := range c.In {
				if !slices.Equal(placed.In[i], byFrame.In[i]) {
					t.Errorf("%v: %v, want %v", code, placed.In[i], byFrame.In[i])
				}
			}
			clear(slot)
			if placed.In[0][0] != 0 != (code != message.FP32) || len(placed.Labels) > 0 && !slices.Equal(placed.Labels, m.Labels) {
				t.Errorf("%v: after the writer's change %+v", code, placed)
			}
			for i := range placed.Out {
				placed.Out[i] = float32(i) + 0.5
			}
			for i, g := range placed.Grads {
				for k := range g {
					placed.Grads[i][k] = float32(k) - 0.5
				}
			}
			placed.Loss, placed.Terms = 2, 3
			want := make([]byte, l.ResultBytes(3, eval))
			must(t, l.Done(want, placed, 7))
			head := make([]byte, HeadSize)
			must(t, l.Return(head, back, placed, 7))
			if !slices.Equal(append(head, back...), want) {
				t.Errorf("%v: results % x and % x, want % x", code, head, back, want)
			}
			h, err := ParseHead(head)
			must(t, err)
			must(t, l.ParsePlacedDone(h, back, m))
			if m.Loss != 2 || m.Out[1] != 1.5 {
				t.Errorf("%+v", m)
			}
			if h.Samples = 2; l.ParsePlacedDone(h, back, m) == nil {
				t.Error("results of fewer samples are taken")
			}
		}
	}
	for _, b := range [][]byte{nil, make([]byte, PlacedSize-1), make([]byte, PlacedSize)} {
		if _, err := ParsePlaced(b); !errors.Is(err, ErrMalformed) {
			t.Errorf("% x: %v", b, err)
		}
	}
	l := Layout{Cut: c}
	for lent, want := range map[int][2]int{0: {BodyAt + l.RequestBytes(1), l.ResultBytes(1, false)}, 1000: {4000, 4000}, wire.MaxPayload: {BodyAt + l.RequestBytes(1), l.ResultBytes(1, false)}} {
		if there, back := l.Slots(1, lent); there != want[0] || back != want[1] {
			t.Errorf("slots of %d and %d bytes beside %d values, want %d", there, back, lent, want)
		}
	}
	if there, back := l.Slots(1<<40, 0); there != BodyAt+wire.MaxPayload || back != wire.MaxPayload {
		t.Errorf("slots of %d and %d bytes", there, back)
	}
}
