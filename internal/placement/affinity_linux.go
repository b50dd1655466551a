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

// Allowed are this process's allowed processors, ascending; empty if unknown.
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

// BindThread binds the calling thread, locked by the caller, and the processes started by the
// thread. undo restores the thread's processors.
func BindThread(cpus []int) (undo func(), err error) {
	before, own := setOf(allowed(0)), setOf(cpus)
	if err := unix.SchedSetaffinity(0, &own); err != nil {
		return nil, fmt.Errorf("the system refuses: %w", err)
	}
	return func() { _ = unix.SchedSetaffinity(0, &before) }, nil // the old processors are allowed
}

// BindProcess binds all threads with the process's own processors, and threads started later by
// such threads. A thread bound separately keeps its processors.
func BindProcess(pid int, cpus []int) error {
	before, own := allowed(pid), setOf(cpus)
	seen := map[int]bool{}
	for more := true; more; { // a thread started during the loop may be unbound
		more = false
		threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			return fmt.Errorf("listing the process's threads: %w", err)
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

// preferred is the kernel's MPOL_PREFERRED: first from the node, then from other nodes.
const preferred = 1

// Prefer asks for the later pages of memory from a NUMA node. memory must begin at a page.
func Prefer(memory []byte, node int) error {
	if len(memory) == 0 || node < 0 || node >= 64 {
		return nil
	}
	mask := uint64(1) << node
	_, _, errno := unix.Syscall6(unix.SYS_MBIND, uintptr(unsafe.Pointer(unsafe.SliceData(memory))), uintptr(len(memory)),
		preferred, uintptr(unsafe.Pointer(&mask)), 65, 0) // the kernel reads one bit less
	if errno != 0 {
		return errno
	}
	return nil
}
