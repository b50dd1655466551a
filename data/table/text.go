package table

import (
	"bytes"
	"fmt"
	"io"
	"unicode/utf8"
)

// bounded reads a stream of UTF-8 text. It returns an error at the first byte that is not text, and
// if the caller reads more than budget bytes without setting budget again.
type bounded struct {
	r      io.Reader
	budget int

	name   string
	line   int64  // line of the next byte
	column int    // bytes before it in the line
	tail   []byte // start of an incomplete character
	fault  error  // error of the first byte that is not text
}

type boundError struct{ most int }

func (e *boundError) Error() string {
	return fmt.Sprintf("a row of more than %d bytes: this is no table of text, or a quote does not end", e.most)
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.budget <= 0 {
		return 0, &boundError{maxRecord}
	}
	if b.fault != nil {
		return 0, b.fault
	}
	n, err := b.r.Read(p[:min(len(p), b.budget)])
	b.budget -= n
	if b.fault = b.check(p[:n], err == io.EOF); b.fault != nil {
		return 0, b.fault
	}
	return n, err
}

// check returns an error for the first byte that is not text. end reports the end of the text.
func (b *bounded) check(p []byte, end bool) error {
	text := p
	if len(b.tail) > 0 {
		text = append(b.tail, p...)
	}
	at := NotText(text)
	if at < 0 || !end && text[at] != 0 && !utf8.FullRune(text[at:]) {
		if b.tail = nil; at >= 0 {
			b.tail = bytes.Clone(text[at:])
			text = text[:at]
		}
		b.move(text)
		return nil
	}
	start := b.line == 1 && b.column == 0 && at == 0
	b.move(text[:at])
	place := fmt.Sprintf("byte %d of the line, %#02x", b.column+1, text[at])
	problem := place + ", is not UTF-8: convert the file, for instance with `iconv -f WINDOWS-1252 -t UTF-8 OLD > NEW`"
	switch {
	case start && len(text) > 1 && (text[0] == 0xff && text[1] == 0xfe || text[0] == 0xfe && text[1] == 0xff):
		problem = "the file is UTF-16: convert it to UTF-8, for instance with `iconv -f UTF-16 -t UTF-8 OLD > NEW`"
	case text[at] == 0:
		problem = fmt.Sprintf("a zero byte, byte %d of the line: this is no file of text; one in UTF-16 is converted with `iconv -f UTF-16LE -t UTF-8 OLD > NEW`", b.column+1)
	}
	return &Fault{File: b.name, Line: b.line, Problem: problem}
}

// move counts the lines and bytes of text passed to the caller.
func (b *bounded) move(text []byte) {
	b.line += int64(bytes.Count(text, []byte{'\n'}))
	if at := bytes.LastIndexByte(text, '\n'); at >= 0 {
		b.column = len(text) - at - 1
	} else {
		b.column += len(text)
	}
}

// NotText returns the index of the first byte that is 0 or not UTF-8, or -1.
func NotText(text []byte) int {
	if utf8.Valid(text) {
		return bytes.IndexByte(text, 0)
	}
	for at := 0; at < len(text); {
		r, n := utf8.DecodeRune(text[at:])
		if r == utf8.RuneError && n == 1 || r == 0 {
			return at
		}
		at += n
	}
	return -1
}
