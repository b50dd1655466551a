package trace

import (
	"fmt"
	"io"

	"github.com/ringo-ml/ringo/collective"
)

// Write gathers the spans of all ranks and writes them to w on rank 0, in Chrome's trace event
// format; other ranks may pass a nil w. Write is a collective call after the last step: no event
// may be recorded during the call. Rank 0 holds the spans of one other rank at a time.
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
	var code []byte
	if g.Rank() > 0 {
		code = own.encode(nil)
	}
	sizes := make([]int64, g.Size())
	if err := collective.AllGather(g, sizes, []int64{int64(len(code))}); err != nil {
		return err
	}
	for rank, n := range sizes {
		if n < 0 || n > maxPart {
			return fmt.Errorf("rank %d has %d bytes of spans, want at most %d: keep fewer of them", rank, n, maxPart)
		}
	}
	if g.Rank() > 0 {
		return collective.Send(g, code, 0)
	}
	return writeParts(g, own, sizes, w)
}

func writeParts(g *collective.Group, own part, sizes []int64, w io.Writer) error {
	t := newChrome(w)
	t.part(own)
	var code []byte
	for rank := 1; rank < len(sizes); rank++ {
		if n := int(sizes[rank]); n > cap(code) {
			code = make([]byte, n)
		}
		code = code[:sizes[rank]]
		if err := collective.Receive(g, code, rank); err != nil {
			return err
		}
		p, err := decodePart(code, rank)
		if err != nil {
			return fmt.Errorf("what rank %d sent cannot be read: %w", rank, err)
		}
		t.part(p)
	}
	return t.close()
}
