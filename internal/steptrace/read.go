package steptrace

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/internal/watch/record"
)

// Kinds of file errors, for errors.Is.
var (
	// ErrTruncated means that the file ends before the timeline.
	ErrTruncated = errors.New("it ends too early")
	// ErrFormat means that the file is not a timeline written by ringo.
	ErrFormat = errors.New("no timeline of ringo")
	// ErrLarge means that the file exceeds a limit.
	ErrLarge = errors.New("too large")
)

func formatf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrFormat, fmt.Sprintf(format, args...))
}

func largef(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrLarge, fmt.Sprintf(format, args...))
}

// maxValue is the maximum length of a value in the file.
const maxValue = 1 << 20

// metered stops reading at about maxValue bytes per value, against hostile files.
type metered struct {
	from io.Reader
	left int
}

func (m *metered) Read(p []byte) (int, error) {
	if m.left <= 0 {
		return 0, largef("a value of more than %d bytes", maxValue)
	}
	n, err := m.from.Read(p[:min(len(p), m.left)])
	m.left -= n
	return n, err
}

// reader reads a timeline in a single pass, value by value, and stores the spans only: memory for a
// hostile file is limited to maxValue bytes at a time, and limits are checked before storing.
type reader struct {
	meter metered
	json  *json.Decoder
	out   Timeline
	spans int
	ranks map[int]*Rank // ranks by number, in the order of the file
	notes []rankNote
}

// Read reads a timeline. Errors, ErrTruncated, ErrFormat, ErrLarge or of reading, have the offset.
func Read(from io.Reader) (*Timeline, error) {
	r := &reader{meter: metered{from, maxValue}, ranks: map[int]*Rank{}}
	r.json = json.NewDecoder(&r.meter)
	r.json.DisallowUnknownFields()
	r.out.place("") // empty name, for spans without an algorithm
	if err := r.file(); err != nil {
		return nil, fmt.Errorf("byte %d: %w", r.json.InputOffset(), named(err))
	}
	return &r.out, nil
}

