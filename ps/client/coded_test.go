package client

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/server/message"
	"github.com/ringo-ml/ringo/internal/server/service/fake"
	"github.com/ringo-ml/ringo/ps/schema"
)

// TestPushCodedMatchesNaiveTwin compares coded pushes, divided over servers and messages, with
// values that were coded and decoded whole, and their bytes with the payloads'.
func TestPushCodedMatchesNaiveTwin(t *testing.T) {
	n := fake.Schema(1000).Dense[0].Len
	for _, servers := range []int{1, 2, 3} {
		for _, q := range []compress.Quantiser{compress.FP32{}, compress.FP16{}, compress.BF16{}, compress.Int8{}, compress.Sign{}} {
			for _, sparse := range []bool{false, true} {
				if sparse && q.Block() > 1 {
					continue
				}
				j := newJob(t, servers, 1, 1, nil, nil)
				c := j.dial(0, nil)
				l := c.Session(0)
				must(t, l.SetDense(0, make([]float32, n)))
				const lo = 3
				x := make([]float32, n-lo-2)
				s := &compress.Sparse{Len: len(x)}
				for i := range x {
					x[i] = float32(i%29-14) / 8
					if i%7 == 3 {
						s.Append(i, x[i])
					}
				}
				want := make([]float32, n)
				if sparse {
					s.AddTo(want[lo : n-2])
				} else {
					code := make([]byte, q.Size(len(x)))
					must(t, q.Encode(code, x))
					must(t, q.Decode(want[lo:n-2], code))
				}
				from := s
				if !sparse {
					from = nil
				}
				bytes, err := l.PushCoded(0, 1, lo, q, x, from)
				must(t, err)
				must(t, c.Flush(context.Background()))
				if got := j.array(0); !slices.Equal(got, want) {
					t.Errorf("%d servers, %s, sparse %t: %v, want %v", servers, q.Name(), sparse, got, want)
				}
				if formula := payloads(n, servers, lo, q, x, from); bytes != formula {
					t.Errorf("%d servers, %s, sparse %t: %d bytes, want %d", servers, q.Name(), sparse, bytes, formula)
				}
			}
		}
	}
}

// payloads is the length of a push's payloads, one for each server with values: 12 bytes, the
// indices, and the values in their code, of whole blocks.
func payloads(n, servers, lo int, q compress.Quantiser, x []float32, s *compress.Sparse) (bytes int64) {
	coder := compress.NewCoder(q)
	for server := range servers {
		from, to := schema.Cut(n, servers, server)
		from, to = max(from-lo, 0), min(to-lo, len(x))
		if from >= to {
			continue
		}
		if s == nil {
			b := q.Block()
			bytes += int64(12 + q.Size(min(len(x), (to+b-1)/b*b)-from/b*b))
			continue
		}
		part := compress.Sparse{Len: to - from}
		for i, at := range s.Index {
			if int(at) >= from && int(at) < to {
				part.Append(int(at)-from, s.Value[i])
			}
		}
		bytes += int64(coder.Size(&part))
	}
	return bytes
}

// TestPushCodedRejects checks that a push without a code for its values sends no data and names the
// value, and that servers reject payloads that are not.
func TestPushCodedRejects(t *testing.T) {
	j := newJob(t, 2, 1, 1, nil, nil)
	l := j.dial(0, nil).Session(0)
	x := slices.Repeat([]float32{1}, 7)
	if _, err := l.PushCoded(1, 1, 0, compress.Int8{}, nil, &compress.Sparse{Len: 7}); err == nil || !strings.Contains(err.Error(), "has blocks: want fp32, fp16 or bf16") {
		t.Errorf("entries in blocks: %v", err)
	}
	if _, err := l.PushCoded(1, 1, 1, compress.FP16{}, x, nil); err == nil || !strings.Contains(err.Error(), `array "`) {
		t.Errorf("values past the end: %v", err)
	}
	x[5] = 1e6
	_, err := l.PushCoded(1, 1, 0, compress.FP16{}, x, nil)
	if v := (*compress.ValueError)(nil); !errors.As(err, &v) || v.Index != 5 || v.Value != 1e6 {
		t.Errorf("a value above half precision: %v", err)
	}
	_, err = l.PushCoded(1, 1, 0, compress.FP16{}, nil, &compress.Sparse{Len: 7, Index: []int32{2, 6}, Value: []float32{1, -1e6}})
	if v := (*compress.ValueError)(nil); !errors.As(err, &v) || v.Index != 6 {
		t.Errorf("an entry above half precision: %v", err)
	}
	var d message.CodedDecoder
	good, err := compress.NewCoder(compress.FP32{}).EncodeDense(nil, x)
	must(t, err)
	if s, err := d.Decode(good); err != nil || s.Len != 7 {
		t.Errorf("%v, %v", s, err)
	}
	for _, bad := range [][]byte{nil, {1, 0}, {1, 0, 200, 0}, good[:len(good)-1], append(slices.Clone(good), 0)} {
		if _, err := d.Decode(bad); !errors.Is(err, message.ErrMalformed) {
			t.Errorf("%d bytes: %v", len(bad), err)
		}
	}
}
