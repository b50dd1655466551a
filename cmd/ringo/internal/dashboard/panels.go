package dashboard

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/cmd/ringo/internal/plot"
	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/runlog"
)

// panelData is the complete contents of a panel, so a browser may miss updates.
type panelData struct {
	ID    string `json:"id"`
	Title string `json:"title"`
	Note  string `json:"note,omitempty"`
	// Kind is the kind of drawing: "lines", "bands", "ribbons", "grids", "tracks", "table", "heat",
	// "cards" or "list". "none" means no data, for the reason in Why; with an empty Why the panel
	// is hidden.
	Kind string `json:"kind"`
	Why  string `json:"why,omitempty"`

	plot.Lines

	Ribbons []ribbon `json:"ribbons,omitempty"`
	Grids   []grid   `json:"grids,omitempty"`
	Tracks  []track  `json:"tracks,omitempty"`
	// Marks are sentences above the drawing.
	Marks []string `json:"marks,omitempty"`

	Head []string   `json:"head,omitempty"`
	Rows [][]string `json:"rows,omitempty"`
	// Fold names the folded rows.
	Fold   string     `json:"fold,omitempty"`
	Folded [][]string `json:"folded,omitempty"`

	Heat  *plot.Heat  `json:"heat,omitempty"`
	Cards []plot.Card `json:"cards,omitempty"`
}

// ribbon is a rank's last steps: the time of each step, and the part without waits for other ranks.
type ribbon struct {
	Label string   `json:"label"`
	Steps []number `json:"steps"` // step time, ms
	Busy  []number `json:"own"`   // own time, ms
	Slow  bool     `json:"slow,omitempty"`
	// Silent is the time since the last report in seconds, if long.
	Silent int `json:"silent,omitempty"`
}

// grid is a value per row and column, drawn as shades.
type grid struct {
	Title string `json:"title"`
	// RowsAre and ColumnsAre are the nouns before row and column names.
	RowsAre    string     `json:"rows_are"`
	ColumnsAre string     `json:"columns_are"`
	Percent    bool       `json:"percent,omitempty"`
	Rows       []string   `json:"rows"`
	Columns    []string   `json:"columns"`
	Data       [][]number `json:"data"`
}

// panel is a row of the table of panels, with its kind, reading function and text without data.
type panel struct {
	id, title, kind string
	read            func(h *Collector, f *panelData)
	why             string
	early           bool // may have data before a run has begun
}

// panels are the page's panels in order.
var panels = []panel{
	{"faults", "What has happened", "list", readFaults, "nothing that a person should know", true},
	{"cause", "What slows the job", "list", readCause, "nothing that is known costs a fifth of a step, or no rank has told of its steps for two seconds", true},
	{"loss", "Loss", "lines", readLoss, "no step has been told yet", false},
	{"metric", "Test figure", "lines", readMetric(0), "no epoch has been evaluated yet, or the model has no figure but its loss", false},
	{"metric-2", "Test figure", "lines", readMetric(1), "", false},
	{"metric-3", "Test figure", "lines", readMetric(2), "", false},
	{"metric-4", "Test figure", "lines", readMetric(3), "", false},
	{"evaluation", "Last evaluation", "heat", readEvaluation, "", false},
	{"reliability", "Reliability of the last evaluation", "lines", readReliability, "", false},
	{"worst", "Samples with the largest loss", "cards", readWorst, "", false},
	{"columns", "Columns of the table", "cards", readColumns, "", false},
	{"progressive", "Last samples", "lines", readProgressive, "the model predicts no clicks, or none of its steps has been told yet", false},
	{"rate", "Rate", "lines", readRate, "no step has been told yet", false},
	{"parts", "Parts of the step", "bands", readParts, "no step has been told yet", false},
	{"ranks", "Ranks", "ribbons", readRanks, "no rank has told of a step yet", true},
	{"waits", "Who waits for whom", "grids", readWaits, "no step with exchanges of two ranks of this host was seen yet", true},
	{"buckets", "Buckets of a step", "tracks", readBuckets, "no whole step of rank 0 was seen yet", true},
	{"density", "Share of values sent", "lines", readDensity, "all values are sent: --strategy dlgs or topk sends few", false},
	{"layer-times", "Layers over time", "grids", readLayerTimes, "", false},
	{"layers", "Layers", "table", readLayers, "--set output.layer-stats=true tells of each layer after an epoch", false},
	{"bytes", "Bytes", "table", readBytes, "no epoch has ended yet", false},
	{"servers", "Tables of servers", "table", readServers, "the parameter servers of this host, if there are any, have not answered yet", true},
	{"choices", "What was chosen by measurement", "table", readChoices, "nothing was measured: --strategy auto, --tune or a measured --plan do", false},
	{"machine", "Machine", "table", readMachine, "the run has not begun yet", false},
	{"settings", "Settings", "table", readSettings, "the run has not begun yet", false},
}

