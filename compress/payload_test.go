package compress

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

var quantisers = []Quantiser{FP32{}, FP16{}, BF16{}, Int8{}, Sign{}}

// someOf is a vector of n values of which about a share is present.
func someOf(r *rand.Rand, n int, share float64) *Sparse {
	s := &Sparse{Len: n}
	for i := range n {
		if r.Float64() < share {
			s.Append(i, float32(r.NormFloat64()))
		}
	}
	return s
}

// patterns are sets of indices that make encodings hard.
func patterns(r *rand.Rand) map[string]*Sparse {
	out := map[string]*Sparse{}
	for _, n := range []int{0, 1, 2, 7, 8, 9, 63, 64, 65, 1000, 20_000} {
		for _, share := range []float64{0, 0.001, 0.01, 0.1, 0.3, 0.6, 0.95, 1} {
			out[fmt.Sprintf("%d at %v", n, share)] = someOf(r, n, share)
		}
	}
	one := func(n int, at ...int) *Sparse {
		s := &Sparse{Len: n}
		for _, i := range at {
			s.Append(i, float32(i%7)+0.5)
		}
		return s
	}
	out["the last of the longest"] = one(MaxLen, MaxLen-1)
	out["both ends of the longest"] = one(MaxLen, 0, MaxLen-1)
	run := &Sparse{Len: 100_000}
	for i := range 1000 {
		run.Append(99_000+i, 1)
	}
	out["a run at the end"] = run
	mixed := &Sparse{Len: 1 << 20}
	for i := 0; i < mixed.Len; i += 1 + i/7*(i%2) {
		mixed.Append(i, 1)
	}
	out["gaps of all widths"] = mixed
	return out
}

// decodeNaive reads a payload bit by bit, from the comment that describes it.
func decodeNaive(p []byte, q Quantiser) (n int, index []int, values []float32) {
	n = int(binary.LittleEndian.Uint32(p[4:]))
	count := int(binary.LittleEndian.Uint32(p[8:]))
	where, body := p[1], p[12:]
	bit := func(at int) int { return int(body[at/8] >> (at % 8) & 1) }
	switch where {
	case 0:
		for i := range n {
			index = append(index, i)
		}
	case 1:
		for i := range n {
			if bit(i) == 1 {
				index = append(index, i)
			}
		}
		body = body[(n+7)/8:]
	case 2:
		next := 0
		for len(index) < count {
			m, w := min(128, count-len(index)), int(body[0])
			body = body[1:]
			for i := range m {
				gap := 0
				for b := range w {
					gap |= bit(i*w+b) << b
				}
				next += gap
				index = append(index, next)
				next++
			}
			body = body[(m*w+7)/8:]
		}
	}
	values = make([]float32, count)
	if q.Size(count) != len(body) || q.Decode(values, body) != nil {
		panic("the values do not fill the rest")
	}
	return n, index, values
}

func TestPayloads(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 22))
	for name, s := range patterns(r) {
		for _, q := range quantisers {
			if s.Len > 1<<24 && q.Block() > 1 {
				continue // a bound on sizes needs no memory, but bitmaps of 256 MiB do
			}
			checkPayload(t, q.Name()+": "+name, s, q)
		}
	}
}

func checkPayload(t *testing.T, what string, s *Sparse, q Quantiser) {
	t.Helper()
	c := &Coder{q: q}
	p, err := c.Encode([]byte("before"), s)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if !bytes.HasPrefix(p, []byte("before")) {
		t.Fatalf("%s: what was there is gone", what)
	}
	p = p[len("before"):]
	if len(p) > PayloadBound(s.Len, q) || q.Block() == 1 && len(p) > headerBytes+q.Size(s.Len) || len(p) > headerBytes+4*s.Len+scaleBytes {
		t.Errorf("%s: %d bytes of %d entries of %d", what, len(p), s.Count(), s.Len)
	}
	want := make([]float32, len(s.Value)) // what the code makes of the values
	buf := make([]byte, q.Size(len(want)))
	if err := q.Encode(buf, s.Value); err != nil {
		t.Fatal(err)
	}
	if err := q.Decode(want, buf); err != nil {
		t.Fatal(err)
	}
	var got Sparse
	if err := c.Decode(&got, p); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if err := got.Validate(); err != nil || got.Len != s.Len {
		t.Fatalf("%s: length %d, %v", what, got.Len, err)
	}
	n, index, values := decodeNaive(p, q)
	if n != s.Len || len(index) != len(got.Index) {
		t.Fatalf("%s: %d entries of %d, the naive decoder has %d of %d", what, len(got.Index), got.Len, len(index), n)
	}
	at := 0
	for i, place := range index {
		if int(got.Index[i]) != place || !same(got.Value[i], values[i]) {
			t.Fatalf("%s: entry %d is %v at %d, naive %v at %d", what, i, got.Value[i], got.Index[i], values[i], place)
		}
		if at < len(s.Index) && int(s.Index[at]) == place {
			if !same(got.Value[i], want[at]) {
				t.Fatalf("%s: value at %d is %v, want %v", what, place, got.Value[i], want[at])
			}
			at++
		} else if got.Value[i] != 0 {
			t.Fatalf("%s: %v at %d, where nothing was", what, got.Value[i], place)
		}
	}
	if at != len(s.Index) {
		t.Fatalf("%s: %d of %d entries came back", what, at, len(s.Index))
	}
}

