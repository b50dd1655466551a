package datatest

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/internal/data/prng"
)

// ClickLine returns a line of Criteo by its fields.
func ClickLine(label string, numbers []string, categories []string) string {
	fields := append([]string{label}, numbers...)
	return strings.Join(append(fields, categories...), "\t")
}

// ClickText returns n good lines.
func ClickText(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		r := prng.New(7, 0, uint64(i))
		var numbers, categories []string
		for range 13 {
			numbers = append(numbers, []string{"", "-1", "0", "5", "123456"}[r.Below(5)])
		}
		for range 26 {
			if r.Below(4) == 0 {
				categories = append(categories, "")
			} else {
				categories = append(categories, fmt.Sprintf("%08x", r.Next()>>32))
			}
		}
		b.WriteString(ClickLine(strconv.Itoa(r.Below(2)), numbers, categories) + "\n")
	}
	return b.Bytes()
}

// ClickLines returns n lines with the line's number, from first on, as the first category.
func ClickLines(first, n int) [][]byte {
	var out [][]byte
	for i := first; i < first+n; i++ {
		r := prng.New(9, 1, uint64(i))
		var numbers, categories []string
		for range 13 {
			numbers = append(numbers, []string{"", "-1", "0", "77", "1234567", "12345678", "999999999999999999"}[r.Below(7)])
		}
		categories = append(categories, fmt.Sprintf("%08x", i))
		for range 25 {
			categories = append(categories, []string{"", "a", fmt.Sprintf("%08x", r.Next()>>32), fmt.Sprintf("%016X", r.Next())}[r.Below(4)])
		}
		out = append(out, []byte(ClickLine([]string{"0", "1"}[r.Below(2)], numbers, categories)+"\n"))
	}
	return out
}
