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
	// MaxValuesBytes is the maximum size of the Values in a message, as AppendBinary encodes them.
	MaxValuesBytes = 60 << 10
	// MaxDisagreements is the maximum number of conflicts in a message.
	MaxDisagreements = 32

	maxPath  = 128
	maxText  = 32 << 10
	maxShown = 200 // bytes of another process's text in an error
)

// Check rejects values that cannot be sent: unprintable paths or texts, or too many bytes.
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

// AppendBinary appends the paths and texts of v to b, sorted by path, each after its length in two
// bytes. The error is always nil.
func (v Values) AppendBinary(b []byte) ([]byte, error) {
	for _, p := range slices.Sorted(maps.Keys(v)) {
		for _, s := range []string{string(p), v[p]} {
			b = append(binary.LittleEndian.AppendUint16(b, uint16(len(s))), s...)
		}
	}
	return b, nil
}

var errValues = errors.New("want settings by path, with their lengths")

// UnmarshalBinary decodes the output of AppendBinary. It rejects values that Check rejects, and
// paths out of order.
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

// Conflict is a setting with different values in two processes.
type Conflict struct {
	Path Path `json:"path"`
	// Process has Text, and Other has OtherText.
	Process   string `json:"process"`
	Text      string `json:"text"`
	Other     string `json:"other"`
	OtherText string `json:"other_text"`
}

// Fault returns an error with the setting, both processes in alphabetical order, and both values.
func (d Conflict) Fault() *Error {
	if d.Other < d.Process {
		d.Process, d.Text, d.Other, d.OtherText = d.Other, d.OtherText, d.Process, d.Text
	}
	return Errorf(d.Path, "is %s on %s and %s on %s: give all processes of a job the same", shown(d.Text), d.Process, shown(d.OtherText), d.Other)
}

// shown returns another process's text, cut to maxShown bytes, and quoted if empty, unprintable or
// with spaces.
func shown(text string) string {
	if len(text) > maxShown {
		text = strings.ToValidUTF8(text[:maxShown], "") + "…"
	}
	if text == "" || strings.Contains(text, " ") || !printable(text) {
		return strconv.Quote(text)
	}
	return text
}

// ConflictError wraps the Error of each setting on which processes of a job disagree.
type ConflictError struct{ Over Disagreements }

// Error returns all conflicts on one line.
func (e *ConflictError) Error() string {
	texts := make([]string, len(e.Over))
	for i, d := range e.Over {
		texts[i] = d.Fault().Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns an Error per conflict.
func (e *ConflictError) Unwrap() []error {
	errs := make([]error, len(e.Over))
	for i, d := range e.Over {
		errs[i] = d.Fault()
	}
	return errs
}

// Disagreements is a list of conflicts.
type Disagreements []Conflict

// Short returns the first MaxDisagreements conflicts of l, with shortened texts.
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

// Check rejects lists that exceed the limits of Short or cannot be printed.
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

// Agreement compares the settings of a job's processes. The zero value is empty. Methods are safe
// for concurrent use.
type Agreement struct {
	mu     sync.Mutex
	values map[Path]reportedValue
}

// reportedValue is a value and its first reporter.
type reportedValue struct{ who, text string }

// Join compares a process's values with earlier ones and returns a *ConflictError for differences.
// A path of a single process is not compared. Without a conflict Join stores the values for later
// comparisons.
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
