package predict

import (
	"slices"
	"testing"
)

// Records come out of a block as they went in, and what is no block is an error.
func TestRecords(t *testing.T) {
	all := [][]string{{"0", "a,\"b\"\r\n"}, {}, {"", "\xff"}}
	var block []byte
	for _, r := range all {
		block = appendRecord(block, r)
	}
	rest := block
	for _, want := range all {
		var got []string
		var err error
		if got, rest, err = cutRecord(nil, rest); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
	for n := 1; n < len(appendRecord(nil, all[0])); n++ {
		if _, _, err := cutRecord(nil, block[:n]); err == nil {
			t.Errorf("the first %d bytes are a record", n)
		}
	}
}

// A damaged block is an error or some record, and takes no more memory than it has bytes.
func FuzzCutRecord(f *testing.F) {
	f.Add(appendRecord(nil, []string{"7", "", "word"}))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x00"))
	f.Fuzz(func(t *testing.T, block []byte) {
		for len(block) > 0 {
			record, rest, err := cutRecord(nil, block)
			if err != nil {
				return
			}
			if len(rest) >= len(block) || len(record) > len(block) {
				t.Fatalf("%d fields and %d bytes of %d", len(record), len(rest), len(block))
			}
			block = rest
		}
	})
}
