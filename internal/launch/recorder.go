package launch

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/ringo-ml/ringo/internal/watch/record"
)

// The launcher holds the memory of each process's record, so the record survives the process.

// Recorder returns the recorder of a rank, in the launcher's memory. Without a launcher, or with a
// descriptor closed by a wrapper program, the memory is private.
func (e RankEnv) Recorder() *record.Recorder { return recorderAt(e.Record) }

// Recorder is RankEnv.Recorder for a process that is not a rank.
func (e RoleEnv) Recorder() *record.Recorder { return recorderAt(e.Record) }

// recorderAt keeps the descriptor open for a later job of this process, except in children.
func recorderAt(descriptor int) *record.Recorder {
	if descriptor > 0 {
		if fd, err := unix.FcntlInt(uintptr(descriptor), unix.F_DUPFD_CLOEXEC, 0); err == nil {
			f := os.NewFile(uintptr(fd), "memory")
			defer f.Close()
			if r, err := record.Map(f); err == nil {
				unix.CloseOnExec(descriptor) // only if the descriptor is the launcher's memory
				return r
			}
		}
	}
	return record.New(record.Config{})
}

// memory creates memory for a process's record, or reports the first failure and returns nil.
func (j *job) memory() *os.File {
	f, err := record.Create(record.Config{})
	if err != nil && !j.blind {
		if j.blind = true; !errors.Is(err, errors.ErrUnsupported) {
			j.cfg.Report("no black box of the processes' last operations is written if the job fails: " + err.Error())
		}
	}
	return f
}