// shown is the maximum number of points in a curve; longer curves are thinned.
const shown = 300

// show reads a panel. A panic is displayed in the panel: the page must never end a job.
func (h *Collector) show(p panel) (f panelData) {
	defer func() {
		if fault := recover(); fault != nil {
			f = panelData{ID: p.id, Title: p.title, Kind: "none", Why: fmt.Sprintf("a fault of this page: %v", fault)}
		}
	}()
	f = panelData{ID: p.id, Title: p.title, Kind: p.kind}
	if len(h.log.Runs()) > 0 || p.early {
		p.read(h, &f)
	}
	if len(f.Data) == 0 && len(f.Ribbons) == 0 && len(f.Rows) == 0 && len(f.Grids) == 0 && len(f.Tracks) == 0 && f.Heat == nil && len(f.Cards) == 0 {
		f.Kind, f.Why = "none", p.why
	}
	return f
}

type curve struct {
	label string
	table func(*runlog.Run) *runlog.Table
	field string
}

// curves draws several fields on one axis, without empty curves.
func (h *Collector) curves(f *panelData, all ...curve) {
	var drawn []plot.Curve
	group := h.group()
	for _, c := range all {
		one := plot.Curve{Label: c.label}
		for _, p := range runlog.Thin(group.Curve(c.table, c.field), shown) {
			one.Points = append(one.Points, plot.Point{X: float64(p.Done), Y: p.Mean})
		}
		if len(one.Points) > 0 {
			drawn = append(drawn, one)
		}
	}
	f.XLabel = "step"
	f.Set(drawn, false)
}

// group returns the runs of the job, which differ only in their seed.
func (h *Collector) group() runlog.RunSet { return runlog.RunSet{Runs: h.log.Runs()} }

// readLoss reads the loss of rank 0's steps (--log-every), and of epochs over all ranks.
func readLoss(h *Collector, f *panelData) {
	f.Note = "Of each batch on rank 0, and over all ranks after each epoch."
	h.curves(f, curve{"a batch of rank 0", runlog.OfSteps, "loss"}, curve{"training", runlog.OfEpochs, "train_loss"}, curve{"test", runlog.OfEpochs, "eval_loss"})
}

// readMetric returns the function that reads metric k of the model, such as accuracy, over epochs,
// if not the loss.
func readMetric(k int) func(h *Collector, f *panelData) {
	return func(h *Collector, f *panelData) {
		all := runlog.Metrics([]runlog.RunSet{h.group()})
		if k >= len(all)-1 { // the last one is the loss
			return
		}
		m := all[k]
		f.Title, f.Percent = strings.ToUpper(m.Title[:1])+m.Title[1:], m.Percent
		h.curves(f, curve{"training", runlog.OfEpochs, "train_" + m.Name}, curve{"test", runlog.OfEpochs, "eval_" + m.Name})
	}
}

// readEvaluation reads the confusion matrix, or predicted against true numbers.
func readEvaluation(h *Collector, f *panelData) {
	f.Heat, _ = plot.Evaluation(h.last().Evaluation)
	f.Note = "Numbers of samples; the darker, the larger the share of the row."
}

// readReliability reads the observed share of clicks by predicted probability.
func readReliability(h *Collector, f *panelData) {
	if _, lines := plot.Evaluation(h.last().Evaluation); lines != nil {
		f.Lines = *lines
		f.Note = "A point for each tenth of the samples, by their predicted probability."
	}
}

// readWorst reads the samples with the largest losses, with their pictures.
func readWorst(h *Collector, f *panelData) {
	f.Cards = plot.Worst(h.last().Evaluation)
	f.Note = "Of the last evaluation: file and row, and the first columns."
}

// readColumns reads the columns of a table, with histograms.
func readColumns(h *Collector, f *panelData) {
	f.Cards = plot.Cards(h.last().Info.Columns)
	f.Note = "Of the rows to train on: numbers in bins, the most frequent words of categories; below, the share of missing values."
}

func readProgressive(h *Collector, f *panelData) {
	f.Note = "Of the last samples of all ranks, each scored before it was learnt from."
	h.curves(f, curve{"AUC", runlog.OfSteps, "progressive_auc"}, curve{"log-loss", runlog.OfSteps, "progressive_logloss"},
		curve{"AUC after an epoch", runlog.OfEpochs, "progressive_auc"}, curve{"log-loss after an epoch", runlog.OfEpochs, "progressive_logloss"})
}

