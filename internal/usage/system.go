package usage

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

// cpuSeconds is the time that the process has run, on all cores together.
func cpuSeconds() float64 {
	var r syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &r) != nil {
		return 0
	}
	return seconds(r.Utime) + seconds(r.Stime)
}

func seconds(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }

// resident is how much memory the process has now and had at its peak, where /proc
// says so (Linux).
func resident() (now, peak int64) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, 0
	}
	return parseStatus(string(text))
}

func parseStatus(text string) (now, peak int64) {
	for line := range strings.Lines(text) {
		var kib int64
		if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kib); n == 1 {
			now = kib << 10
		}
		if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kib); n == 1 {
			peak = kib << 10
		}
	}
	return now, peak
}
