package wal

import (
	"errors"
	"fmt"
	"io/fs"
)

// End is where a log ends, and how one knows.
type End struct {
	Last   uint64 `json:"last_record"` // number of the last whole record; 0: there is none
	Path   string `json:"segment"`     // of the segment after whose record the log ends; empty: there is no log
	Offset int64  `json:"offset"`      // of the end, in bytes
	Torn   int64  `json:"torn_bytes"`  // after it: of a write that was cut short
	// Marked says that it is known which records were acknowledged: those up to Acknowledged, after a loss of power at
	// least.
	Marked       bool   `json:"marked"`
	Acknowledged uint64 `json:"acknowledged_record,omitempty"`
	Closed       bool   `json:"closed"` // in good order
}

// String says it to a person.
func (e End) String() string {
	if e.Path == "" {
		return "there is no log"
	}
	text := fmt.Sprintf("ends with record %d, at byte %d of %s", e.Last, e.Offset, e.Path)
	switch {
	case e.Closed:
		return text + ", where it was closed in good order"
	case e.Marked:
		text += fmt.Sprintf("; it was not closed, and has all records that were acknowledged (up to %d)", e.Acknowledged)
	default:
		text += fmt.Sprintf("; whether records after it are lost cannot be known: no file %s says what was acknowledged", markName)
	}
	if e.Torn > 0 {
		text += fmt.Sprintf("; the %d bytes after it are of a write that was cut short", e.Torn)
	}
	return text
}

// Ends finds where a log ends that nobody has open. It reads the last segment, takes no lock and changes nothing. A log that has
// lost acknowledged records at its end gives a *[LostError], other damage a *[DamageError]. owner is its Config.Owner.
func Ends(dir, owner string) (End, error) {
	end, _, err := ends(dir, owner)
	if err != nil {
		return end, fmt.Errorf("wal: reading %s: %w", dir, err)
	}
	return end, nil
}

// ends is Ends, with the segments that have records or may get some. Where the last one of the directory is not
// among them, a crash has kept its header from being written.
func ends(dir, owner string) (end End, all []segment, err error) {
	m, known, err := readMark(dir, owner) // first: of a log that somebody has open it must not be newer than the segments
	if err == nil {
		all, err = list(dir)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return end, nil, nil
	}
	listed := all
	if err == nil {
		all, err = withoutUnborn(all, owner)
	}
	if err != nil {
		return end, nil, err
	}
	for _, s := range all[:max(0, len(all)-1)] { // of what Replay may leave out, too
		b, err := readAtMost(s.path, segmentHeader)
		if err == nil {
			_, err = checkHeader(s.path, b, s.first, owner)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // of a log that is open, Truncate may have removed it
			return end, nil, err
		}
	}
	if len(all) > 0 {
		last := all[len(all)-1]
		b, err := readWhole(last.path, nil)
		if err != nil {
			return end, nil, err
		}
		at, next, err := scan(last.path, b, last.first, owner, true, func(record) error { return nil })
		if err != nil {
			return end, nil, err
		}
		end = End{Last: next - 1, Path: last.path, Offset: int64(at), Torn: int64(len(b) - at)}
	}
	if !known {
		return end, all, nil
	}
	end.Marked, end.Acknowledged, end.Closed = true, m.safe, m.closed && m.safe == end.Last
	if m.safe > end.Last {
		lost := &LostError{Dir: dir, End: end}
		if len(listed) > len(all) {
			lost.Headless = listed[len(listed)-1].path
		}
		return end, nil, lost
	}
	if m.closed && (end.Torn > 0 || end.Last > m.safe) {
		return end, nil, &DamageError{end.Path, end.Offset, fmt.Sprintf("records up to %d and %d bytes after them, but the log was closed in good order after record %d", end.Last, end.Torn, m.safe)}
	}
	return end, all, nil
}
