package trace

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/ringo-ml/ringo/collective"
)

// maxPart limits the text of a rank's spans, in bytes.
const maxPart = 256 << 20

// Write gathers the spans of all ranks and writes them to w on rank 0, in Chrome's trace event
// format; other ranks may pass a nil w. Write is a collective call after the last step: no event
// may be recorded during the call. Each rank formats its own spans, some 150 bytes each, and rank 0
// holds the text of one other rank at a time.
//
// Times are in rank 0's clock; "otherData" has each rank's maximum error and dropped spans.
func (r *Timeline) Write(g *collective.Group, w io.Writer) error {
	if r == nil {
		return nil
	}
	r.stop()
	if err := r.Align(g); err != nil {
		return err
	}
	if err := r.gather(g, w); err != nil {
		return fmt.Errorf("trace: writing the timeline: %w", err)
	}
	return nil
}

func (r *Timeline) gather(g *collective.Group, w io.Writer) error {
	base := []int64{r.earliest()}
	if err := collective.AllReduce(g, base, collective.Min); err != nil {
		return err
	}
	own := r.part(g.Rank(), base[0])
	var events chrome
	events.part(own)
	all := make([]int64, noteWords*g.Size())
	if err := collective.AllGather(g, all, []int64{int64(len(events.text)), own.offset, own.bound, int64(len(own.spans)), own.dropped}); err != nil {
		return err
	}
	sizes, notes := make([]int, g.Size()), make([]rankNote, g.Size())
	for rank := range notes {
		n := all[noteWords*rank:]
		if n[0] > maxPart {
			return fmt.Errorf("rank %d has %d bytes of spans, want at most %d: keep fewer of them", rank, n[0], maxPart)
		}
		sizes[rank], notes[rank] = int(n[0]), rankNote{rank, micros(n[1]), micros(n[2]), n[3], n[4]}
	}
	if g.Rank() > 0 {
		return collective.Send(g, events.text, 0)
	}
	return writeFile(g, w, events.text, sizes, notes)
}

// rankNote describes a rank's spans in the file. noteWords is the number of values that a rank
// sends: all but Rank, and the bytes of its text.
type rankNote struct {
	Rank    int    `json:"rank"`
	Offset  micros `json:"clock_offset_us"` // correction added to the times
	Bound   micros `json:"clock_error_us"`  // maximum error, if clocks drift linearly
	Spans   int64  `json:"spans"`
	Dropped int64  `json:"spans_left_out"`
}

const noteWords = 5

// writeFile writes the file on rank 0: the own text, the other ranks' in order, and the notes.
func writeFile(g *collective.Group, w io.Writer, text []byte, sizes []int, notes []rankNote) error {
	_, err := fmt.Fprintf(w, `{"displayTimeUnit":"ms","traceEvents":[%s`, text[1:]) // without the first comma
	for rank := 1; rank < len(sizes); rank++ {                                      // also after a failed write: the other ranks send
		text = make([]byte, sizes[rank])
		if err := collective.Receive(g, text, rank); err != nil {
			return err
		}
		if err == nil {
			_, err = w.Write(text)
		}
	}
	if err == nil {
		end, _ := json.Marshal(notes) // numbers always encode
		_, err = fmt.Fprintf(w, "\n],\"otherData\":{\"ranks\":%s}}\n", end)
	}
	return err
}
