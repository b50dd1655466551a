package status

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"golang.org/x/term"
)

// terminal draws lines and reads keys, with golang.org/x/term and a few ECMA-48 sequences known to
// all current terminals. A screen library such as tcell would add 0.5 MiB to the binary, mostly
// descriptions of obsolete terminals.
type terminal struct {
	in     io.Reader                  // key bytes
	out    io.Writer                  // drawing output
	size   func() (width, height int) // called before each drawing, because window sizes change
	colour bool                       // NO_COLOR is unset, https://no-color.org
	close  func()                     // restores the terminal; called once
}

// Sequences at the begin and the end: alternate screen, hidden cursor, no line wrapping.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	leaveScreen = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"
)

// errElsewhere is the end of the error without a terminal.
const errElsewhere = "`ringo status` prints the same as text, and with --json as JSON"

// openTerminal takes over a terminal until close. It first rejects non-terminals, and terminals
// without sequences (TERM=dumb, as in editors). An unknown size means 80 by 24.
func openTerminal(in io.Reader, out io.Writer, env func(string) (string, bool)) (*terminal, error) {
	keys, isFile := in.(*os.File)
	if !isFile || !term.IsTerminal(int(keys.Fd())) {
		return nil, errors.New("`ringo status --watch` takes keys from a terminal, and the standard input is none: " + errElsewhere)
	}
	if name, _ := env("TERM"); name == "" || name == "dumb" {
		return nil, fmt.Errorf("`ringo status --watch` cannot draw on a terminal of TERM=%q: %s", name, errElsewhere)
	}
	before, err := term.MakeRaw(int(keys.Fd()))
	if err != nil {
		return nil, fmt.Errorf("`ringo status --watch` cannot read keys: %w; %s", err, errElsewhere)
	}
	no, _ := env("NO_COLOR")
	t := &terminal{in: in, out: out, colour: no == "", size: func() (int, int) {
		width, height, err := term.GetSize(int(keys.Fd()))
		if err != nil || width <= 0 || height <= 0 {
			return 80, 24 // traditional size
		}
		return width, height
	}}
	t.close = func() {
		_, _ = io.WriteString(t.out, leaveScreen)
		_ = term.Restore(int(keys.Fd()), before)
	}
	_, _ = io.WriteString(t.out, enterScreen) // write errors are ignored
	return t, nil
}

// codes are the sequences of tones, with and without colours. Colours are from the user's palette
// of sixteen, readable on light and dark backgrounds. No information depends on colour alone: each
// part has a separate glyph and alarms have a mark.
var codes = map[tone][2]string{
	plain: {"0", "0"}, strong: {"0;1", "0;1"}, faint: {"0;2", "0;2"}, alarm: {"0;1;31", "0;1"},
	ofPart: {"0;32", "0"}, ofPart + 1: {"0;33", "0"}, ofPart + 2: {"0;36", "0"}, ofPart + 3: {"0;35", "0"}, ofPart + 4: {"0;34", "0"}, ofPart + 5: {"0;37", "0"},
}

// draw draws the whole screen in one write, over the previous contents, without flicker. The rest
// of each line and of the screen is cleared.
func (t *terminal) draw(all []line, width, height int) {
	var b bytes.Buffer
	b.WriteString("\x1b[H")
	for y, l := range all[:min(len(all), height)] {
		if y > 0 {
			b.WriteString("\r\n")
		}
		for _, s := range cut(l, width) {
			code := codes[s.tone][1]
			if t.colour {
				code = codes[s.tone][0]
			}
			fmt.Fprintf(&b, "\x1b[%sm%s", code, s.text)
		}
		b.WriteString("\x1b[0m\x1b[K")
	}
	b.WriteString("\x1b[J")
	_, _ = t.out.Write(b.Bytes()) // write errors are ignored
}

// cut cuts a line to the given columns, with an ellipsis, and removes characters unsafe for
// terminals: control characters could write elsewhere, and direction marks could disguise a line.
// Names of hosts, files and layers are untrusted.
func cut(l line, width int) (out line) {
	sum := 0
	for _, s := range l {
		s.text = strings.Map(visible, strings.ReplaceAll(s.text, "\n", " "))
		sum += columns(s.text)
		out = append(out, s)
	}
	if sum <= width {
		return out
	}
	room := width - 1
	for i, s := range out {
		if w := columns(s.text); w <= room {
			room -= w
			continue
		}
		var b strings.Builder
		for _, r := range s.text {
			if room -= columns(string(r)); room < 0 {
				break
			}
			b.WriteRune(r)
		}
		out[i].text = b.String() + "…"
		return out[:i+1]
	}
	return out
}

// columns returns a text's display width: two for ideographs and emoji, zero for combining marks.
// Terminals differ for new characters; the terminal cuts a line that is too long by a column.
func columns(text string) (n int) {
	for _, r := range text {
		switch {
		case r < 0x300:
			n++
		case unicode.In(r, unicode.Mn, unicode.Me):
		case unicode.In(r, unicode.Han, unicode.Hangul, unicode.Hiragana, unicode.Katakana) || r >= 0x1f300 && r < 0x1fb00 || r >= 0xff01 && r <= 0xff60:
			n += 2
		default:
			n++
		}
	}
	return n
}

// key is a letter, or a negative number for other keys.
type key rune

const (
	keyUp key = -1 - iota
	keyDown
	keyLeft
	keyRight
	keyPageUp
	keyPageDown
	keyHome
	keyEnd
	keyOther
)

// finals and numbered are the keys by sequence: ESC [ A, ESC O A, ESC [ 1 ; 5 A, and ESC [ 5 ~.
var (
	finals   = map[byte]key{'A': keyUp, 'B': keyDown, 'C': keyRight, 'D': keyLeft, 'H': keyHome, 'F': keyEnd}
	numbered = map[string]key{"1": keyHome, "7": keyHome, "4": keyEnd, "8": keyEnd, "5": keyPageUp, "6": keyPageDown}
)

// readKeys returns the keys in b and the rest: the begin of a sequence, to be read again with
// further bytes, because a network may split sequences anywhere. An unknown sequence is keyOther,
// never its letters: the r within a sequence must not reverse the order.
func readKeys(b []byte) (keys []key, rest []byte) {
	for len(b) > 0 {
		if b[0] != 0x1b {
			keys, b = append(keys, key(b[0])), b[1:]
			continue
		}
		if len(b) < 3 && (len(b) < 2 || b[1] == '[' || b[1] == 'O') {
			return keys, b
		}
		if b[1] != '[' && b[1] != 'O' { // Alt and a letter, for example
			keys, b = append(keys, keyOther), b[2:]
			continue
		}
		end := 2
		for end < len(b) && (b[end] < 0x40 || b[end] > 0x7e) {
			end++
		}
		if end == len(b) {
			if end > 32 { // no key's sequence
				return keys, nil
			}
			return keys, b
		}
		is, known := finals[b[end]]
		if b[end] == '~' {
			number, _, _ := strings.Cut(string(b[2:end]), ";")
			is, known = numbered[number]
		}
		if !known {
			is = keyOther
		}
		keys, b = append(keys, is), b[end+1:]
	}
	return keys, nil
}
