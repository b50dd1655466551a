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
	return kibibytes(text, "VmRSS"), kibibytes(text, "VmHWM")
}

// Proportional is how much memory this process holds, 0 where the system does not say. A page that several processes
// hold counts for each in part, so that shared memory is counted once over all of them; Linux before 4.14 counts it in
// full.
func Proportional() int64 {
	if text, err := os.ReadFile("/proc/self/smaps_rollup"); err == nil {
		return kibibytes(string(text), "Pss")
	}
	now, _ := resident()
	return now
}

// kibibytes is the size in bytes that a line of a file in /proc has behind a name; 0: none has.
func kibibytes(text, name string) int64 {
	for line := range strings.Lines(text) {
		var kib int64
		if n, _ := fmt.Sscanf(line, name+": %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	return 0
}
