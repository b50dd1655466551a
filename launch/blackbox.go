package launch

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/ringo-ml/ringo/blackbox"
	"github.com/ringo-ml/ringo/cluster"
	"github.com/ringo-ml/ringo/record"
)

// RecordedError is why a job failed, and what its processes had recorded until then.
type RecordedError struct {
	Err error
	// Finding is what that shows; nil: nothing.
	Finding *blackbox.Finding
	// File is where all of it is; "": nowhere, and Unwritten says why, unless none was asked for.
	File      string
	Unwritten error
}

// Error is Err, and behind it, indented, a line each for what the black box shows and where it is.
func (e *RecordedError) Error() string {
	text := e.Err.Error()
	if e.Finding != nil {
		text += fmt.Sprintf("\n  black box: %v", e.Finding)
	}
	switch {
	case e.File != "":
		text += "\n  black box: what each was doing: ringo blackbox " + e.File
	case e.Unwritten != nil:
		text += fmt.Sprintf("\n  black box: %v", e.Unwritten)
	}
	return text
}

// Unwrap returns Err.
func (e *RecordedError) Unwrap() error { return e.Err }

// boxed merges what all processes have recorded if the job has failed, and adds to err what that shows. There is no black box where it
// would show nothing: of programs that record nothing, and of ranks that have all ended by themselves with nothing under way, such as
// those that cannot read their data.
func (j *job) boxed(err error) error {
	if stopped := (*cluster.StoppedError)(nil); err == nil || j.interrupted || errors.As(err, &stopped) {
		return err
	}
	box, recorded, killed := &blackbox.Box{Written: time.Now(), Why: err.Error()}, false, false
	var death *DeathError
	_ = errors.As(err, &death)
	for _, p := range j.procs {
		is := blackbox.Process{Name: p.name(), Rank: -1, Serves: !p.role.leads, How: p.how}
		if is.Lost = death != nil && death.Failed == "" && death.Who == p.name(); is.Lost {
			is.How = cmp.Or(death.How, is.How)
		} else if p.signalled() {
			is.How = "ended by its launcher"
		}
		if p.role.Mesh || p.role.leads {
			is.Rank = p.role.before + p.number
		}
		s, fault := p.recorded()
		is.Silent = errorText(fault)
		recorded, killed = recorded || s != nil, killed || p.killed() && !p.signalled()
		box.Add(is, s)
	}
	out := &RecordedError{Err: err, Finding: box.Find()}
	if !recorded || out.Finding == nil && !killed {
		return err
	}
	if j.cfg.BlackBox == "" {
		return out
	}
	out.File, out.Unwritten = writeBox(j.cfg.BlackBox, box)
	return out
}

// recorded is what the process has recorded, nil where it has recorded nothing: the memory of one on another host is fetched.
func (p *process) recorded() (*record.Snapshot, error) {
	memory := p.memory // which others may be looking at
	if p.away != nil && memory == nil {
		if memory = p.away.recalled(p.number); memory != nil {
			defer memory.Close()
		}
	}
	if memory == nil {
		return nil, nil
	}
	return record.Read(memory)
}

// writeBox writes a file of its own name into a folder, for its owner alone to read, and returns its path. Of one that cannot be
// written nothing is left.
func writeBox(folder string, box *blackbox.Box) (path string, err error) {
	f, err := os.CreateTemp(folder, "ringo-blackbox-*.json")
	if err == nil {
		if err = errors.Join(box.Write(f), f.Close()); err == nil {
			return f.Name(), nil
		}
		_ = os.Remove(f.Name())
	}
	return "", fmt.Errorf("it cannot be written: %w", err)
}
