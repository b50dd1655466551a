package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/train"
)

// plainEvery is how often plain progress prints a line within an epoch.
const plainEvery = 10 * time.Second

// silent is the observer of the ranks that report nothing.
type silent struct{}

func (silent) Start(train.Info)        {}
func (silent) Progress(train.Progress) {}
func (silent) Epoch(train.Epoch)       {}
func (silent) Remark(train.Remark)     {}

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
		i.Model, grouped(i.Params), i.DataSet, grouped(i.TrainSamples), grouped(i.EvalSamples), counted(i.NP, "rank"), counted(i.Threads, "thread"), over(i.Transport, i.Servers), i.Kernels)
	strategy := i.Strategy
	if i.Codec != "" {
		strategy += " (" + i.Codec + ")"
	}
	rate := i.Schedule
	if advice := i.UsualRate.Advice(i.GlobalBatch, i.Optimizer); advice != "" {
		rate += " (" + advice + ")"
	}
	fmt.Fprintf(r.lines, "batch %d per rank, %s per epoch; %s, learning rate %s; strategy %s, plan %s (%s, sha256 %.8s); seed %d\n",
		i.Batch, counted(i.StepsPerEpoch, "step"), i.Optimizer, rate, strategy, i.Plan, merged(i), i.PlanSHA256, i.Seed)
	if i.Exchange != "" {
		fmt.Fprintf(r.lines, "entries of %s\n", i.Exchange)
	}
	if i.Resumed != "" {
		fmt.Fprintf(r.lines, "resumed after %s from %s\n", counted(int(i.Steps), "step"), i.Resumed)
		if len(i.Changed) > 0 {
			fmt.Fprintf(r.lines, "from here on with %s\n", strings.Join(i.Changed, ", "))
		}
	}
	for _, note := range i.DataNotes {
		fmt.Fprintln(r.lines, note)
	}
	r.skipped(i.Skipped)
}

// merged is what the plan made of the layers. Users of DLGS may know that the paper merges them by
// the predicted time of a step, which takes a measurement.
func merged(i train.Info) string {
	if i.Strategy == string(distopt.DLGS) && i.Plan == distopt.PlanFixed {
		return fmt.Sprintf("layers merged by size into %s, unless --plan says otherwise", counted(i.Buckets, "bucket"))
	}
	return counted(i.Buckets, "bucket")
}

// over is what gradients travel over.
func over(transport string, servers int) string {
	if transport == "" {
		return counted(servers, "server")
	}
	if servers == 0 {
		return transport
	}
	return fmt.Sprintf("%s and %s", transport, counted(servers, "server"))
}

