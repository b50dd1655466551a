package cli

import (
	"cmp"
	"io"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
)

// NewBar returns a progress bar that keeps to one line of w, a terminal of so
// many columns, 0 when that is not known. beside is how many of them the text on
// both sides of the bar usually takes.
func NewBar(w io.Writer, columns, beside int, total int64, options ...progressbar.Option) *progressbar.ProgressBar {
	columns = cmp.Or(columns, 80)
	return progressbar.NewOptions64(total, append(options,
		progressbar.OptionSetWriter(clipper{w, columns}),
		progressbar.OptionSetWidth(min(30, max(1, columns-beside))),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionClearOnFinish(),
	)...)
}

// EndBar takes a bar off the terminal; nil is none.
func EndBar(bar *progressbar.ProgressBar) {
	if bar != nil {
		_ = bar.Finish() // a terminal that cannot be written to stops nothing
		_ = bar.Clear()
	}
}

// clipper cuts what is drawn over one line of a terminal to less than its
// columns: a line that wraps cannot be drawn over again.
type clipper struct {
	w       io.Writer
	columns int
}

// Write cuts each text drawn over the line.
func (c clipper) Write(p []byte) (int, error) {
	drawn := strings.Split(string(p), "\r")
	for i, text := range drawn {
		if cells := []rune(text); len(cells) >= c.columns {
			drawn[i] = string(cells[:c.columns-1])
		}
	}
	_, err := io.WriteString(c.w, strings.Join(drawn, "\r"))
	return len(p), err
}
