package message

import (
	"bytes"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"
)

var goldenParts = []Part{{0, []byte("ab")}, {2, []byte{}}, {3, []byte("c")}}

func appendParts(parts []Part) (b []byte) {
	for _, p := range parts {
		b = AppendPart(b, p)
	}
	return b
}

func TestParts(t *testing.T) {
	b := appendParts(goldenParts)
	if got, want := hex.EncodeToString(b), "00000000"+"02000000"+"6162"+"02000000"+"00000000"+"03000000"+"01000000"+"63"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	same := func(a, b Part) bool { return a.Trainer == b.Trainer && bytes.Equal(a.Blob, b.Blob) && b.Blob != nil }
	if got, err := ParseParts(b, 4); err != nil || !slices.EqualFunc(goldenParts, got, same) {
		t.Errorf("got %v, %v", got, err)
	}
	whole := []int{0, 10, 18, 27}
	for n := range len(b) + 1 {
		if _, err := ParseParts(b[:n], 4); slices.Contains(whole, n) != (err == nil) || err != nil && !errors.Is(err, ErrMalformed) {
			t.Errorf("%d of %d bytes: %v", n, len(b), err)
		}
	}
	for says, parts := range map[string][]Part{
		"trainer 3 of 3":         {{3, nil}},
		"after that of 1":        {{1, nil}, {1, nil}},
		"a part of 262145 bytes": {{0, make([]byte, MaxBlob+1)}},
	} {
		if _, err := ParseParts(appendParts(parts), 3); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want it to say %q", err, says)
		}
	}
}

func FuzzParts(f *testing.F) {
	f.Add(appendParts(goldenParts))
	f.Fuzz(func(t *testing.T, b []byte) {
		if parts, err := ParseParts(b, 5); err == nil && !bytes.Equal(appendParts(parts), b) {
			t.Fatalf("% x is read as %v", b, parts)
		}
	})
}
