package usage

import (
	"fmt"
	"os"
	"strings"
)

// The functions below use Linux's /proc for processor times; elsewhere all values are 0.

// tick is /proc's unit of processor times, in seconds: 1/USER_HZ, and 100 USER_HZ with Go.
const tick = 0.01

// Queued returns the total time of threads of this process ready to run without a processor, in
// seconds, without ended threads. Cost: some 10 µs per thread.
func Queued() float64 {
	threads, _ := os.ReadDir("/proc/self/task")
	var sum float64
	for _, thread := range threads {
		text, _ := os.ReadFile("/proc/self/task/" + thread.Name() + "/schedstat") // a thread may have ended
		sum += queued(string(text))
	}
	return sum
}

// queued returns a schedstat's second number of three: nanoseconds in a queue.
func queued(schedstat string) float64 {
	var on, in float64
	if n, _ := fmt.Sscan(schedstat, &on, &in); n < 2 {
		return 0
	}
	return in / 1e9
}

// StorageBytes returns the bytes read from storage for this process, excluding cached data.
func StorageBytes() int64 {
	text, _ := os.ReadFile("/proc/self/io") // unreadable for some users
	return storageBytes(string(text))
}

func storageBytes(io string) int64 {
	for line := range strings.Lines(io) {
		var bytes int64
		if n, _ := fmt.Sscanf(line, "read_bytes: %d", &bytes); n == 1 {
			return bytes
		}
	}
	return 0
}

// Busy returns the total running time of processes on the machine's processors since boot, in
// seconds, including time taken by a hypervisor and excluding interrupts.
func Busy() float64 {
	text, _ := os.ReadFile("/proc/stat")
	return busy(string(text))
}

func busy(stat string) float64 {
	var user, nice, system, idle, wait, irq, soft, steal float64
	if n, _ := fmt.Sscanf(stat, "cpu %f %f %f %f %f %f %f %f", &user, &nice, &system, &idle, &wait, &irq, &soft, &steal); n < 3 {
		return 0
	}
	return tick * (user + nice + system + steal)
}

// Of returns the processor time of another process, in seconds; 0 for an ended process.
func Of(pid int) float64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return processorTime(string(text))
}

// processorTime returns the sum of the 14th and 15th field of a process's stat. The second field is
// the name in parentheses, with any characters.
func processorTime(stat string) float64 {
	// Counted from the end of the name, the 14th field is the 12th.
	end := strings.LastIndexByte(stat, ')')
	if fields := strings.Fields(stat[end+1:]); end > 0 && len(fields) > 12 {
		var user, system float64
		if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err == nil {
			return tick * (user + system)
		}
	}
	return 0
}
