package launch

import (
	"fmt"
	"os"
	"path/filepath"
)

// logged returns a sink that also writes to the process's log file. A restarted process appends to
// the file. The first write error is reported and the job continues.
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
	name := p.name()                   // the process may become another rank
	return func(of stream, b []byte) { // one call at a time per stream; both streams may call concurrently
		fault := err
		if fault == nil && len(b) > 0 {
			_, fault = f.Write(b)
		}
		if fault != nil {
			p.unlogged.Do(func() {
				j.cfg.Report(fmt.Sprintf("what %s prints is not all in a file: %v", name, fault))
			})
		}
		sink(of, b)
	}
}
