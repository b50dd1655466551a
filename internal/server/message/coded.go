package message

import (
	"github.com/ringo-ml/ringo/compress"
)

// CodedDecoder decodes the payloads of pushes in code Coded. Zero: ready.
type CodedDecoder struct {
	coders map[byte]*compress.Coder
	vector compress.Sparse
}

// Decode returns the vector of a payload, valid until the next call. Its error is ErrMalformed.
func (d *CodedDecoder) Decode(payload []byte) (*compress.Sparse, error) {
	if d.coders == nil {
		d.coders = map[byte]*compress.Coder{}
		for _, q := range []compress.Quantiser{compress.FP32{}, compress.FP16{}, compress.BF16{}, compress.Int8{}, compress.Sign{}} {
			d.coders[q.Code()] = compress.NewCoder(q)
		}
	}
	const codeAt = 2
	if len(payload) <= codeAt || d.coders[payload[codeAt]] == nil {
		return nil, malformed("a coded push of %d bytes without a code of package compress", len(payload))
	}
	if err := d.coders[payload[codeAt]].Decode(&d.vector, payload); err != nil {
		return nil, malformed("%v", err)
	}
	return &d.vector, nil
}
