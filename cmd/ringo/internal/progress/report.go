// Package progress reports a training run: as text lines and a progress bar, and as JSON.
package progress

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/ringo-ml/ringo/cmd/ringo/internal/remotepath"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/runlog"
	"github.com/ringo-ml/ringo/internal/steptrace"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/train"
)

// Reporter reports a run as text lines and a progress bar, and as JSON.
type Reporter struct {
	out     cli.Output // permanent output
	status  io.Writer  // progress within an epoch
	style   string     // bar, plain or none
	columns int        // terminal width, 0 if unknown

	job         *runlog.Job // first record; nil: written, or none
	board       *board      // nil without TensorBoard
	also        func(any)   // called with each record; nil: none
	seen        func() (steptrace.Step, bool)
	bar         *progressbar.ProgressBar
	info        train.Info
	phase       string
	begun       time.Time          // start of the phase
	progressive *train.Progressive // state displayed by the bar
	printed     time.Time          // time of the last plain line
	samples     int                // samples of the phase
	left        []string           // printed lines about omitted data
	fault       error              // first error of writing JSON
}

// New returns the Reporter of a run. Permanent output goes to out, and progress of a style (bar,
// plain or none) to status, a terminal with the given columns, 0 if unknown.
func New(out cli.Output, style string, status io.Writer, columns int) *Reporter {
	return &Reporter{out: out, style: style, status: status, columns: columns}
}

func placed(where string) string {
	if where == "" {
		return ""
	}
	return ", " + where
}

// Start prints the run's configuration.
func (r *Reporter) Start(i train.Info) {
	i.Resumed = remotepath.WithURLs(i.Resumed)
	r.info = i
	fmt.Fprintf(r.out.Lines, "%s: %s parameters; data %s, %s + %s samples; %s, %s each, over %s%s; %s kernels\n",
		i.Model, cli.Grouped(i.Params), i.DataSet, cli.Grouped(i.TrainSamples), cli.Grouped(i.EvalSamples), cli.Counted(i.NP, "rank"), cli.Counted(i.Threads, "thread"), over(i.Transport, i.Servers), placed(i.Placement), i.Kernels)
	strategy := i.Strategy
	if i.Codec != "" {
		strategy += " (" + i.Codec + ")"
	}
	rate := i.Schedule
	if advice := i.UsualRate.Advice(i.GlobalBatch, i.Optimizer); advice != "" {
		rate += " (" + advice + ")"
	}
	fmt.Fprintf(r.out.Lines, "batch %d per rank, %s per epoch; %s, learning rate %s; strategy %s, plan %s (%s, sha256 %.8s); seed %d\n",
		i.Batch, cli.Counted(i.StepsPerEpoch, "step"), i.Optimizer, rate, strategy, i.Plan, merged(i), i.PlanSHA256, i.Seed)
	if i.Exchange != "" {
		fmt.Fprintf(r.out.Lines, "entries of %s\n", i.Exchange)
	}
	if i.Resumed != "" {
		fmt.Fprintf(r.out.Lines, "resumed after %s from %s\n", cli.Counted(int(i.Steps), "step"), i.Resumed)
		if len(i.Changed) > 0 {
			fmt.Fprintf(r.out.Lines, "from here on with %s\n", strings.Join(i.Changed, ", "))
		}
	}
	for _, note := range slices.Concat(i.Parameters, i.DataNotes) {
		fmt.Fprintln(r.out.Lines, note)
	}
	r.tellLeft(i.LeftOut)
	r.write(newInfo(i))
}

// merged describes the buckets. DLGS's paper merges layers by measured step times.
func merged(i train.Info) string {
	if i.Strategy == string(distopt.DLGS) && i.Plan == distopt.PlanFixed {
		return fmt.Sprintf("layers merged by size into %s, unless --plan says otherwise", cli.Counted(i.Buckets, "bucket"))
	}
	return cli.Counted(i.Buckets, "bucket")
}

// over describes the transport of gradients.
func over(transport string, servers int) string {
	if transport == "" {
		return cli.Counted(servers, "server")
	}
	if servers == 0 {
		return transport
	}
	return fmt.Sprintf("%s and %s", transport, cli.Counted(servers, "server"))
}

