package placement

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Allowed are the processors that this process may run on, ascending; none where the system does not say.
func Allowed() []int { return allowed(os.Getpid()) }

func allowed(thread int) (out []int) {
	var set unix.CPUSet
	if unix.SchedGetaffinity(thread, &set) != nil {
		return nil
	}
	for cpu := range 64 * len(set) {
		if set.IsSet(cpu) {
			out = append(out, cpu)
		}
	}
	return out
}

func setOf(cpus []int) (set unix.CPUSet) {
	for _, c := range cpus {
		set.Set(c)
	}
	return set
}

// BindThread binds the calling thread, which the caller must hold on to, and with it the processes that it starts. undo
// gives it back what it had.
func BindThread(cpus []int) (undo func(), err error) {
	before, own := setOf(allowed(0)), setOf(cpus)
	if err := unix.SchedSetaffinity(0, &own); err != nil {
		return nil, fmt.Errorf("the system refuses: %w", err)
	}
	return func() { _ = unix.SchedSetaffinity(0, &before) }, nil // what it was is allowed
}

// BindProcess binds all threads of this process that may run where the process may, and those that they start. A
// thread that was bound by itself stays where it is.
func BindProcess(cpus []int) error {
	before, own := Allowed(), setOf(cpus)
	seen := map[int]bool{}
	for more := true; more; { // a thread that was started meanwhile may not be bound
		more = false
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("listing this process's threads: %w", err)
		}
		for _, t := range threads {
			id, _ := strconv.Atoi(t.Name())
			if seen[id] {
				continue
			}
			seen[id], more = true, true
			if !slices.Equal(allowed(id), before) {
				continue
			}
			if err := unix.SchedSetaffinity(id, &own); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("the system refuses: %w", err)
			}
		}
	}
	return nil
}

// preferred is the kernel's MPOL_PREFERRED: from a node as long as it has memory, then from others.
const preferred = 1

// Prefer asks for the pages of memory, from now on, from a NUMA node. The memory must begin at a page.
func Prefer(memory []byte, node int) error {
	if len(memory) == 0 || node < 0 || node >= 64 {
		return nil
	}
	mask := uint64(1) << node
	_, _, errno := unix.Syscall6(unix.SYS_MBIND, uintptr(unsafe.Pointer(unsafe.SliceData(memory))), uintptr(len(memory)),
		preferred, uintptr(unsafe.Pointer(&mask)), 65, 0) // the kernel takes one bit less than it is told
	if errno != 0 {
		return errno
	}
	return nil
}
