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
	verbose bool
	colour  bool

	job     *runlog.Job // first record; nil: written, or none
	board   *board      // nil without TensorBoard
	also    func(any)   // called with each record; nil: none
	seen    func() (steptrace.Step, bool)
	bar     *progressbar.ProgressBar
	info    train.Info
	table   epochTable
	phase   string
	begun   time.Time     // start of the phase
	first   int           // steps of the phase at its start
	began   time.Time     // start of the epoch, or of the run within it
	whole   float64       // duration of the whole epoch as a multiple of the part after began; 0: unknown
	lasted  time.Duration // of the last epoch; 0 in the first one
	printed time.Time     // time of the last plain line, or of the bar's last text
	samples int           // samples of the phase
	omitted []string      // printed lines about omitted data
	fault   error         // first error of writing JSON
}

// New returns the Reporter of a run. Permanent output goes to out, and progress of a style (bar,
// plain or none) to status, a terminal with the given columns, 0 if unknown.
func New(out cli.Output, style string, status io.Writer, columns int) *Reporter {
	return &Reporter{out: out, style: style, status: status, columns: columns}
}

// Show sets whether lines have colours, and whether plans, kernels and connections are printed.
func (r *Reporter) Show(verbose, colour bool) { r.verbose, r.colour = verbose, colour }

// tellLeft prints new lines about omitted data.
func (r *Reporter) tellLeft(left []data.LeftOut) {
	for _, l := range left {
		if text := l.String(); !slices.Contains(r.omitted, text) {
			r.omitted = append(r.omitted, text)
			fmt.Fprintln(r.out.Lines, text)
		}
	}
}

// begin prepares for a run.
func (r *Reporter) begin(i train.Info) {
	r.info, r.began, r.lasted, r.whole = i, time.Now(), 0, 0
	r.table = newTable(i, r.shown(), r.verbose)
}

// follow records the duration of an epoch at its end, to predict the remaining time.
func (r *Reporter) follow() {
	r.lasted, r.began, r.whole = time.Duration(float64(time.Since(r.began))*max(1, r.whole)), time.Now(), 0
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
		if time.Since(r.printed) >= time.Second {
			r.printed = time.Now()
			r.bar.Describe(title(p) + ", " + r.leftText(p))
		}
		_ = r.bar.Add(p.Samples) // terminal write errors are ignored
	case r.style == "plain" && time.Since(r.printed) >= cli.PlainEvery:
		r.printed = time.Now()
		text := fmt.Sprintf("%s: step %d of %d, %s %s/s", title(p), p.Done, p.Total, cli.Rated(float64(r.samples)/time.Since(r.begun).Seconds()), r.info.Unit)
		if p.Phase == "train" {
			text += fmt.Sprintf(", loss %.4f", p.Loss)
		}
		fmt.Fprintf(r.status, "%s%s, %s\n", text, lastSamples(p.Progressive), r.leftText(p))
	}
}

func (r *Reporter) leftText(p train.Progress) string {
	text := quantity.Duration(r.left(p)) + " left"
	if r.info.Fold > 0 {
		text += " in this fold"
	}
	return text
}

// left predicts the time to the end of the run, from the duration of the last epoch, or in the
// first epoch from the steps of the phase.
func (r *Reporter) left(p train.Progress) time.Duration {
	step := time.Since(r.begun) / time.Duration(p.Done-r.first)
	phase := step * time.Duration(p.Total-p.Done)
	epoch, rest, spent := r.lasted, phase, time.Since(r.began)
	if epoch == 0 {
		epoch = time.Duration(float64(spent+phase) * max(1, r.whole))
	} else if r.whole == 1 {
		rest = max(phase, epoch-spent)
	}
	return rest + time.Duration(p.Epochs-p.Epoch)*epoch
}

func (r *Reporter) beginPhase(p train.Progress) {
	r.endPhase()
	r.phase, r.begun, r.samples, r.first = p.Phase, time.Now(), 0, p.Done
	r.printed = r.begun
	if r.whole == 0 && p.Done <= p.Total { // the first batch of the epoch: above 1 in a run resumed within it
		r.whole = float64(p.Total) / float64(p.Total-p.Done+1)
	}
	if r.style != "bar" || p.Total == p.Done {
		return
	}
	name, total := title(p), (p.Total-p.Done)*p.Samples*r.info.PerSample
	const around = 42 // width of ", 12m10s left  34% || (123456 samples/s)"
	r.bar = cli.NewBar(r.status, r.columns, len(name)+around, int64(total),
		progressbar.OptionSetDescription(name),
		progressbar.OptionSetPredictTime(false),
		progressbar.OptionSetElapsedTime(false),
		progressbar.OptionShowIts(),
		progressbar.OptionSetItsString(r.info.Unit),
	)
	r.bar.StartWithoutRender()
}

// title returns the position in the run, with the AUC of a click model's last samples.
func title(p train.Progress) string {
	text := fmt.Sprintf("epoch %d/%d %s", p.Epoch, p.Epochs, p.Phase)
	if s := p.Progressive; p.Phase == "train" && s != nil && s.AUC.Known {
		text += fmt.Sprintf(", AUC %.4f", s.AUC.Value)
	}
	return text
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

// text formats a metric; some samples have no value of the metric.
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
		fmt.Fprintf(r.out.Lines, "best %s %s in epoch %d (*), after step %d\n", bestOf(b.Metric), quantity.FloatDigits(b.Value, 6), b.Epoch, b.Step)
	} else if b := r.table.best; b.Epoch > 0 && r.info.Epochs > 1 {
		since := ""
		if r.info.Resumed != "" && r.info.Best.Epoch == 0 {
			since = " since the resumption"
		}
		fmt.Fprintf(r.out.Lines, "best %s %s in epoch %d%s (*)\n", bestOf(r.table.monitor.Label()), r.table.monitor.Text(b.Value), b.Epoch, since)
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
	fmt.Fprintf(r.out.Lines, "%s after %s in %s\nparams sha256 %s\n", r.result(s), cli.Counted(epochs, "epoch"), quantity.Seconds(s.WallS), s.ParamsSHA256)
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
	if s.Event == "folds" && strings.Contains(strings.Join(parts, ""), " in deviations ") {
		fmt.Fprintln(r.out.Lines, "each fold has its own deviation, of its training rows: compare folds by rmse and mae, in the unit of the target, and not by losses")
	}
	r.write(s)
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