// readRate reads the samples per second of all ranks.
func readRate(h *Collector, f *panelData) {
	f.Unit = "samples/s"
	f.Note = "Samples in a second, all ranks."
	h.curves(f, curve{"steps", runlog.OfSteps, "samples_per_s"}, curve{"epochs", runlog.OfEpochs, "samples_per_s"})
}

// readParts reads the parts of rank 0's step. Computation includes waits for data and servers.
func readParts(h *Collector, f *panelData) {
	f.Unit, f.Note = "ms", "Of rank 0, one above the other: together they are a step."
	waits := []string{"waiting for data", "waiting for servers"}
	h.curves(f, curve{"forward and backward", runlog.OfSteps, "compute_ms"}, curve{waits[0], runlog.OfSteps, "data_wait_ms"}, curve{waits[1], runlog.OfSteps, "pull_wait_ms"},
		curve{"codecs", runlog.OfSteps, "compress_ms"}, curve{"exposed exchange", runlog.OfSteps, "exposed_comm_ms"}, curve{"update", runlog.OfSteps, "update_ms"})
	for j, label := range f.Labels {
		if f.Labels[0] == "forward and backward" && slices.Contains(waits, label) {
			for i := range f.X {
				if w := f.Data[j][i]; w > 0 { // zero or NaN: no wait known
					f.Data[0][i] = max(0, f.Data[0][i]-w)
				}
			}
		}
	}
}

// readRanks reads the ranks' last steps, stragglers, and ranks silent for five seconds.
func readRanks(h *Collector, f *panelData) {
	f.Note = "The last steps of each rank, the newest on the right: how high a mark is says how long a step took, and how dark, which part of it the rank did not wait for others."
	slow := map[int]bool{}
	for _, s := range h.slowed() {
		slow[s.Rank] = true
		f.Marks = append(f.Marks, s.Text)
	}
	for _, n := range h.sorted() {
		r := h.ranks[n]
		out := ribbon{Label: fmt.Sprintf("rank %d", n), Slow: slow[n]}
		if s := int(h.clock().Sub(r.lastUpdate).Seconds()); s >= 5 && h.state == "training" && h.now.Phase != "evaluate" {
			out.Silent = s
		}
		for _, b := range r.beats {
			out.Steps, out.Busy = append(out.Steps, b.StepMS), append(out.Busy, number(ownTime(b)))
		}
		f.Ribbons = append(f.Ribbons, out)
	}
	if np := h.last().Info.NP; np > len(f.Ribbons) && len(f.Ribbons) > 0 {
		f.Marks = append(f.Marks, fmt.Sprintf("%d of %d ranks have told of their steps: those of other hosts do not", len(f.Ribbons), np))
	}
}

// readDensity reads the share of values sent, for sparse runs.
func readDensity(h *Collector, f *panelData) {
	for _, r := range h.log.Runs() {
		for _, v := range r.Steps.Column("density") {
			if v < 1 {
				f.Percent, f.Note = true, "Of the gradient's values, by rank 0."
				h.curves(f, curve{"steps", runlog.OfSteps, "density"}, curve{"epochs", runlog.OfEpochs, "density"})
				return
			}
		}
	}
}

// readLayers reads the strategy's effect on each layer's gradient in the last step of an epoch.
func readLayers(h *Collector, f *panelData) {
	f.Note = "What rank 0's last step of an epoch did to each layer's gradient, in the order in which backward finishes them."
	f.Head = []string{"layer", "share sent", "threshold", "norm of the residual"}
	for _, l := range h.layers {
		f.Rows = append(f.Rows, []string{l.Name, quantity.Percent(float64(l.Density)), short(float64(l.Threshold)), short(float64(l.ResidualNorm))})
	}
}

// readBytes reads the bytes of the last epoch, as payload and on the wire.
func readBytes(h *Collector, f *panelData) {
	f.Note = "Payload; ranks that share memory send none. On the wire headers, handshakes and control connections count, too."
	f.Head = []string{"last epoch", ""}
	for _, row := range [][2]string{{"by a rank in a step", "step_bytes_sent"}, {"by all ranks in the epoch", "bytes_sent"}, {"by all ranks on the wire", "wire_bytes"}} {
		if v, known := h.epoch[row[1]].(float64); known {
			f.Rows = append(f.Rows, []string{row[0], quantity.Traffic(v)})
		}
	}
}

// readFaults reads the events: the first and the last of a long run.
func readFaults(h *Collector, f *panelData) {
	if h.dropped > 0 {
		f.Note = fmt.Sprintf("%s left out in the middle.", cli.Counted(h.dropped, "line"))
	}
	for _, x := range h.faults {
		f.Rows = append(f.Rows, []string{x.at.Format(time.TimeOnly), x.text})
	}
}

