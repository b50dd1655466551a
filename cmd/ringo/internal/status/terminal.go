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

// terminal is where lines are drawn and keys come from, by golang.org/x/term and the few sequences of ECMA-48 that every terminal of today
// knows. A library of screens such as tcell would add 0.5 MiB to the binary, most of it descriptions of terminals that are no more.
type terminal struct {
	in     io.Reader                  // keys, as bytes
	out    io.Writer                  // what is drawn
	size   func() (width, height int) // asked before each drawing: windows change while they are drawn in
	colour bool                       // NO_COLOR is not set, https://no-color.org
	close  func()                     // gives the terminal back as it was; to be called once
}

// What a terminal is told at the beginning and at the end: another screen, no cursor, and lines that are cut where they are too long.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	leaveScreen = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"
)

// errElsewhere ends the message of who cannot draw.
const errElsewhere = "`ringo status` prints the same as text, and with --json as JSON"

// openTerminal takes a terminal over until close is called. It refuses what is no terminal, and one that says that it knows no sequences
// (TERM=dumb, as in editors), before anything is written. A terminal that does not say its size has that of old.
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
			return 80, 24 // as terminals were that do not say
		}
		return width, height
	}}
	t.close = func() {
		_, _ = io.WriteString(t.out, leaveScreen)
		_ = term.Restore(int(keys.Fd()), before)
	}
	_, _ = io.WriteString(t.out, enterScreen) // who is gone reads nothing
	return t, nil
}

// codes are how tones are drawn: with colours, and without. Colours are of the sixteen that a person's own palette has, so that they can be
// read on light and on dark ground; nothing is told by a colour alone, since each part has a glyph of its own and alarms have a mark.
var codes = map[tone][2]string{
	plain: {"0", "0"}, strong: {"0;1", "0;1"}, faint: {"0;2", "0;2"}, alarm: {"0;1;31", "0;1"},
	ofPart: {"0;32", "0"}, ofPart + 1: {"0;33", "0"}, ofPart + 2: {"0;36", "0"}, ofPart + 3: {"0;35", "0"}, ofPart + 4: {"0;34", "0"}, ofPart + 5: {"0;37", "0"},
}

// draw draws the whole screen in one write, over what was there: nothing flickers. What was right of a line and below the last is cleared.
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
	_, _ = t.out.Write(b.Bytes()) // who is gone reads nothing
}

// cut is a line in so many columns, an ellipsis at the end of one that is longer, without what no terminal may show: control characters
// could write elsewhere, and marks of direction make a line read as something else. Names of hosts, files and layers come from others.
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

// columns is how many a text takes: two for each ideograph and emoji, none for a mark that stands over the letter before. Terminals differ in
// what is new in Unicode; a line that is a column too long is cut by the terminal.
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

// key is a letter, or one of those that have none. Those are below zero, so that no letter is one.
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

// finals and numbered are the keys that sequences stand for: ESC [ A, ESC O A, ESC [ 1 ; 5 A, and ESC [ 5 ~.
var (
	finals   = map[byte]key{'A': keyUp, 'B': keyDown, 'C': keyRight, 'D': keyLeft, 'H': keyHome, 'F': keyEnd}
	numbered = map[string]key{"1": keyHome, "7": keyHome, "4": keyEnd, "8": keyEnd, "5": keyPageUp, "6": keyPageDown}
)

// readKeys are the keys in b, and what is left of it: the begin of a sequence, which is read again with the bytes behind it. Bytes come in
// pieces wherever a network between cuts them. What is a sequence and no known key is keyOther, never the letters in it: the r within one
// must not turn the order round.
func readKeys(b []byte) (keys []key, rest []byte) {
	for len(b) > 0 {
		if b[0] != 0x1b {
			keys, b = append(keys, key(b[0])), b[1:]
			continue
		}
		if len(b) < 3 && (len(b) < 2 || b[1] == '[' || b[1] == 'O') {
			return keys, b
		}
		if b[1] != '[' && b[1] != 'O' { // such as Alt and a letter
			keys, b = append(keys, keyOther), b[2:]
			continue
		}
		end := 2
		for end < len(b) && (b[end] < 0x40 || b[end] > 0x7e) {
			end++
		}
		if end == len(b) {
			if end > 32 { // of no key
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
