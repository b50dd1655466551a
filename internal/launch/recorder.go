package launch

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/ringo-ml/ringo/internal/watch/record"
)

// Each process that a launcher starts gets memory to record in, which the launcher holds: what the process did stays there
// whatever becomes of it.

// Recorder is that of a process in this place: in the memory that its launcher holds, or, without a launcher, and where a program
// in between has closed the descriptor, in memory of its own.
func (e RankEnv) Recorder() *record.Recorder { return recorderAt(e.Record) }

// Recorder is RankEnv.Recorder of a process that is no rank.
func (e RoleEnv) Recorder() *record.Recorder { return recorderAt(e.Record) }

// recorderAt leaves the descriptor open for a later job of the process, and closes it for programs that this one starts.
func recorderAt(descriptor int) *record.Recorder {
	if descriptor > 0 {
		if fd, err := unix.FcntlInt(uintptr(descriptor), unix.F_DUPFD_CLOEXEC, 0); err == nil {
			f := os.NewFile(uintptr(fd), "memory")
			defer f.Close()
			if r, err := record.Map(f); err == nil {
				unix.CloseOnExec(descriptor) // and it is the launcher's memory, and no other file of that number
				return r
			}
		}
	}
	return record.New(record.Config{})
}

// memory makes memory for a process to record in, nil where there is none; that is told once.
func (j *job) memory() *os.File {
	f, err := record.Create(record.Config{})
	if err != nil && !j.blind {
		if j.blind = true; !errors.Is(err, errors.ErrUnsupported) {
			j.cfg.Report("there is no black box, which would tell what processes were doing when the job failed: " + err.Error())
		}
	}
	return f
}