// readChoices reads the choices with their measurements, a row per choice.
func readChoices(h *Collector, f *panelData) {
	f.Head = []string{"", "strategy", "plan", "predicted", "measured", "why"}
	for i, c := range h.choices {
		f.Rows = append(f.Rows, append([]string{fmt.Sprint(i + 1)}, strings.Split(c, "\x00")...))
	}
}

func readMachine(h *Collector, f *panelData) {
	for _, r := range runlog.Machines([]runlog.RunSet{h.group()}) {
		f.Rows = append(f.Rows, []string{r.Name, r.Values[0]})
	}
	f.Head, f.Note = []string{"", ""}, "Of rank 0."
}

func readSettings(h *Collector, f *panelData) {
	f.Head, f.Note = []string{"setting", "value"}, "All that decide on the result, as --set takes them."
	j := h.last().Job
	if j == nil {
		return
	}
	for _, path := range slices.Sorted(maps.Keys(j.Settings)) {
		row := []string{path, j.Settings[path]}
		if j.Changed == nil || slices.Contains(j.Changed, path) {
			f.Rows = append(f.Rows, row)
		} else {
			f.Folded = append(f.Folded, row)
		}
	}
	if n := len(f.Folded); n > 0 {
		f.Fold = cli.Counted(n, "setting") + " with default values"
	}
}

// head is the data above the panels.
type head struct {
	Title string   `json:"title"`
	State string   `json:"state"`
	Begun int64    `json:"begun"` // Unix time in ms
	Facts []string `json:"facts"`
	// At is the position in the run, and Share the share done.
	At    string  `json:"at"`
	Share float64 `json:"share"`
	// Figures are the newest values, as name and text.
	Figures [][2]string `json:"figures"`
}

func (h *Collector) head() head {
	i := h.last().Info
	out := head{Title: cmp.Or(i.Model, "a job"), State: h.state, Begun: h.begun.UnixMilli(), Facts: []string{}, Figures: [][2]string{}}
	if i.Event != "" {
		over := i.Transport
		if i.Servers > 0 {
			over = strings.TrimPrefix(over+" and "+cli.Counted(i.Servers, "server"), " and ")
		}
		out.Facts = append(out.Facts, fmt.Sprintf("%s, %s each, over %s", cli.Counted(i.NP, "rank"), cli.Counted(i.Threads, "thread"), over),
			fmt.Sprintf("data %s, %s + %s samples", i.DataSet, cli.Grouped(i.TrainSamples), cli.Grouped(i.EvalSamples)),
			fmt.Sprintf("strategy %s, plan %s in %s", i.Strategy, i.Plan, cli.Counted(i.Buckets, "bucket")), fmt.Sprintf("seed %d", i.Seed))
		if i.Fold > 0 {
			out.Facts = append(out.Facts, fmt.Sprintf("fold %d", i.Fold))
		}
	}
	h.at(&out, i)
	for _, f := range h.figures() {
		out.Figures = append(out.Figures, [2]string{f.Name, f.Text})
	}
	return out
}

// figures returns the newest finite values.
func (h *Collector) figures() []Figure {
	g, out := runlog.RunSet{Runs: []*runlog.Run{h.last()}}, []Figure{}
	add := func(name string, table func(*runlog.Run) *runlog.Table, field string, text func(float64) string) {
		if v := g.Last(table, field).Mean; finite(v) {
			out = append(out, Figure{name, number(v), text(v)})
		}
	}
	add("loss", runlog.OfSteps, "loss", short)
	for _, m := range runlog.Metrics([]runlog.RunSet{g}) {
		text := short
		if m.Percent {
			text = percent
		}
		add("test "+m.Title, runlog.OfEpochs, "eval_"+m.Name, text)
	}
	add("samples/s", runlog.OfSteps, "samples_per_s", cli.Rated)
	add("ms a step", runlog.OfSteps, "step_ms", short)
	return out
}

// at sets the position in the run.
func (h *Collector) at(out *head, i runlog.Info) {
	p := h.now
	if p.Total == 0 {
		return
	}
	out.At = fmt.Sprintf("epoch %d of %d, %s %d of %d", p.Epoch, p.Epochs, p.Phase, p.Done, p.Total)
	epoch := float64(p.Epoch)
	if p.Phase == "train" {
		epoch += float64(p.Done)/float64(p.Total) - 1
	}
	out.Share = min(1, epoch/float64(max(1, p.Epochs, i.Epochs)))
	if left := h.remaining(out.Share); left >= 0 && h.state == "training" {
		out.At += ", about " + quantity.Duration(left) + " left"
	}
}

func short(v float64) string { return quantity.FloatDigits(v, 4) }

func percent(v float64) string { return quantity.FloatDigits(100*v, 4) + "%" }