// tellLeft prints new lines about omitted data.
func (r *Reporter) tellLeft(left []data.LeftOut) {
	for _, l := range left {
		if text := l.String(); !slices.Contains(r.left, text) {
			r.left = append(r.left, text)
			fmt.Fprintln(r.out.Lines, text)
		}
	}
}

// Progress updates the bar, or prints a plain line periodically. The first batch of a phase only
// starts the clock, because its duration is unknown.
func (r *Reporter) Progress(p train.Progress) {
	if p.Phase != r.phase || p.Done == 1 {
		r.beginPhase(p)
		return
	}
	p.Samples *= r.info.PerSample
	r.samples += p.Samples
	switch {
	case r.bar != nil:
		if p.Progressive != r.progressive {
			r.progressive = p.Progressive
			r.bar.Describe(title(p))
		}
		_ = r.bar.Add(p.Samples) // terminal write errors are ignored
	case r.style == "plain" && time.Since(r.printed) >= cli.PlainEvery:
		r.printed = time.Now()
		spent := time.Since(r.begun)
		left := time.Duration(float64(spent) * float64(p.Total-p.Done) / float64(p.Done-1))
		text := fmt.Sprintf("epoch %d/%d: %s %d of %d steps, %s %s/s, %s left in this phase",
			p.Epoch, p.Epochs, p.Phase, p.Done, p.Total, cli.Rated(float64(r.samples)/spent.Seconds()), r.info.Unit, quantity.Duration(left))
		if p.Phase == "train" {
			text += fmt.Sprintf(", loss %.4f", p.Loss) + lastSamples(p.Progressive)
		}
		fmt.Fprintln(r.status, text)
	}
}

func (r *Reporter) beginPhase(p train.Progress) {
	r.endPhase()
	r.phase, r.begun, r.samples = p.Phase, time.Now(), 0
	r.printed = r.begun
	if r.style != "bar" || p.Total == 1 {
		return
	}
	r.progressive = p.Progressive
	name, total := title(p), (p.Total-1)*p.Samples*r.info.PerSample
	const numbers = 45 // width of "  34% || (/, 123456 samples/s) [12m0s:12m0s]"
	r.bar = cli.NewBar(r.status, r.columns, len(name)+2*len(fmt.Sprint(total))+numbers, int64(total),
		progressbar.OptionSetDescription(name),
		progressbar.OptionShowCount(),
		progressbar.OptionShowIts(),
		progressbar.OptionSetItsString(r.info.Unit),
	)
	r.bar.StartWithoutRender()
}

// title returns the text before the bar, with the AUC of a click model's last samples.
func title(p train.Progress) string {
	text := fmt.Sprintf("epoch %d/%d %s", p.Epoch, p.Epochs, p.Phase)
	if p.Phase != "train" {
		return text
	}
	if s := p.Progressive; s == nil || !s.AUC.Known {
		return text
	}
	return fmt.Sprintf("%s, AUC %.4f", text, p.Progressive.AUC.Value)
}

// lastSamples describes the progressive validation of a click model.
func lastSamples(p *train.Progressive) string {
	if p == nil {
		return ""
	}
	area := "unknown"
	if p.AUC.Known {
		area = fmt.Sprintf("%.4f", p.AUC.Value)
	}
	return fmt.Sprintf(", last %s: AUC %s, log-loss %.4f, calibration %.3f", cli.Counted(int(p.Samples), "sample"), area, p.LogLoss, p.Calibration)
}

func (r *Reporter) endPhase() {
	cli.EndBar(r.bar)
	r.bar = nil
}

// Epoch prints the line of an epoch.
func (r *Reporter) Epoch(e train.Epoch) {
	r.endPhase()
	r.phase = ""
	rate := e.SamplesPerS
	if e.TokensPerS.Known {
		rate = e.TokensPerS.Value
	}
	fmt.Fprintf(r.out.Lines, "epoch %*d/%d  train loss %.4f  %s  %s %s/s, %s ms per step (%s ms exposed)%s\n",
		len(fmt.Sprint(r.info.Epochs)), e.Epoch, r.info.Epochs, e.TrainLoss, r.epochFigures(e), cli.Rated(rate), r.info.Unit, quantity.Milliseconds(e.StepMS), quantity.Milliseconds(e.ExposedCommMS), lastSamples(e.Progressive))
	r.write(e)
	r.tellStep()
}

