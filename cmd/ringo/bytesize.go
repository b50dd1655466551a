package main

import (
	"fmt"
	"strconv"
	"strings"
)

// byteSize is a flag: a number of bytes, as people write them.
type byteSize int64

var sizeUnits = []struct {
	name string
	size float64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1}}

// Set reads such as 4GiB, 1.5GB, 300000000 or 0.
func (b *byteSize) Set(text string) error {
	number, size := text, 1.0
	for _, u := range sizeUnits {
		if rest, ok := strings.CutSuffix(text, u.name); ok {
			number, size = rest, u.size
			break
		}
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil || !(v >= 0) || v*size >= 1<<62 {
		return fmt.Errorf("%q: want a size such as 4GiB, 500MB or 0", text)
	}
	*b = byteSize(v * size)
	return nil
}

// String writes what Set reads, exactly.
func (b *byteSize) String() string {
	for i := 3; i >= 0; i-- {
		if u := sizeUnits[i]; *b > 0 && int64(*b)%int64(u.size) == 0 {
			return strconv.FormatInt(int64(*b)/int64(u.size), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(*b), 10)
}

// Type is the flag's kind in help texts.
func (b *byteSize) Type() string { return "size" }