// skipped tells of bad data that were left out.
func (r *reporter) skipped(n int) {
	if n > 0 {
		fmt.Fprintf(r.lines, "left out %s (--skip-bad)\n", counted(n, "bad sample"))
	}
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

// rated writes a rate, of slow models with a decimal place.
func rated(perSecond float64) string {
	if perSecond < 10 {
		return fmt.Sprintf("%.1f", perSecond)
	}
	return grouped(int(perSecond))
}

// Progress moves the bar or, now and then, prints a plain line. A phase's first
// batch only starts the clock: how long it took is not known.
func (r *reporter) Progress(p train.Progress) {
	if p.Phase != r.phase || p.Done == 1 {
		r.beginPhase(p)
		return
	}
	p.Samples *= r.info.PerSample
	r.samples += p.Samples
	switch {
	case r.bar != nil:
		_ = r.bar.Add(p.Samples) // a terminal that cannot be written to stops nothing
	case r.style == "plain" && time.Since(r.printed) >= plainEvery:
		r.printed = time.Now()
		spent := time.Since(r.begun)
		left := time.Duration(float64(spent) * float64(p.Total-p.Done) / float64(p.Done-1))
		text := fmt.Sprintf("epoch %d/%d: %s %d of %d steps, %s %s/s, %v left in this phase",
			p.Epoch, p.Epochs, p.Phase, p.Done, p.Total, rated(float64(r.samples)/spent.Seconds()), r.info.Unit, left.Round(time.Second))
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
	title, total := fmt.Sprintf("epoch %d/%d %s", p.Epoch, p.Epochs, p.Phase), (p.Total-1)*p.Samples*r.info.PerSample
	const numbers = 45 // "  34% || (/, 123456 samples/s) [12m0s:12m0s]"
	r.bar = newBar(r.status, r.columns, len(title)+2*len(fmt.Sprint(total))+numbers, int64(total),
		progressbar.OptionSetDescription(title),
		progressbar.OptionShowCount(),
		progressbar.OptionShowIts(),
		progressbar.OptionSetItsString(r.info.Unit),
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
	rate := e.SamplesPerS
	if e.TokensPerS.Known {
		rate = e.TokensPerS.Value
	}
	fmt.Fprintf(r.lines, "epoch %*d/%d  train loss %.4f  %s  %s %s/s, %.1f ms per step (%.1f ms exposed)\n",
		len(fmt.Sprint(r.info.Epochs)), e.Epoch, r.info.Epochs, e.TrainLoss, epochFigures(e), rated(rate), r.info.Unit, e.StepMS, e.ExposedCommMS)
	r.write(e)
}

// Remark prints a line above the bar, which begins anew.
func (r *reporter) Remark(m train.Remark) {
	r.endPhase()
	r.phase = ""
	fmt.Fprintln(r.lines, m.Text)
	r.write(m)
}

// epochFigures are what a person wants to know of an epoch, by the task.
func epochFigures(e train.Epoch) string {
	switch {
	case e.EvalPerplexity.Known:
		return fmt.Sprintf("train perplexity %.2f  test perplexity %.2f", e.TrainPerplexity.Value, e.EvalPerplexity.Value)
	case e.EvalLogLoss.Known:
		return fmt.Sprintf("test log-loss %.4f  test AUC %s", e.EvalLogLoss.Value, auc(e.EvalAUC))
	}
	return fmt.Sprintf("train accuracy %6.2f%%  test accuracy %6.2f%%", 100*e.TrainAccuracy, 100*e.EvalAccuracy)
}

// auc writes an area, which samples of one kind do not have.
func auc(f train.Figure) string {
	if !f.Known {
		return "unknown"
	}
	return fmt.Sprintf("%.4f", f.Value)
}

// write appends one JSON line and keeps the first fault.
func (r *reporter) write(v any) {
	if r.fault == nil {
		r.fault = r.object(v)
	}
}

// summary prints the end of a run.
func (r *reporter) summary(s train.Summary) {
	r.endPhase()
	r.skipped(s.Skipped - r.info.Skipped)
	if len(s.Lost) > 0 {
		fmt.Fprintf(r.lines, "%s lost on the way (%s), and the data still to be trained on there\n", counted(len(s.Lost), "rank"), numbers(s.Lost))
	}
	if s.NoRoom > 0 {
		fmt.Fprintf(r.lines, "the disk was full for %s, the last one was saved\n", counted(s.NoRoom, "checkpoint"))
	}
	if s.BlownUp != "" {
		fmt.Fprintln(r.lines, s.BlownUp)
	}
	fmt.Fprintf(r.lines, "%s after %s in %.1f s; parameters sha256 %s\n", result(s), counted(r.info.Epochs, "epoch"), s.WallS, s.ParamsSHA256)
	r.write(s)
}

// numbers writes numbers with commas between them.
func numbers(x []int) string {
	text := make([]string, len(x))
	for i, v := range x {
		text[i] = strconv.Itoa(v)
	}
	return strings.Join(text, ", ")
}

// result is how good the model has become, by its task.
func result(s train.Summary) string {
	switch {
	case s.EvalPerplexity.Known:
		return fmt.Sprintf("test perplexity %.2f", s.EvalPerplexity.Value)
	case s.EvalLogLoss.Known:
		return fmt.Sprintf("test log-loss %.4f, AUC %s", s.EvalLogLoss.Value, auc(s.EvalAUC))
	}
	return fmt.Sprintf("test accuracy %.2f%%", 100*s.EvalAccuracy)
}

// seeds prints what several runs have in common.
func (r *reporter) seeds(s train.Seeds) {
	text := fmt.Sprintf("test accuracy %.2f%% ± %.2f%%", 100*s.EvalAccuracy.Mean, 100*s.EvalAccuracy.SD)
	if p := s.EvalPerplexity; p != nil {
		text = fmt.Sprintf("test perplexity %.2f ± %.2f", p.Mean, p.SD)
	}
	if l := s.EvalLogLoss; l != nil {
		text = fmt.Sprintf("test log-loss %.4f ± %.4f", l.Mean, l.SD)
	}
	if a := s.EvalAUC; a != nil {
		text += fmt.Sprintf(", AUC %.4f ± %.4f", a.Mean, a.SD)
	}
	fmt.Fprintf(r.lines, "mean and standard deviation of %s: %s, train loss %.4f ± %.4f\n",
		counted(len(s.Seeds), "seed"), text, s.TrainLoss.Mean, s.TrainLoss.SD)
	r.write(s)
}

// finish ends what is drawn and closes the file.
func (r *reporter) finish() error {
	r.endPhase()
	return errors.Join(r.fault, r.close())
}
