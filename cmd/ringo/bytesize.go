package main

import (
	"fmt"

	"github.com/ringo-ml/ringo/setting"
)

// byteSize is a flag: a number of bytes, as people write them.
type byteSize int64

// Set reads such as 4GiB, 1.5GB, 300000000 or 0.
func (b *byteSize) Set(text string) error {
	if err := setting.Bytes(b).Set(text); err != nil {
		return fmt.Errorf("%q: %w", text, err)
	}
	return nil
}

// String writes what Set reads, exactly.
func (b *byteSize) String() string { return setting.Bytes(b).String() }

// Type is the flag's kind in help texts.
func (b *byteSize) Type() string { return "size" }
