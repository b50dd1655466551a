package plan

import (
	"fmt"
	"io"

	"github.com/ringo-ml/ringo/cmd/ringo/internal/plot"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/cli"
)

// Colours of a predicted step's picture.
const (
	forwardColor = iota
	backwardColor
	codecColor
	exchangeColor
	updateColor
)

// writePage draws the predicted steps, a picture per plan: computation, codec and exchange over the
// time of the step.
func (c *command) writePage(to io.Writer, results []result, steps []drawnStep) error {
	r := results[0]
	page := plot.Page{
		Title: fmt.Sprintf("Predicted step of %s", r.Model),
		Facts: []string{
			fmt.Sprintf("%s on %s and %s, batch %d per rank", strategyText(r), cli.Counted(r.NP, "rank"), cli.Counted(r.Hosts, "host"), r.Batch),
			fmt.Sprintf("compute %s; links %s; codec %s", r.ComputeFrom, r.LinksFrom, r.CodecFrom),
		},
	}
	if r.LinksFrom == "described" {
		page.Facts = append(page.Facts, c.cluster.String())
	}
	for i, r := range results {
		page.Pictures = append(page.Pictures, steps[i].picture(r))
	}
	return page.Write(to)
}

// drawnStep is a step and the plan of a result.
type drawnStep struct {
	step bucket.Step
	plan bucket.Plan
}

func (d drawnStep) picture(r result) plot.Picture {
	t := bucket.Predict(d.step, d.plan)
	bar := func(color int, start, end float64, format string, args ...any) plot.Bar {
		return plot.Bar{Start: 1e3 * start, End: 1e3 * end, Color: color, Text: fmt.Sprintf(format, args...) + ": " + cli.Milliseconds(1e3*(end-start)) + " ms"}
	}
	compute := plot.Lane{Name: "computation", Bars: []plot.Bar{bar(forwardColor, 0, d.step.Forward, "forward")}}
	for i, l := range t.Layers {
		compute.Bars = append(compute.Bars, bar(backwardColor, l.Start, l.End, "backward of %s", d.step.Layers[i].Name))
	}
	send := plot.Lane{Name: "exchange"}
	selected := false
	for i, b := range t.Buckets {
		g := r.Groups[i]
		if b.Select.End > b.Select.Start {
			selected = true
			compute.Bars = append(compute.Bars, bar(codecColor, b.Select.Start, b.Select.End, "codec of bucket %d, from %s", i, g.name(60)))
		}
		send.Bars = append(send.Bars, bar(exchangeColor, b.Send.Start, b.Send.End, "bucket %d, from %s, %s by %s", i, g.name(60), cli.Bytes(g.Bytes), g.By))
	}
	if d.step.Rows > 0 {
		end := t.Compute + t.Exposed
		send.Bars = append(send.Bars, bar(exchangeColor, end-d.step.Rows, end, "rows of tables"))
	}
	if update := t.Compute + t.Exposed; t.Total > update {
		compute.Bars = append(compute.Bars, bar(updateColor, update, t.Total, "update"))
	}
	p := plot.Picture{
		Title:  fmt.Sprintf("Plan %s: %s, step %s ms", r.Plan, cli.Counted(len(r.Groups), "bucket"), cli.Milliseconds(r.StepMS)),
		Facts:  []string{fmt.Sprintf("exposed exchange %s ms, the time after computation that waits for the last bucket", cli.Milliseconds(r.ExposedMS))},
		Legend: []string{"forward", "backward", "codec", "exchange", "update"},
		Lanes:  []plot.Lane{compute, send},
		Moment: &plot.Moment{MS: 1e3 * t.Total, Name: "end of the step"},
	}
	if !selected {
		p.Legend[codecColor] = "codec (none)"
	}
	return p
}
