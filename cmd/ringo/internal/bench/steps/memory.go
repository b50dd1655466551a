package steps

import (
	"fmt"
	"os"
	"strings"
)

// residentBytes is how much memory this process holds, 0 where the system does
// not say. A page that several processes hold counts for each in part, so that
// memory that ranks share is counted once over all of them.
func residentBytes() int64 {
	text, err := os.ReadFile("/proc/self/smaps_rollup")
	if err != nil {
		return residentPages()
	}
	for line := range strings.Lines(string(text)) {
		var kib int64
		if n, _ := fmt.Sscanf(line, "Pss: %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	return residentPages()
}

// residentPages counts every page in full: all that Linux before 4.14 says.
func residentPages() int64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, resident int64
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		return 0
	}
	return resident * int64(os.Getpagesize())
}
