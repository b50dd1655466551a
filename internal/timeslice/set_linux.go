package timeslice

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// tasks lists the threads of this process.
const tasks = "/proc/self/task"

// Set sets the slice of all threads of this process, inherited by new threads and processes.
// Priorities and real-time threads are unchanged. Set has no effect before Linux 6.12. Cost: some
// microseconds per thread.
func Set(slice time.Duration) error {
	if err := Check(slice); err != nil {
		return err
	}
	done := map[int]bool{}
	for { // threads may start others during the loop
		entries, err := os.ReadDir(tasks)
		if err != nil {
			return err
		}
		before := len(done)
		for _, e := range entries {
			id, err := strconv.Atoi(e.Name())
			if err != nil || done[id] {
				continue
			}
			if err := setThread(id, slice); err != nil && !errors.Is(err, unix.ESRCH) { // the thread has ended
				return fmt.Errorf("time slice of thread %d: %w", id, err)
			}
			done[id] = true
		}
		if len(done) == before {
			return nil
		}
	}
}

func setThread(id int, slice time.Duration) error {
	attr, err := unix.SchedGetAttr(id, 0)
	if err != nil {
		return err
	}
	if attr.Policy != unix.SCHED_NORMAL && attr.Policy != unix.SCHED_BATCH {
		return nil
	}
	attr.Runtime = uint64(slice)
	return unix.SchedSetAttr(id, attr, 0)
}

// Of returns the calling thread's slice; 0 if unsupported.
func Of() (time.Duration, error) {
	attr, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		return 0, err
	}
	return time.Duration(attr.Runtime), nil
}