// Step prints a line above the bar.
func (r *Reporter) Step(s train.Step) {
	r.endPhase()
	r.phase = ""
	fmt.Fprintf(r.out.Lines, "epoch %d/%d step %d/%d  loss %.4f  lr %s  %s ms%s\n", s.Epoch, r.info.Epochs, s.Step, r.info.StepsPerEpoch, s.Loss, quantity.FloatDigits(s.LR, 4), quantity.Milliseconds(s.StepMS), lastSamples(s.Progressive))
	r.write(s)
}

// Remark prints a line above the bar.
func (r *Reporter) Remark(m train.Remark) {
	r.endPhase()
	r.phase = ""
	fmt.Fprintln(r.out.Lines, m.Text)
	r.write(m)
}

func (r *Reporter) shown() []model.Metric {
	return slices.DeleteFunc(slices.Clone(r.info.Metrics), func(m model.Metric) bool { return m.Detail })
}

func (r *Reporter) epochFigures(e train.Epoch) string {
	var parts []string
	for _, m := range r.shown() {
		tell := func(set string, of model.Metrics) {
			width := 0
			if m.Percent {
				width = len("100.%") + m.Digits // aligns the lines
			}
			parts = append(parts, fmt.Sprintf("%s %s %*s", set, m.Label(), width, text(m, of)))
		}
		if m.Training() {
			tell("train", e.Train)
		}
		tell("test", e.Eval)
	}
	if parts == nil {
		parts = []string{fmt.Sprintf("test loss %.4f", e.EvalLoss)}
	}
	return strings.Join(parts, "  ")
}

// text formats a metric; some samples have none.
func text(m model.Metric, of model.Metrics) string {
	v, known := of[m.Name]
	if !known {
		return "unknown"
	}
	return m.Text(v)
}

// Summary prints the end of a run.
func (r *Reporter) Summary(s train.Summary) {
	r.endPhase()
	r.tellLeft(s.LeftOut)
	if len(s.Lost) > 0 {
		fmt.Fprintf(r.out.Lines, "%s lost on the way (%s), and the data still to be trained on there\n", cli.Counted(len(s.Lost), "rank"), numbers(s.Lost))
	}
	if s.DiskFullCheckpoints > 0 {
		fmt.Fprintf(r.out.Lines, "the disk was full for %s, the last one was saved\n", cli.Counted(s.DiskFullCheckpoints, "checkpoint"))
	}
	if s.Skipped > 0 {
		fmt.Fprintf(r.out.Lines, "skipped %s with a loss or a gradient that is not finite\n", cli.Counted(int(s.Skipped), "step"))
	}
	if s.Diverged != "" {
		fmt.Fprintln(r.out.Lines, s.Diverged)
	}
	if b := s.Best; b != nil {
		fmt.Fprintf(r.out.Lines, "best %s %s in epoch %d, after step %d\n", bestOf(b.Metric), quantity.FloatDigits(b.Value, 6), b.Epoch, b.Step)
	}
	if s.DistinctKeys > 0 {
		fmt.Fprintf(r.out.Lines, "trained on about %s different keys\n", cli.Grouped(int(s.DistinctKeys)))
	}
	epochs := r.info.Epochs
	if s.Ended != "" {
		fmt.Fprintf(r.out.Lines, "ended early: %s\n", s.Ended)
		epochs = s.Epochs
	}
	for _, line := range s.Report.Brief() {
		fmt.Fprintln(r.out.Lines, line)
	}
	fmt.Fprintf(r.out.Lines, "%s after %s in %s; parameters sha256 %s\n", r.result(s), cli.Counted(epochs, "epoch"), quantity.Seconds(s.WallS), s.ParamsSHA256)
	s.BestCheckpoint, s.LastCheckpoint = remotepath.WithURLs(s.BestCheckpoint), remotepath.WithURLs(s.LastCheckpoint)
	if s.BestCheckpoint != "" {
		dir, best := filepath.Split(s.BestCheckpoint)
		fmt.Fprintf(r.out.Lines, "checkpoints: %sbest is %s, %slast is %s\n", dir, best, dir, filepath.Base(s.LastCheckpoint))
	}
	r.write(s)
}

