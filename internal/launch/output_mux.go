package launch

import (
	"bytes"
	"io"
	"reflect"
	"sync"
	"time"
)

type stream int

const (
	stdout stream = iota
	stderr
)

const (
	// holdLines limits the wait for rank 0's unfinished line if it cannot be erased and redrawn.
	holdLines = 200 * time.Millisecond
	// maxHeld limits the waiting bytes, and maxOpen the bytes of a redrawn line.
	maxHeld = 64 << 10
	maxOpen = 4 << 10
	// eraseLine moves to the start of a terminal line and clears the line.
	eraseLine = "\r\x1b[K"
)

// screen merges the processes' output and never interleaves lines: rank 0's bytes pass immediately,
// and lines of other ranks appear between rank 0's lines.
type screen struct {
	mu       sync.Mutex
	w        [2]io.Writer
	rows     [2]*row // equal when both streams have one destination
	terminal bool
}

// row is the unfinished line of rank 0, if any, and the lines waiting for its end.
type row struct {
	of    stream // stream of the unfinished line
	begun bool
	open  []byte // text since the last carriage return; nil if too long
	held  []byte // waiting lines, in order
	timer *time.Timer
}

func newScreen(out, err io.Writer, terminal bool) *screen {
	s := &screen{w: [2]io.Writer{out, err}, rows: [2]*row{{}, {}}, terminal: terminal}
	if terminal || same(out, err) {
		s.rows[stderr] = s.rows[stdout]
	}
	return s
}

func same(a, b io.Writer) bool {
	t := reflect.TypeOf(a)
	return t == reflect.TypeOf(b) && t.Comparable() && a == b
}

// raw writes rank 0's bytes unchanged.
func (s *screen) raw(of stream, p []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rows[of]
	if r.begun && r.of != of && s.terminal {
		s.between(r, of, p)
		return
	}
	_, _ = s.w[of].Write(p)
	r.track(of, p)
	if !r.begun {
		s.release(of, r)
	}
}

// between writes p of one stream while the other stream has an unfinished line on the same
// terminal, for example a result during a progress bar.
func (s *screen) between(r *row, of stream, p []byte) {
	_, _ = io.WriteString(s.w[r.of], eraseLine)
	_, _ = s.w[of].Write(p)
	if p[len(p)-1] == '\n' {
		_, _ = s.w[r.of].Write(r.open)
		return
	}
	r.open, r.begun = nil, false
	r.track(of, p)
}

// track updates the unfinished line after p.
func (r *row) track(of stream, p []byte) {
	r.of = of
	if i := bytes.LastIndexByte(p, '\n'); i >= 0 {
		r.open, r.begun, p = r.open[:0], false, p[i+1:]
	}
	if len(p) == 0 {
		return
	}
	r.begun = true
	r.open = append(r.open, p...)
	if i := bytes.LastIndexByte(r.open[:len(r.open)-1], '\r'); i >= 0 {
		r.open = append(r.open[:0], r.open[i+1:]...)
	}
	if len(r.open) > maxOpen {
		r.open = r.open[:0] // too long to be redrawn: a newline follows instead
	}
}

// line writes one whole line. text has no newline.
func (s *screen) line(of stream, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rows[of]
	switch {
	case !r.begun:
		_, _ = io.WriteString(s.w[of], text+"\n")
	case s.terminal:
		_, _ = io.WriteString(s.w[of], eraseLine+text+"\n"+string(r.open))
	default:
		s.hold(of, r, text)
	}
}

// hold keeps a line until rank 0 finishes its line, for a short time.
func (s *screen) hold(of stream, r *row, text string) {
	r.held = append(append(r.held, text...), '\n')
	if len(r.held) > maxHeld {
		s.breakLine(of, r)
		return
	}
	if r.timer == nil {
		r.timer = time.AfterFunc(holdLines, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.breakLine(of, r)
		})
	}
}

// breakLine ends rank 0's line early, writes the waiting lines, and leaves the rest for a new line.
func (s *screen) breakLine(of stream, r *row) {
	if r.begun && len(r.held) > 0 {
		_, _ = io.WriteString(s.w[r.of], "\n")
		r.open, r.begun = r.open[:0], false
	}
	s.release(of, r)
}

func (s *screen) release(of stream, r *row) {
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
	if len(r.held) > 0 {
		_, _ = s.w[of].Write(r.held)
		r.held = r.held[:0]
	}
}

// close writes the waiting lines, and ends an unfinished line on a terminal.
func (s *screen) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for of, r := range s.rows {
		s.breakLine(stream(of), r)
		if s.terminal && r.begun {
			_, _ = io.WriteString(s.w[r.of], "\n")
			r.begun = false
		}
	}
}
