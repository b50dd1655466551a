package launch

import (
	"bytes"
	"strings"
	"sync"
)

const (
	// maxLine is the maximum length of an output line in bytes; longer lines are split.
	maxLine = 64 << 10
	// maxTailLine is the maximum length in bytes of a line kept for an error.
	maxTailLine = 1 << 10
)

// splitter splits a stream into lines. A carriage return overwrites the text before.
type splitter struct {
	buf  []byte
	emit func(line []byte)
}

func (s *splitter) write(p []byte) {
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			s.add(p)
			return
		}
		s.add(p[:i])
		s.emit(visible(s.buf))
		s.buf = s.buf[:0]
		p = p[i+1:]
	}
}

func (s *splitter) add(p []byte) {
	s.buf = append(s.buf, p...)
	if len(s.buf) <= maxLine {
		return
	}
	s.buf = append(s.buf[:0], visible(s.buf)...)
	for len(s.buf) > maxLine {
		s.emit(s.buf[:maxLine])
		s.buf = append(s.buf[:0], s.buf[maxLine:]...)
	}
}

func (s *splitter) flush() {
	if v := visible(s.buf); len(v) > 0 {
		s.emit(v)
	}
	s.buf = nil
}

// visible returns the part of a line that a terminal would display.
func visible(line []byte) []byte {
	line = bytes.TrimRight(line, "\r")
	return line[bytes.LastIndexByte(line, '\r')+1:]
}

// tail keeps a process's last lines, and the first lines of a panic of Go among the lines before.
type tail struct {
	mu    sync.Mutex
	max   int
	lines []string
	count int      // lines until now
	panic []string // first lines of the last panic
	since int      // count at the panic's first line
}

const (
	// panicLines is the number of lines of a panic up to the source line that raised the panic.
	panicLines = 5
	// panicReach is the number of lines after which a panic is old: the program has recovered.
	panicReach = 1000
)

func (t *tail) add(line []byte) {
	text := strings.ToValidUTF8(string(line[:min(len(line), maxTailLine)]), "?")
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count++; isPanic(text) {
		t.panic, t.since = nil, t.count
	}
	if t.since > 0 && t.count-t.since < panicLines {
		t.panic = append(t.panic, text)
	}
	if len(t.lines) == t.max {
		t.lines = append(t.lines[:0], t.lines[1:]...)
	}
	t.lines = append(t.lines, text)
}

// isPanic reports whether a line begins Go's output for a fatal panic or error.
func isPanic(line string) bool {
	return strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")
}

// last returns the last lines, led by the first lines of an earlier panic.
func (t *tail) last() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.since == 0 || t.since > t.count-len(t.lines) || t.count-t.since > panicReach {
		return append([]string(nil), t.lines...)
	}
	head := t.panic[:min(len(t.panic), max(1, t.max-2))]
	out := append(append([]string(nil), head...), "...")
	out = append(out, t.lines[min(len(out), len(t.lines)):]...)
	return out[:min(len(out), t.max)]
}
