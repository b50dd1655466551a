package wal

import (
	"errors"
	"fmt"
	"io/fs"
)

// End describes the end of a log, and the evidence for it.
type End struct {
	Last   uint64 `json:"last_record"` // last whole record; 0: none
	Path   string `json:"segment"`     // segment with the end; empty: no log
	Offset int64  `json:"offset"`      // offset of the end in bytes
	Torn   int64  `json:"torn_bytes"`  // bytes after the end, of a torn write
	// Marked reports whether Acknowledged is known, after a loss of power as a lower bound.
	Marked       bool   `json:"marked"`
	Acknowledged uint64 `json:"acknowledged_record,omitempty"`
	Closed       bool   `json:"closed"` // closed normally
}

// String describes the end in words.
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

// Ends finds the end of a log that is not open. It reads the last segment, without a lock or a
// change. A loss of acknowledged records at the end returns a *[LostError], other damage a
// *[DamageError]. owner is the log's Config.Owner.
func Ends(dir, owner string) (End, error) {
	end, _, err := ends(dir, owner)
	if err != nil {
		return end, fmt.Errorf("wal: reading %s: %w", dir, err)
	}
	return end, nil
}

// ends is Ends, and returns the segments that have or may get records. After a crash the
// directory's last segment may have no header, and is not returned.
func ends(dir, owner string) (end End, all []segment, err error) {
	m, known, err := readMark(dir, owner) // read first: never newer than the segments
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
	for _, s := range all[:max(0, len(all)-1)] { // also those that Replay skips
		b, err := readAtMost(s.path, segmentHeader)
		if err == nil {
			_, err = checkHeader(s.path, b, s.first, owner)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // perhaps truncated
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