// named maps a JSON error to a kind of this package.
func named(err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: the run that wrote it was cut off, or it was not copied whole", ErrTruncated)
	case errors.Is(err, ErrFormat), errors.Is(err, ErrLarge):
		return err
	case errors.As(err, &syntax), errors.As(err, &kind), strings.HasPrefix(err.Error(), "json: "):
		return formatf("%s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return err
}

func (r *reader) file() error {
	if err := r.want(json.Delim('{')); err != nil {
		return err
	}
	seen := map[string]bool{}
	for r.json.More() {
		key, err := r.token()
		if err != nil {
			return err
		}
		name, _ := key.(string)
		if seen[name] {
			return formatf("%q stands twice", name)
		}
		seen[name] = true
		if err := r.field(name); err != nil {
			return err
		}
	}
	if err := r.want(json.Delim('}')); err != nil {
		return err
	}
	if len(seen) != 3 {
		return formatf("it lacks displayTimeUnit, traceEvents or otherData")
	}
	if _, err := r.token(); err != io.EOF {
		return formatf("something follows the timeline")
	}
	return r.finish()
}

// token returns the next token, and resets the meter.
func (r *reader) token() (json.Token, error) {
	r.meter.left = maxValue
	return r.json.Token()
}

func (r *reader) want(d json.Delim) error {
	got, err := r.token()
	if err == nil && got != d {
		err = formatf("%v, want %v", got, d)
	}
	return err
}

func (r *reader) field(name string) error {
	switch name {
	case "displayTimeUnit":
		unit, err := r.token()
		if err == nil && unit != "ms" {
			err = formatf("displayTimeUnit %v", unit)
		}
		return err
	case "traceEvents":
		return r.list(r.event)
	case "otherData":
		if err := r.want(json.Delim('{')); err != nil {
			return err
		}
		if key, err := r.token(); err != nil || key != "ranks" {
			return cmp.Or(err, formatf("otherData has %v, want ranks", key))
		}
		if err := r.list(r.note); err != nil {
			return err
		}
		return r.want(json.Delim('}'))
	}
	return formatf("it has %.40q", name)
}

func (r *reader) list(each func() error) error {
	if err := r.want(json.Delim('[')); err != nil {
		return err
	}
	for r.json.More() {
		r.meter.left = maxValue
		if err := each(); err != nil {
			return err
		}
	}
	return r.want(json.Delim(']'))
}

// nanos is a time stored in the file as microseconds with up to three decimals.
type nanos int64

// UnmarshalJSON parses the time exactly.
func (n *nanos) UnmarshalJSON(text []byte) error {
	whole, part, _ := strings.Cut(string(text), ".")
	// A float64 would lose the last digits of times in a long run.
	v, err := strconv.ParseInt(whole+part+"000"[min(3, len(part)):], 10, 64)
	if err != nil || len(part) > 3 || v > math.MaxInt64/4 || v < -math.MaxInt64/4 {
		return formatf("the time %.40s", text)
	}
	*n = nanos(v)
	return nil
}

type event struct {
	Phase    string          `json:"ph"`
	Name     string          `json:"name"`
	Category string          `json:"cat"`
	Process  int             `json:"pid"`
	Thread   int             `json:"tid"`
	Start    *nanos          `json:"ts"`
	Length   *nanos          `json:"dur"`
	Scope    string          `json:"s"`
	Args     json.RawMessage `json:"args"`
}

// event reads an event. Only complete events are analysed; names of rows are for viewers.
func (r *reader) event() error {
	var e event
	if err := r.json.Decode(&e); err != nil {
		return err
	}
	switch {
	case e.Process < 1:
		return formatf("process %d of an event", e.Process)
	case e.Process > maxRanks:
		return largef("rank %d, want less than %d", e.Process-1, maxRanks)
	}
	switch e.Phase {
	case "M", "i": // names and positions of rows; the number of dropped spans is in otherData too
		return nil
	case "X":
		return r.span(e)
	}
	return formatf("an event of kind %.40q", e.Phase)
}

// span adds a complete event to its rank, after checking the lengths.
func (r *reader) span(e event) error {
	track := slices.IndexFunc(tracks[:], func(t record.Phase) bool { return t.String() == e.Category })
	if track < 0 {
		return formatf("an event of category %.40q", e.Category)
	}
	if e.Start == nil || e.Length == nil || *e.Start < 0 || *e.Length < 0 {
		return formatf("%.40q lacks a time, or has one below 0", e.Name)
	}
	args := struct {
		Step  *int64 `json:"step"`
		How   string `json:"algorithm"`
		Bytes *int64 `json:"bytes_sent"`
	}{}
	if err := strictly(e.Args, &args); err != nil {
		return err
	}
	s := Span{Start: int64(*e.Start), End: int64(*e.Start + *e.Length), Track: tracks[track], Step: -1, Bytes: -1}
	for _, v := range []struct{ from, to *int64 }{{args.Step, &s.Step}, {args.Bytes, &s.Bytes}} {
		if v.from != nil && *v.from < 0 {
			return formatf("%.40q has a step or bytes below 0", e.Name)
		} else if v.from != nil {
			*v.to = *v.from
		}
	}
	if r.spans++; r.spans > maxSpans {
		return largef("more than %d spans", maxSpans)
	}
	var err error
	if s.name, err = r.known(e.Name); err == nil {
		s.how, err = r.known(args.How)
	}
	at := r.ranks[e.Process-1]
	if at == nil {
		at = new(Rank)
		r.ranks[e.Process-1] = at
	}
	at.Spans = append(at.Spans, s)
	return err
}

// strictly decodes a value without unknown fields.
func strictly(text []byte, into any) error {
	if len(text) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

func (r *reader) known(name string) (uint32, error) {
	if len(name) > maxName {
		return 0, largef("a name of %d bytes", len(name))
	}
	if len(r.out.names) == maxNames {
		if _, ok := r.out.places[name]; !ok {
			return 0, largef("more than %d names", maxNames)
		}
	}
	return r.out.place(name), nil
}

type rankNote struct {
	Rank    int   `json:"rank"`
	Offset  nanos `json:"clock_offset_us"`
	Bound   nanos `json:"clock_error_us"`
	Spans   int   `json:"spans"`
	LeftOut int64 `json:"spans_left_out"`
}

func (r *reader) note() error {
	var n rankNote
	if err := r.json.Decode(&n); err != nil {
		return err
	}
	if n.Rank != len(r.notes) || n.Bound < 0 || n.LeftOut < 0 {
		return formatf("rank %d of otherData, of which %d were before", n.Rank, len(r.notes))
	}
	if len(r.notes) == maxRanks {
		return largef("more than %d ranks", maxRanks)
	}
	r.notes = append(r.notes, n)
	return nil
}

// finish combines the events and the metadata of each rank.
func (r *reader) finish() error {
	for rank := range r.ranks {
		if rank >= len(r.notes) {
			return formatf("spans of rank %d, of which otherData does not speak", rank)
		}
	}
	for _, n := range r.notes {
		rank := Rank{ClockError: int64(n.Bound), LeftOut: n.LeftOut}
		if has := r.ranks[n.Rank]; has != nil {
			rank.Spans = has.Spans
		}
		if len(rank.Spans) != n.Spans {
			return formatf("%d spans of rank %d, of which otherData says that there are %d", len(rank.Spans), n.Rank, n.Spans)
		}
		rank.sort()
		r.out.Ranks = append(r.out.Ranks, rank)
	}
	return nil
}
