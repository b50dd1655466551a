package message

import (
	"errors"
	"testing"

	"github.com/ringo-ml/ringo/internal/wire"
)

func TestSaveHeads(t *testing.T) {
	var l Limits
	for _, c := range []struct {
		t    wire.Type
		h    Head
		good bool
	}{
		{TypeSave, Head{Number: 3, Step: 7, At: 7}, true}, {TypeSave, Head{Step: 1}, true}, {TypeSaved, Head{Number: 3, Step: 7, At: 9}, true},
		{TypeSave, Head{Number: 3, At: 7}, false}, {TypeSave, Head{Step: 7, At: 8}, false}, {TypeSave, Head{Step: 7, Count: 1}, false},
		{TypeSave, Head{Step: 7, Table: 1}, false}, {TypeSaved, Head{Step: 7}, false}, {TypeSaved, Head{At: 7}, false}, {TypeSaved, Head{Step: 7, At: 1, Code: FP16}, false},
	} {
		if n, err := l.Check(c.t, c.h); n != 0 || (err == nil) != c.good || err != nil && !errors.Is(err, ErrMalformed) {
			t.Errorf("%s %+v: a body of %d bytes, %v", Name(c.t), c.h, n, err)
		}
		if l.longest(c.t) != HeadSize {
			t.Errorf("%s has up to %d bytes", Name(c.t), l.longest(c.t))
		}
	}
}
