package launch

import (
	"fmt"
	"os"
	"path/filepath"
)

// logged is sink of a process whose output goes to a file, too, in the folder of logs: of one that is started again behind that of
// those before it. What cannot be written there is told once, and the job goes on.
func (j *job) logged(p *process, sink func(stream, []byte)) func(stream, []byte) {
	if j.cfg.LogDir == "" {
		return sink
	}
	mode := os.O_CREATE | os.O_WRONLY | os.O_APPEND
	if p.restarts == 0 {
		mode |= os.O_TRUNC
	}
	f, err := os.OpenFile(filepath.Join(j.cfg.LogDir, fmt.Sprintf("%s-%d.log", p.role.Name, p.role.before+p.index)), mode, 0o666)
	p.log = f
	return func(of stream, b []byte) { // one call at a time for each stream, and both may be under way
		fault := err
		if fault == nil && len(b) > 0 {
			_, fault = f.Write(b)
		}
		if fault != nil {
			p.unlogged.Do(func() {
				j.cfg.Report(fmt.Sprintf("what %s prints is not all in a file: %v", p.name(), fault))
			})
		}
		sink(of, b)
	}
}
