package crc32c_test

import (
	"testing"

	"github.com/ringo-ml/ringo/internal/crc32c"
)

// The polynomial's check value (CRC-32/ISCSI), in one piece, in two, and by writes.
func TestCheckValue(t *testing.T) {
	const want = 0xe3069283
	text := []byte("123456789")
	h := crc32c.New()
	h.Write(text)
	for how, got := range map[string]uint32{
		"at once": crc32c.Checksum(text), "in two": crc32c.Update(crc32c.Checksum(text[:4]), text[4:]), "written": h.Sum32(),
	} {
		if got != want {
			t.Errorf("%s: %#x, want %#x", how, got, want)
		}
	}
}
