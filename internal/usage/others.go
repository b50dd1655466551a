package usage

import (
	"fmt"
	"os"
	"strings"
)

// What a process and the machine that it runs on say of who has the processors, by Linux's /proc: elsewhere all of it is 0.

// tick is the unit in which /proc counts processor time, in seconds: USER_HZ, which is 100 wherever Go runs.
const tick = 0.01

// Queued is for how long threads of this process were ready to run and had no processor so far, in seconds, all threads together.
// Those that have ended do not count. It takes some 10 µs a thread.
func Queued() float64 {
	threads, _ := os.ReadDir("/proc/self/task")
	var sum float64
	for _, thread := range threads {
		text, _ := os.ReadFile("/proc/self/task/" + thread.Name() + "/schedstat") // a thread may end meanwhile
		sum += queued(string(text))
	}
	return sum
}

// queued is the second of the numbers that a schedstat holds, which are nanoseconds on a processor, nanoseconds in a queue, and slices.
func queued(schedstat string) float64 {
	var on, in float64
	if n, _ := fmt.Sscan(schedstat, &on, &in); n < 2 {
		return 0
	}
	return in / 1e9
}

// StorageBytes is how many bytes storage has read for this process so far: what lay in memory already does not count.
func StorageBytes() int64 {
	text, _ := os.ReadFile("/proc/self/io") // not everybody may read it
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

// Busy is for how long the machine's processors have run processes since it began, in seconds, all processors together. What a
// hypervisor has taken from them counts, too, and interrupts do not.
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

// Of is the processor time of another process so far, in seconds; 0 of one that has ended.
func Of(pid int) float64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return processorTime(string(text))
}

// processorTime reads the 14th and 15th field of a process's stat. The second is its name in parentheses, in which anything may stand.
func processorTime(stat string) float64 {
	// Fields are counted from behind the name, so that the 14th is the 12th there.
	end := strings.LastIndexByte(stat, ')')
	if fields := strings.Fields(stat[end+1:]); end > 0 && len(fields) > 12 {
		var user, system float64
		if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err == nil {
			return tick * (user + system)
		}
	}
	return 0
}