// Indices take fewer bits than 32, and about as many as they must.
func TestIndicesAreSmall(t *testing.T) {
	r := rand.New(rand.NewPCG(23, 24))
	for _, share := range []float64{0.001, 0.01, 0.05, 0.1, 0.3, 0.5} {
		s := someOf(r, 1<<20, share)
		_, size := (&Coder{q: FP32{}}).layout(s)
		entropy := -(math.Log2(share) + (1-share)/share*math.Log2(1-share)) // bits an entry
		if got := 8 * float64(size) / float64(s.Count()); got > entropy+2.1 || got < entropy-0.05 {
			t.Errorf("density %v: %.2f bits an index, the entropy is %.2f", share, got, entropy)
		}
	}
}

// The layout is the shortest of the three, whatever the code.
func TestLayoutRule(t *testing.T) {
	r := rand.New(rand.NewPCG(25, 26))
	for name, s := range patterns(r) {
		packed := 0
		for i := 0; i < len(s.Index); i += gapBlock {
			most, block := uint(0), s.Index[i:min(i+gapBlock, len(s.Index))]
			for j, at := range block {
				before := int32(-1)
				if i+j > 0 {
					before = s.Index[i+j-1]
				}
				most = max(most, uint(at-before-1))
			}
			packed += 1 + (len(block)*bits.Len(most)+7)/8
		}
		for _, q := range []Quantiser{FP32{}, FP16{}} {
			best := min(q.Size(s.Len), q.Size(s.Count())+min(packed, (s.Len+7)/8))
			where, size := (&Coder{q: q}).layout(s)
			got := size + q.Size(s.Count())
			if where == indexDense {
				got = q.Size(s.Len)
			}
			if got != best {
				t.Errorf("%s, %s: layout %d of %d bytes, want %d", name, q.Name(), where, got, best)
			}
		}
	}
}

func TestDensePayloads(t *testing.T) {
	r := rand.New(rand.NewPCG(27, 28))
	for _, q := range quantisers {
		for _, n := range []int{0, 1, 255, 256, 257, 5000} {
			x, got := zeros(n), zeros(n)
			vectors[0].fill(r, x)
			c := &Coder{q: q}
			p, err := c.EncodeDense(nil, x)
			if err != nil || len(p) != headerBytes+q.Size(n) {
				t.Fatalf("%s: %d bytes, %v", q.Name(), len(p), err)
			}
			if err := c.DecodeDense(got, p); err != nil {
				t.Fatal(err)
			}
			again, err := c.EncodeDense(nil, got)
			if err != nil || !bytes.Equal(p, again) {
				t.Errorf("%s of %d: what was decoded has another payload (%v)", q.Name(), n, err)
			}
			if err := c.DecodeDense(zeros(n+1), p); err == nil {
				t.Errorf("%s: a payload of %d values filled %d", q.Name(), n, n+1)
			}
		}
	}
}

