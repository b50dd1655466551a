package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/ringo-ml/ringo/train"
)

// plainEvery is how often plain progress prints a line within an epoch.
const plainEvery = 10 * time.Second

// silent is the observer of the ranks that report nothing.
type silent struct{}

func (silent) Start(train.Info)        {}
func (silent) Progress(train.Progress) {}
func (silent) Epoch(train.Epoch)       {}

// reporter tells a person what happens in lines and a progress bar, and a
// machine in JSON.
type reporter struct {
	output            // what is worth keeping
	status  io.Writer // progress within an epoch
	style   string    // bar, plain or none
	columns int       // of the terminal, 0 when not known

	bar     *progressbar.ProgressBar
	info    train.Info
	phase   string
	begun   time.Time // of the phase
	printed time.Time // the last plain line
	samples int       // in the phase
	fault   error     // the first of writing JSON
}

// Start prints what is about to be trained.
func (r *reporter) Start(i train.Info) {
	r.info = i
	fmt.Fprintf(r.lines, "%s: %s parameters; data %s, %s + %s samples; %s, %s each, over %s; %s kernels\n",
		i.Model, grouped(i.Params), i.DataSet, grouped(i.TrainSamples), grouped(i.EvalSamples), counted(i.NP, "rank"), counted(i.Threads, "thread"), i.Transport, i.Kernels)
	fmt.Fprintf(r.lines, "batch %d per rank, %s per epoch; strategy %s, plan %s (%s)\n",
		i.Batch, counted(i.StepsPerEpoch, "step"), i.Strategy, i.Plan, counted(i.Buckets, "bucket"))
}

// counted writes a number with its noun.
func counted(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return grouped(n) + " " + noun
}

// grouped writes a number with commas between thousands.
func grouped(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Progress moves the bar or, now and then, prints a plain line. A phase's first
// batch only starts the clock: how long it took is not known.
func (r *reporter) Progress(p train.Progress) {
	if p.Phase != r.phase || p.Done == 1 {
		r.beginPhase(p)
		return
	}
	r.samples += p.Samples
	switch {
	case r.bar != nil:
		_ = r.bar.Add(p.Samples) // a terminal that cannot be written to stops nothing
	case r.style == "plain" && time.Since(r.printed) >= plainEvery:
		r.printed = time.Now()
		spent := time.Since(r.begun)
		left := time.Duration(float64(spent) * float64(p.Total-p.Done) / float64(p.Done-1))
		text := fmt.Sprintf("epoch %d/%d: %s %d of %d steps, %s samples/s, %v left in this phase",
			p.Epoch, p.Epochs, p.Phase, p.Done, p.Total, grouped(int(float64(r.samples)/spent.Seconds())), left.Round(time.Second))
		if p.Phase == "train" {
			text += fmt.Sprintf(", loss %.4f", p.Loss)
		}
		fmt.Fprintln(r.status, text)
	}
}

func (r *reporter) beginPhase(p train.Progress) {
	r.endPhase()
	r.phase, r.begun, r.samples = p.Phase, time.Now(), 0
	r.printed = r.begun
	if r.style != "bar" || p.Total == 1 {
		return
	}
	title, total := fmt.Sprintf("epoch %d/%d %s", p.Epoch, p.Epochs, p.Phase), (p.Total-1)*p.Samples
	const numbers = 45 // "  34% || (/, 123456 samples/s) [12m0s:12m0s]"
	r.bar = newBar(r.status, r.columns, len(title)+2*len(fmt.Sprint(total))+numbers, int64(total),
		progressbar.OptionSetDescription(title),
		progressbar.OptionShowCount(),
		progressbar.OptionShowIts(),
		progressbar.OptionSetItsString("samples"),
	)
	r.bar.StartWithoutRender()
}

func (r *reporter) endPhase() {
	endBar(r.bar)
	r.bar = nil
}

// Epoch prints the epoch's line.
func (r *reporter) Epoch(e train.Epoch) {
	r.endPhase()
	r.phase = ""
	fmt.Fprintf(r.lines, "epoch %*d/%d  train loss %.4f  train accuracy %6.2f%%  test accuracy %6.2f%%  %s samples/s, %.1f ms per step (%.1f ms exposed)\n",
		len(fmt.Sprint(r.info.Epochs)), e.Epoch, r.info.Epochs, e.TrainLoss, 100*e.TrainAccuracy, 100*e.EvalAccuracy, grouped(int(e.SamplesPerS)), e.StepMS, e.ExposedCommMS)
	r.write(e)
}

// write appends one JSON line and keeps the first fault.
func (r *reporter) write(v any) {
	if r.fault == nil {
		r.fault = r.object(v)
	}
}

// finish prints the summary, unless the run failed, and closes the file.
func (r *reporter) finish(s train.Summary, failed error) error {
	r.endPhase()
	if failed == nil {
		fmt.Fprintf(r.lines, "test accuracy %.2f%% after %s in %.1f s; parameters sha256 %s\n",
			100*s.EvalAccuracy, counted(r.info.Epochs, "epoch"), s.WallS, s.ParamsSHA256)
		r.write(s)
	}
	return errors.Join(r.fault, r.close())
}
