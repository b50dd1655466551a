package client

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/server/message"
	"github.com/ringo-ml/ringo/ps/schema"
)

// codedPush is the working memory of PushCoded.
type codedPush struct {
	payload []byte
	part    compress.Sparse
	index   []int32
}

// PushCoded is PushDense with gradients in code q, and returns the length of its payloads. If s is
// not nil, PushCoded sends its entries instead of x, servers use zeros for the other values of the
// range, and q must code each value separately. A value that q cannot store is a
// *compress.ValueError with the value's index in the range.
//
// For each server PushCoded sends payloads of package compress. If q codes blocks of values, they
// are counted from lo, so that servers decode the same values as the caller; a block with values of
// two servers is sent to both.
func (l *Session) PushCoded(array int, step uint64, lo int, q compress.Quantiser, x []float32, s *compress.Sparse) (bytes int64, err error) {
	n := len(x)
	if s != nil {
		n = s.Len
	}
	d, err := l.array(array, lo, n)
	if err == nil && s != nil && q.Block() > 1 {
		err = fmt.Errorf("selected entries in code %s, which has blocks: want fp32, fp16 or bf16", q.Name())
	}
	if err != nil {
		return 0, l.fault("push", step, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	coder, block := compress.NewCoder(q), q.Block()
	for server, k := range l.links {
		from, to := schema.Cut(d.Len, len(l.links), server)
		from, to = max(from, lo)-lo, min(to, lo+n)-lo
		if from >= to {
			continue
		}
		from, to = from/block*block, min(n, (to+block-1)/block*block)
		for from, to := range chunks(from, to, max(1, k.valuesOf()/block)*block) {
			if err := l.coded.encode(coder, x, s, from, to); err != nil {
				return 0, err
			}
			head := message.Head{Step: step, At: uint64(lo + from), Count: len(l.coded.payload), Table: array, Code: message.Coded}
			err := k.change(message.TypePushDense, head, head.Count, func(body []byte) error {
				copy(body, l.coded.payload)
				return nil
			})
			if err != nil {
				return 0, err
			}
			bytes += int64(head.Count)
		}
	}
	return bytes, nil
}

// encode encodes the values or entries in [from, to) as the payload.
func (c *codedPush) encode(coder *compress.Coder, x []float32, s *compress.Sparse, from, to int) (err error) {
	if s == nil {
		c.payload, err = coder.EncodeDense(c.payload[:0], x[from:to])
	} else {
		first, _ := slices.BinarySearch(s.Index, int32(from))
		end, _ := slices.BinarySearch(s.Index, int32(to))
		c.index = c.index[:0]
		for _, at := range s.Index[first:end] {
			c.index = append(c.index, at-int32(from))
		}
		c.part = compress.Sparse{Len: to - from, Index: c.index, Value: s.Value[first:end]}
		c.payload, err = coder.Encode(c.payload[:0], &c.part)
	}
	if v := (*compress.ValueError)(nil); errors.As(err, &v) {
		moved := *v
		if moved.Index += from; s != nil {
			moved.Index = from + int(c.part.Index[v.Index])
		}
		return &moved
	}
	return err
}