// Bad payloads are refused with an error that says why.
func TestBadPayloads(t *testing.T) {
	r := rand.New(rand.NewPCG(29, 30))
	c := &Coder{q: FP32{}}
	encode := func(s *Sparse) []byte {
		p, err := c.Encode(nil, s)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	packed, bitmap, dense := encode(someOf(r, 1000, 0.01)), encode(someOf(r, 1001, 0.4)), encode(someOf(r, 10, 1))
	if packed[1] != indexPacked || bitmap[1] != indexBitmap || dense[1] != indexDense {
		t.Fatal("the examples have other layouts")
	}
	set := func(p []byte, at int, b ...byte) []byte {
		p = slices.Clone(p)
		copy(p[at:], b)
		return p
	}
	for name, bad := range map[string]struct {
		payload []byte
		want    string
	}{
		"nothing":              {nil, "header"},
		"half a header":        {packed[:11], "header"},
		"another format":       {set(packed, 0, 9), "format"},
		"reserved":             {set(packed, 3, 1), "format"},
		"another layout":       {set(packed, 1, 3), "layout"},
		"another code":         {set(packed, 2, CodeInt8), "chain"},
		"too long":             {set(packed, 4, 0, 0, 0, 0x80), "no such vector"},
		"more than all":        {set(packed, 8, 0xff, 0xff), "no such vector"},
		"too many":             {set(packed, 8, 0xe7, 3), "bytes after the header"},
		"a wide gap":           {set(packed, headerBytes, 32), "width"},
		"gaps behind the last": {set(packed, 4, 20, 0), "last value"},
		"a byte more":          {append(slices.Clone(packed), 0), "bytes of values"},
		"a byte less":          {packed[:len(packed)-1], "bytes of values"},
		"dense of few":         {set(dense, 8, 9), "no such vector"},
		"bits missing":         {set(bitmap, headerBytes, 0), "as many"},
		"bits behind the last": {set(bitmap, headerBytes+125, 0xfe), "value"},
		"only the header":      {set(make([]byte, headerBytes), 0, 1, 0, CodeFP32, 0, 255, 255, 255, 1, 255, 255, 255, 1), "bytes after the header"},
	} {
		var s Sparse
		err := c.Decode(&s, bad.payload)
		if err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%s: %v, want it to say %q", name, err, bad.want)
		}
	}
	for _, q := range []Quantiser{Int8{}, Sign{}} {
		c := &Coder{q: q}
		p, err := c.EncodeDense(nil, []float32{1, 2, 3})
		if err != nil {
			t.Fatal(err)
		}
		for _, scale := range []float32{-1, inf, float32(math.NaN())} {
			binary.LittleEndian.PutUint32(p[headerBytes:], math.Float32bits(scale))
			if err := c.DecodeDense(zeros(3), p); err == nil || !strings.Contains(err.Error(), "scale") {
				t.Errorf("%s with scale %v: %v", q.Name(), scale, err)
			}
		}
	}
}

// A payload with a value that no encoder writes is refused, with the entry.
func TestDecodeRefusesValues(t *testing.T) {
	for _, q := range quantisers {
		c := &Coder{q: q}
		p, err := c.EncodeDense(nil, []float32{1, 2, 3})
		if err != nil {
			t.Fatal(err)
		}
		values := p[headerBytes:]
		switch q.Code() {
		case CodeFP32:
			binary.LittleEndian.PutUint32(values[4:], 0xffc00000) // NaN
		case CodeFP16:
			binary.LittleEndian.PutUint16(values[2:], 0x7c00) // infinity
		case CodeBF16:
			binary.LittleEndian.PutUint16(values[2:], 0x7f80)
		case CodeInt8:
			binary.LittleEndian.PutUint32(values, math.Float32bits(math.MaxFloat32/127))
			values[5] = 0x80
		default:
			continue
		}
		for _, err := range []error{c.Decode(&Sparse{}, p), c.DecodeDense(make([]float32, 3), p)} {
			if err == nil || !strings.Contains(err.Error(), "entry 1") {
				t.Errorf("%s: %v does not tell of entry 1", q.Name(), err)
			}
		}
	}
}

func FuzzDecode(f *testing.F) {
	r := rand.New(rand.NewPCG(31, 32))
	for i, q := range quantisers {
		c := &Coder{q: q}
		for _, share := range []float64{0.01, 0.2, 1} {
			p, err := c.Encode(nil, someOf(r, 300, share))
			if err != nil {
				f.Fatal(err)
			}
			f.Add(byte(i), p)
		}
	}
	f.Fuzz(func(t *testing.T, code byte, p []byte) {
		q := quantisers[int(code)%len(quantisers)]
		c := &Coder{q: q}
		var s Sparse
		if c.Decode(&s, p) != nil {
			return
		}
		if err := s.Validate(); err != nil {
			t.Fatal(err)
		}
		if s.Count() > 8*len(p) {
			t.Fatalf("%d entries of %d bytes", s.Count(), len(p))
		}
		for i, v := range s.Value {
			if inf := math.IsInf(float64(v), 0); v != v || inf && q.Code() != CodeFP32 {
				t.Fatalf("entry %d is %v", i, v)
			}
		}
		if n, index, _ := decodeNaive(p, q); n != s.Len || len(index) != s.Count() {
			t.Fatalf("%d of %d entries, the naive decoder has %d of %d", s.Count(), s.Len, len(index), n)
		}
	})
}
