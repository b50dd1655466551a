package search

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/runlog"
)

// shownResults is the number of results in the table; all are in the folder and on the page.
const shownResults = 10

// Line returns a result as one line of progress, such as "training.lr=0.01: accuracy 97.31%, 12 s".
func (s Search) Line(r Result) string {
	outcome := "failed: " + r.Error
	if !r.Failed() {
		outcome = s.Metric.Title + " " + s.Metric.Text(r.Value)
	}
	return fmt.Sprintf("%s: %s, %s", r.text(s.Space), outcome, seconds(r.WallS))
}

func seconds(s float64) string { return quantity.Duration(time.Duration(s * float64(time.Second))) }

// Head returns the column heads of Cells.
func (s Search) Head() []string {
	head := []string{"trial"}
	for _, a := range s.Space {
		head = append(head, string(a.Path))
	}
	return append(head, s.Metric.Title, "epoch", "time")
}

// Cells returns a result as a row of a table.
func (s Search) Cells(r Result) []string {
	row := []string{fmt.Sprint(r.Number)}
	for _, a := range s.Space {
		row = append(row, r.Settings[string(a.Path)])
	}
	if r.Failed() {
		return append(row, "failed", "", seconds(r.WallS))
	}
	return append(row, s.Metric.Text(r.Value), quantity.FloatDigits(r.Epoch, 4), seconds(r.WallS))
}

// WriteTable writes the best results, and the counts of omitted and of failed trials.
func (s Search) WriteTable(to io.Writer) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, strings.Join(s.Head(), "\t")+"\t")
	failed, shown := 0, 0
	for _, r := range s.Results {
		if r.Failed() {
			failed++
		} else if shown < shownResults {
			shown++
			fmt.Fprintln(w, strings.Join(s.Cells(r), "\t")+"\t")
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if others := len(s.Results) - failed - shown; others > 0 {
		fmt.Fprintf(to, "%s worse\n", quantity.Count(others, "other trial"))
	}
	if failed > 0 {
		fmt.Fprintf(to, "%s failed: result.json of each has the reason\n", quantity.Count(failed, "trial"))
	}
	return nil
}

// Logs returns the records of the best n trials, for curves.
func (s Search) Logs(n int) (out []*runlog.Run) {
	for _, r := range s.Results {
		if n > 0 && !r.Failed() {
			out = append(out, r.log.Runs()...)
			n--
		}
	}
	return out
}
