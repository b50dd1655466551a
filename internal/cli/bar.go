package cli

import (
	"cmp"
	"io"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
)

// NewBar returns a progress bar on one line of w, a terminal with the given columns, 0 if unknown.
// beside is the typical width of the text around the bar.
func NewBar(w io.Writer, columns, beside int, total int64, options ...progressbar.Option) *progressbar.ProgressBar {
	columns = cmp.Or(columns, 80)
	return progressbar.NewOptions64(total, append([]progressbar.Option{
		progressbar.OptionSetWriter(clipper{w, columns}),
		progressbar.OptionSetWidth(min(30, max(1, columns-beside))),
		progressbar.OptionThrottle(100 * time.Millisecond),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionClearOnFinish(),
	}, options...)...)
}

// EndBar removes a bar from the terminal. bar may be nil.
func EndBar(bar *progressbar.ProgressBar) {
	if bar != nil {
		_ = bar.Finish() // terminal write errors are ignored
		_ = bar.Clear()
	}
}

// clipper cuts redrawn text to less than the columns: a wrapped line cannot be redrawn.
type clipper struct {
	w       io.Writer
	columns int
}

// Write cuts each text that overwrites the line.
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
