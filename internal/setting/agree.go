package setting

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

const (
	// MaxValuesBytes bounds Values that one process sends another, as AppendBinary writes them.
	MaxValuesBytes = 60 << 10
	// MaxDisagreements is how many of them one process tells another.
	MaxDisagreements = 32

	maxPath  = 128
	maxText  = 32 << 10
	maxShown = 200 // of a text that others have told
)

// Check wants values that may be sent: paths and texts that can be printed, and few enough bytes.
func (v Values) Check() error {
	bytes := 0
	for p, text := range v {
		bytes += 4 + len(p) + len(text)
		if p == "" || len(p) > maxPath || len(text) > maxText || !printable(string(p)) || !printable(text) {
			return fmt.Errorf("setting %s with a text of %d bytes: want 1 to %d bytes of path and at most %d of text that can be printed", shown(string(p)), len(text), maxPath, maxText)
		}
	}
	if bytes > MaxValuesBytes {
		return fmt.Errorf("%d settings of %d bytes: want at most %d bytes", len(v), bytes, MaxValuesBytes)
	}
	return nil
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// AppendBinary appends v to b: each path and its text by path, two bytes of length before each. It returns no error.
func (v Values) AppendBinary(b []byte) ([]byte, error) {
	for _, p := range slices.Sorted(maps.Keys(v)) {
		for _, s := range []string{string(p), v[p]} {
			b = append(binary.LittleEndian.AppendUint16(b, uint16(len(s))), s...)
		}
	}
	return b, nil
}

var errValues = errors.New("want settings by path, with their lengths")

// UnmarshalBinary reads what AppendBinary wrote of values that Check accepts, and nothing else.
func (v *Values) UnmarshalBinary(b []byte) error {
	var out Values
	last := ""
	next := func() (s string, ok bool) {
		if len(b) < 2 || len(b)-2 < int(binary.LittleEndian.Uint16(b)) {
			return "", false
		}
		n := 2 + int(binary.LittleEndian.Uint16(b))
		s, b = string(b[2:n]), b[n:]
		return s, true
	}
	for len(b) > 0 {
		path, ok := next()
		text, also := next()
		if !ok || !also || path <= last {
			return errValues
		}
		if out == nil {
			out = Values{}
		}
		out[Path(path)], last = text, path
	}
	if err := out.Check(); err != nil {
		return err
	}
	*v = out
	return nil
}

// Conflict is a setting of which two processes have different values.
type Conflict struct {
	Path Path `json:"path"`
	// Process has Text, and Other has OtherText.
	Process   string `json:"who"`
	Text      string `json:"text"`
	Other     string `json:"other"`
	OtherText string `json:"other_text"`
}

// Fault names the setting, both processes and both values, whichever has found it in the same order.
func (d Conflict) Fault() *Error {
	if d.Other < d.Process {
		d.Process, d.Text, d.Other, d.OtherText = d.Other, d.OtherText, d.Process, d.Text
	}
	return Errorf(d.Path, "is %s on %s and %s on %s: give all processes of a job the same", shown(d.Text), d.Process, shown(d.OtherText), d.Other)
}

// shown is a text of another process, short enough for a line, and safe for a terminal.
func shown(text string) string {
	if len(text) > maxShown {
		text = strings.ToValidUTF8(text[:maxShown], "") + "…"
	}
	if text == "" || strings.Contains(text, " ") || !printable(text) {
		return strconv.Quote(text)
	}
	return text
}

// ConflictError says that processes of a job were told different things. It wraps the Error of each
// setting.
type ConflictError struct{ Over Disagreements }

// Error is one line.
func (e *ConflictError) Error() string {
	texts := make([]string, len(e.Over))
	for i, d := range e.Over {
		texts[i] = d.Fault().Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns the faults.
func (e *ConflictError) Unwrap() []error {
	errs := make([]error, len(e.Over))
	for i, d := range e.Over {
		errs[i] = d.Fault()
	}
	return errs
}

// Disagreements are several.
type Disagreements []Conflict

// Short is as many of l as one process tells another, with texts that are short enough to be shown.
func (l Disagreements) Short() Disagreements {
	short := slices.Clone(l[:min(len(l), MaxDisagreements)])
	for i := range short {
		for _, text := range []*string{&short[i].Text, &short[i].OtherText} {
			if len(*text) > maxShown {
				*text = strings.ToValidUTF8((*text)[:maxShown], "") + "…"
			}
		}
	}
	return short
}

// Check wants disagreements that Short has made of values that Check accepts.
func (l Disagreements) Check() error {
	for _, d := range l {
		for _, s := range []string{string(d.Path), d.Process, d.Text, d.Other, d.OtherText} {
			if len(s) > maxShown+len("…") || !printable(s) {
				return fmt.Errorf("a disagreement with %s", shown(s))
			}
		}
	}
	if len(l) > MaxDisagreements {
		return fmt.Errorf("%d disagreements: want at most %d", len(l), MaxDisagreements)
	}
	return nil
}

// Agreement is what the processes of a job have told of its settings. The zero value has heard nobody. Its methods may be
// called from any goroutine.
type Agreement struct {
	mu     sync.Mutex
	values map[Path]reportedValue
}

// reportedValue is a value, and who told it first.
type reportedValue struct{ who, text string }

// Join compares what a process tells with what others have told before it, by path, where both have the setting. It returns
// a *ConflictError, or nil; then others are compared with this process, too.
func (a *Agreement) Join(who string, values Values) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out Disagreements
	for _, p := range slices.Sorted(maps.Keys(values)) {
		if first, known := a.values[p]; known && first.text != values[p] {
			out = append(out, Conflict{Path: p, Process: first.who, Text: first.text, Other: who, OtherText: values[p]})
		}
	}
	if out != nil {
		return &ConflictError{out}
	}
	if a.values == nil {
		a.values = map[Path]reportedValue{}
	}
	for p, text := range values {
		if _, known := a.values[p]; !known {
			a.values[p] = reportedValue{who, text}
		}
	}
	return nil
}
