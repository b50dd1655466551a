package blackboxcmd

import (
	"fmt"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/cmd/ringo/internal/plot"
	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/watch/blackbox"
)

// drawnBars limits the bars of a process: the last ones before the failure matter.
const drawnBars = 200

// kinds are the kinds of entries with a colour, in the order of the legend.
var kinds = []string{"operation", "message", "request", "fault", "change"}

// drawn returns the page of a black box: a lane per process with its last entries, by the time
// before the box was written. Entries without a time are counted.
func drawn(box *blackbox.File) plot.Page {
	picture := plot.Picture{
		Title:  "Last operations of each process",
		Facts:  []string{"0 is the time at which the black box was written; bars with a dashed edge had not ended"},
		Legend: kinds,
		Moment: &plot.Moment{Name: "written"},
	}
	for _, p := range box.Processes {
		picture.Lanes = append(picture.Lanes, lane(box.Written, p))
	}
	page := plot.Page{
		Title:    fmt.Sprintf("Black box of %s", cli.Counted(len(box.Processes), "process")),
		Facts:    []string{fmt.Sprintf("written %s", box.Written.Format(time.RFC3339)), box.Why},
		Pictures: []plot.Picture{picture},
	}
	if f := box.Find(); f != nil {
		page.Facts = append(page.Facts, fmt.Sprintf("first operation that differs or did not end: %v", f))
	}
	return page
}

func lane(written time.Time, p blackbox.Process) plot.Lane {
	l := plot.Lane{Name: p.Name, Note: p.Silent}
	unknown := 0
	ended := p.Ended[max(0, len(p.Ended)-drawnBars):]
	for i, e := range append(ended[:len(ended):len(ended)], p.Open...) {
		if e.Begun == 0 {
			unknown++
			continue
		}
		begin := milliseconds(written, e.Begun)
		b := plot.Bar{Start: begin, End: begin, Color: color(e.Kind), Open: i >= len(ended), Text: entryText(e)}
		if e.Done > 0 {
			b.End = milliseconds(written, e.Done)
		}
		l.Bars = append(l.Bars, b)
	}
	if unknown > 0 && l.Note == "" {
		l.Name += fmt.Sprintf(" (%d undated)", unknown)
	}
	return l
}

// milliseconds returns the time from the writing of the black box to ns.
func milliseconds(written time.Time, ns int64) float64 {
	return float64(ns-written.UnixNano()) / 1e6
}

// color returns the index of an entry's kind; unknown kinds share a colour.
func color(kind string) int {
	for i, k := range kinds {
		if k == kind {
			return i
		}
	}
	return len(kinds)
}

func entryText(e blackbox.Entry) string {
	words := []string{fmt.Sprintf("%s %d %s", e.Kind, e.Seq, e.Name)}
	add := func(ok bool, format string, args ...any) {
		if ok {
			words = append(words, fmt.Sprintf(format, args...))
		}
	}
	add(e.Algorithm != "", "by %s", e.Algorithm)
	add(e.Label != "", "%s", e.Label)
	add(e.Size > 0, "%s", quantity.Bytes(e.Size))
	add(e.Step >= 0, "step %d", e.Step)
	add(e.With >= 0, "with %d", e.With)
	add(e.Peer >= 0, "waits for %d", e.Peer)
	add(e.Done > 0, "%s", quantity.Duration(time.Duration(e.Done-e.Begun)))
	add(e.Done == 0, "not ended")
	add(e.Failed, "failed")
	return strings.Join(words, ", ")
}
