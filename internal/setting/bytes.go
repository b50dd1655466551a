package setting

import (
	"fmt"
	"strconv"
	"strings"
)

var sizeUnits = []struct {
	name string
	size float64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1}}

// Bytes is a number of bytes, such as 4GiB, 1.5GB, 300000000 or 0. String is exact.
func Bytes[T ~int | ~int64](field *T) Value {
	return bound[T]{field, func(text string) (T, error) {
		n, err := parseBytes(text)
		if err == nil && int64(T(n)) != n {
			err = fmt.Errorf("want less than that")
		}
		return T(n), err
	}, func(v T) string { return formatBytes(int64(v)) }}
}

func parseBytes(text string) (int64, error) {
	number, size := text, 1.0
	for _, u := range sizeUnits {
		if rest, ok := strings.CutSuffix(text, u.name); ok {
			number, size = rest, u.size
			break
		}
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil || !(v >= 0) || v*size >= 1<<62 {
		return 0, fmt.Errorf("want a size such as 4GiB, 500MB or 0")
	}
	return int64(v * size), nil
}

func formatBytes(n int64) string {
	for i := 3; i >= 0; i-- {
		if u := sizeUnits[i]; n > 0 && n%int64(u.size) == 0 {
			return strconv.FormatInt(n/int64(u.size), 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}