// bestOf names the metric that epochs are compared by: of the test set, or progressive.
func bestOf(metric string) string {
	if strings.HasPrefix(metric, "progressive_") {
		return metric
	}
	return "test " + metric
}

func numbers(x []int) string {
	text := make([]string, len(x))
	for i, v := range x {
		text[i] = strconv.Itoa(v)
	}
	return strings.Join(text, ", ")
}

func (r *Reporter) result(s train.Summary) string { return "test " + r.figures(s.EvalLoss, s.Eval) }

// figures formats the metrics for text output, or the loss without metrics.
func (r *Reporter) figures(loss float64, of model.Metrics) string {
	var parts []string
	for _, m := range r.shown() {
		parts = append(parts, m.Label()+" "+text(m, of))
	}
	if parts == nil {
		return fmt.Sprintf("loss %.4f", loss)
	}
	return strings.Join(parts, ", ")
}

// Seeds prints the summary of several runs.
func (r *Reporter) Seeds(s train.Seeds) {
	var parts []string
	for _, m := range r.shown() {
		if v, known := s.Eval[m.Name]; known {
			parts = append(parts, fmt.Sprintf("%s %s ± %s", m.Label(), m.Text(v.Mean), m.Text(v.SD)))
		}
	}
	if parts == nil {
		parts = []string{fmt.Sprintf("loss %.4f ± %.4f", s.EvalLoss.Mean, s.EvalLoss.SD)}
	}
	fmt.Fprintf(r.out.Lines, "mean and standard deviation of %s: test %s, train loss %.4f ± %.4f\n",
		cli.Counted(len(s.Seeds), strings.TrimSuffix(s.Event, "s")), strings.Join(parts, ", "), s.TrainLoss.Mean, s.TrainLoss.SD)
	var tables []string
	for _, name := range slices.Sorted(maps.Keys(s.Tables)) {
		tables = append(tables, fmt.Sprintf("%s %s ± %s", name, quantity.FloatDigits(s.Tables[name].Mean, 5), quantity.FloatDigits(s.Tables[name].SD, 5)))
	}
	if len(tables) > 0 {
		fmt.Fprintf(r.out.Lines, "of the tables: %s\n", strings.Join(tables, ", "))
	}
	r.write(s)
}

// Evaluating is a Reporter that observes an evaluation without training.
type Evaluating struct{ *Reporter }

// Start prints the configuration of an evaluation.
func (r Evaluating) Start(i train.Info) {
	r.info = i
	fmt.Fprintf(r.out.Lines, "%s: %s parameters; data %s, %s samples; %s, %s each, over %s; %s kernels\n",
		i.Model, cli.Grouped(i.Params), i.DataSet, cli.Grouped(i.EvalSamples), cli.Counted(i.NP, "rank"), cli.Counted(i.Threads, "thread"), over(i.Transport, i.Servers), i.Kernels)
	for _, note := range i.DataNotes {
		fmt.Fprintln(r.out.Lines, note)
	}
	r.tellLeft(i.LeftOut)
}

// Evaluation prints the metrics of a checkpoint.
func (r *Reporter) Evaluation(e train.SavedEvaluation) {
	r.endPhase()
	fmt.Fprintf(r.out.Lines, "%s, after %s of %s: test %s; %s samples/s\n", e.Checkpoint, cli.Counted(int(e.Step), "step"), cli.Counted(e.TrainedNP, "rank"),
		r.figures(e.EvalLoss, e.Eval), cli.Rated(e.SamplesPerS))
	for _, line := range e.Report.Lines() {
		fmt.Fprintln(r.out.Lines, line)
	}
	r.write(e)
}

// Finish ends the progress display and closes the files.
func (r *Reporter) Finish() error {
	r.endPhase()
	return errors.Join(r.fault, r.board.finish(), r.out.Close())
}
