package launch

import (
	"bytes"
	"strings"
	"sync"
)

const (
	// maxLine bounds a line of output in bytes; a longer one is cut in lines
	// of this length.
	maxLine = 64 << 10
	// maxTailLine bounds a line that is kept for an error, in bytes.
	maxTailLine = 1 << 10
)

// splitter cuts a stream into lines. A carriage return within a line overwrites
// what stands before it, as on a terminal.
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

// add appends a piece of a line within the bound.
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

// flush emits a last line that has no end.
func (s *splitter) flush() {
	if v := visible(s.buf); len(v) > 0 {
		s.emit(v)
	}
	s.buf = nil
}

// visible is what a terminal would show of a line.
func visible(line []byte) []byte {
	line = bytes.TrimRight(line, "\r")
	return line[bytes.LastIndexByte(line, '\r')+1:]
}

// tail keeps a process's last lines.
type tail struct {
	mu    sync.Mutex
	max   int
	lines []string
}

func (t *tail) add(line []byte) {
	text := strings.ToValidUTF8(string(line[:min(len(line), maxTailLine)]), "?")
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.lines) == t.max {
		t.lines = append(t.lines[:0], t.lines[1:]...)
	}
	t.lines = append(t.lines, text)
}

func (t *tail) last() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string(nil), t.lines...)
}
