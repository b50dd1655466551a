package usage

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

// cpuSeconds returns the processor time of this process, on all cores together.
func cpuSeconds() float64 {
	var r syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &r) != nil {
		return 0
	}
	return seconds(r.Utime) + seconds(r.Stime)
}

func seconds(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }

// resident returns the current and the peak resident memory, from /proc (Linux).
func resident() (now, peak int64) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, 0
	}
	return parseStatus(string(text))
}

func parseStatus(text string) (now, peak int64) {
	return kibibytes(text, "VmRSS"), kibibytes(text, "VmHWM")
}

// Proportional returns the memory of this process, or 0 if unknown. A shared page counts in part
// for each process, so shared memory counts once in total; Linux before 4.14 counts it in full.
func Proportional() int64 {
	if text, err := os.ReadFile("/proc/self/smaps_rollup"); err == nil {
		return kibibytes(string(text), "Pss")
	}
	now, _ := resident()
	return now
}

// kibibytes returns the size in bytes from a line with the name in a /proc file, or 0.
func kibibytes(text, name string) int64 {
	for line := range strings.Lines(text) {
		var kib int64
		if n, _ := fmt.Sscanf(line, name+": %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	return 0
}
