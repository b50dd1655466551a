package status

// The screen of `ringo status --watch` is built in two steps, so that tests need no terminal.
// Functions of this file build lines of spans, text with a tone, from a job's status, the viewer's
// choices and the screen size, without terminal sequences. terminal.go cuts the lines at the screen
// width, removes control characters, and writes the lines. The screen has, from top to bottom:
//
//	the job, its place in the run, its newest figures
//	what slows it, and which ranks hold up the others
//	the parts of rank 0's step: a line each, or one bar on a low screen
//	processes, as many as there is room for, scrolled and sorted
//	tables of servers, at most a sixth of the screen
//	what has happened, at most an eighth
//	the keys
//
// Below 90 columns the bar of each rank's step is omitted, below 60 a rank's own time.

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/cmd/ringo/internal/dashboard"
	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/quantity"
)

// tone is the style of text; without colours only plain, strong and faint differ.
type tone int

const (
	plain  tone = iota
	strong      // headings and values
	faint       // names of values, times, keys
	alarm       // causes, slow ranks, failures
	ofPart      // first of the tones of a step's parts
)

// span is text of one tone, and line a sequence of spans.
type span struct {
	text string
	tone tone
}

type line []span

// view is the viewer's choices.
type view struct {
	sort     int // index in orders
	reversed bool
	first    int // index of the first displayed process
	help     bool
	paused   bool
	jobs, at int // number of jobs, and index of the displayed job
}

// orders are the orders of the processes: the job's order, or descending by a value. Sorting is
// stable, so that lines stay in place between updates.
var orders = []struct {
	name string
	less func(a, b dashboard.ProcessStatus) int
}{
	{"process", func(a, b dashboard.ProcessStatus) int { return 0 }},
	{"ms a step", func(a, b dashboard.ProcessStatus) int { return greater(a.StepMS, b.StepMS) }},
	{"of its own", func(a, b dashboard.ProcessStatus) int { return greater(a.OwnMS, b.OwnMS) }},
	{"waits", func(a, b dashboard.ProcessStatus) int { return greater(a.WaitsS, b.WaitsS) }},
}

// greater orders values descending, unknown last, such as servers' and new ranks' steps.
func greater[T ~float64](a, b T) int {
	known := func(x T) float64 {
		if math.IsNaN(float64(x)) {
			return math.Inf(-1)
		}
		return float64(x)
	}
	return cmp.Compare(known(b), known(a))
}

// stepParts are the parts of a step, with the glyph for each in bars.
var stepParts = []struct {
	name  string
	glyph string
	of    func(dashboard.Parts) float64
}{
	{"forward and backward", "█", func(p dashboard.Parts) float64 { return float64(p.ComputeMS) }},
	{"waiting for data", "░", func(p dashboard.Parts) float64 { return float64(p.DataWaitMS) }},
	{"waiting for servers", "▒", func(p dashboard.Parts) float64 { return float64(p.PullWaitMS) }},
	{"codecs", "▓", func(p dashboard.Parts) float64 { return float64(p.CompressMS) }},
	{"exposed exchange", "·", func(p dashboard.Parts) float64 { return float64(p.ExposedCommMS) }},
	{"update", "▪", func(p dashboard.Parts) float64 { return float64(p.UpdateMS) }},
}

// lines returns a screen: job, position, cause, step, processes, servers, events and keys.
func lines(s dashboard.Status, v view, width, height int) []line {
	if v.help {
		return helpLines
	}
	tall := height >= 20
	out := header(s, v, width)
	for _, l := range slows(s) {
		out = append(out, folded(l[0], width)...)
	}
	out = append(out, bars(s.Step, width, tall)...)
	happened := events(s, min(lastFaults, max(1, height/8)))
	tables := tableLines(s.Tables, height/6)
	room := height - len(out) - len(happened) - len(tables) - 1 // excluding the keys
	if tall {
		out, room = append(out, nil), room-1
	}
	out = append(out, processLines(s, v, width, max(2, room))...)
	out = append(append(out, tables...), happened...)
	for len(out) < height-1 {
		out = append(out, nil)
	}
	keys := "q leave  ↑↓ scroll  ←→ sort  r reverse  p pause  ? help"
	if v.jobs > 1 {
		keys = "tab next job  " + keys
	}
	return append(out[:min(len(out), max(0, height-1))], line{{keys, faint}})
}

var helpLines = []line{
	{{"ringo status --watch: what a job of yours on this host is doing", strong}},
	nil,
	{{"q, Ctrl-C        leave; the job goes on", plain}},
	{{"↑ ↓ PgUp PgDn    scroll the processes; Home, End", plain}},
	{{"← → or s         sort them: process, ms a step, of its own, waits", plain}},
	{{"r                the other way round", plain}},
	{{"p, space         pause, and go on", plain}},
	{{"tab, n           the next job", plain}},
	{{"? or h           this, and back", plain}},
	nil,
	{{"A step's parts: █ forward and backward  ░ waiting for data", plain}},
	{{"▒ waiting for servers  ▓ codecs  · exposed exchange  ▪ update", plain}},
	{{"! is a rank that holds up the others.", plain}},
	nil,
	{{"`ringo status` says the same as text and as JSON.", faint}},
}

// header returns the job, its position, newest values, and a bar of at least ten columns.
func header(s dashboard.Status, v view, width int) (out []line) {
	var b strings.Builder
	title(&b, s)
	first, _, _ := strings.Cut(b.String(), "\n")
	top := line{{first, strong}}
	if v.jobs > 1 {
		top = append(top, span{fmt.Sprintf("  (%d of %d jobs)", v.at+1, v.jobs), faint})
	}
	if v.paused {
		top = append(top, span{"  paused", alarm})
	}
	out = append(out, top)
	if p := place(s); p != "" {
		if left := leftOf(s); left > 0 {
			p = fmt.Sprintf("%s left, %s", quantity.Duration(left), p)
		}
		if size := min(30, width-len(p)-4); size >= 10 {
			out = append(out, line{{bar(s.Share, size, "█", "░"), ofPart}, {"  " + p, plain}})
		} else {
			out = append(out, line{{p, plain}})
		}
	}
	var figures line
	for _, f := range s.Figures {
		figures = append(figures, span{f.Name + " ", faint}, span{f.Text + "  ", strong})
	}
	if figures != nil {
		out = append(out, figures)
	}
	return out
}

// folded breaks text into at most two lines. A cause with its remedy is wider than most screens.
func folded(s span, width int) []line {
	if columns(s.text) <= width || width < 10 {
		return []line{{s}}
	}
	runes := []rune(s.text)
	at := min(len(runes), width)
	if space := strings.LastIndex(string(runes[:at]), " "); space > 0 {
		at = len([]rune(s.text[:space]))
	}
	return []line{{{string(runes[:at]), s.tone}}, {{"  " + strings.TrimLeft(string(runes[at:]), " "), s.tone}}}
}

// leftOf returns the estimated remaining time of a run; 0 means unknown: the run does not train,
// has just begun, or would take a hundred days, as runs without an intended end do.
func leftOf(s dashboard.Status) time.Duration {
	left := float64(s.RunningS) * (1 - s.Share) / s.Share
	if s.State != "training" || !(s.Share > 0) || !(left > 0) || left > 1e7 {
		return 0
	}
	return time.Duration(left * float64(time.Second))
}

// slows returns the cause with its cost, and up to three other stragglers.
func slows(s dashboard.Status) (out []line) {
	if s.Cause != nil {
		out = append(out, line{{fmt.Sprintf("! cause: %s of a step: %s", quantity.Percent(s.Cause.Share), s.Cause.Text), alarm}})
	}
	for i, x := range s.Stragglers {
		if i == 3 {
			return append(out, line{{"! and " + quantity.Count(len(s.Stragglers)-i, "more rank"), alarm}})
		}
		if s.Cause == nil || x.Cause != s.Cause.Text {
			out = append(out, line{{"! " + x.Cause, alarm}})
		}
	}
	return out
}

// bar draws a share as full and empty cells. NaN and negative shares are empty.
func bar(share float64, size int, full, empty string) string {
	n := 0
	if share > 0 {
		n = min(size, int(math.Round(share*float64(size))))
	}
	return strings.Repeat(full, n) + strings.Repeat(empty, size-n)
}

// bars draws the parts of rank 0's step, on one line each, or in one bar on a low screen. Parts
// without measurements have no line, such as waits for servers in a job without servers.
func bars(p dashboard.Parts, width int, tall bool) (out []line) {
	whole := float64(p.StepMS)
	if !(whole > 0) {
		return nil
	}
	if !tall {
		return []line{append(stacked(p, width-20), span{fmt.Sprintf("  a step %s ms", cli.Milliseconds(whole)), plain})}
	}
	out = append(out, nil, line{{fmt.Sprintf("a step of rank 0, %s ms", cli.Milliseconds(whole)), strong}})
	for i, part := range stepParts {
		ms := part.of(p)
		if !(ms > 0) {
			continue
		}
		text := fmt.Sprintf("%-20s %7s ms %3.0f%%  ", part.name, cli.Milliseconds(ms), 100*ms/whole)
		out = append(out, line{{text, plain}, {bar(ms/whole, max(0, width-len(text)-1), part.glyph, " "), ofPart + tone(i)}})
	}
	return out
}

// stacked draws a step as one bar of its parts, size cells wide. Part boundaries are rounded
// cumulatively, because separately rounded widths would not add up. The rest of the step is blank.
func stacked(p dashboard.Parts, size int) (out line) {
	whole, used, sum := float64(p.StepMS), 0, 0.
	if !(whole > 0) || size <= 0 {
		return line{{strings.Repeat(" ", max(0, size)), plain}}
	}
	for i, part := range stepParts {
		if ms := part.of(p); ms > 0 {
			sum += ms
			to := min(size, int(math.Round(sum/whole*float64(size))))
			out, used = append(out, span{strings.Repeat(part.glyph, max(0, to-used)), ofPart + tone(i)}), max(used, to)
		}
	}
	return append(out, span{strings.Repeat(" ", size-used), plain})
}

// processLines returns the visible processes in the chosen order, below column headings with the
// order and range. Names get the longest's width, up to a quarter of the screen.
func processLines(s dashboard.Status, v view, width, room int) (out []line) {
	all := slices.Clone(s.Processes)
	slices.SortStableFunc(all, orders[v.sort].less)
	if v.reversed {
		slices.Reverse(all)
	}
	slow := map[int]bool{}
	for _, x := range s.Stragglers {
		slow[x.Rank] = true
	}
	names := 8
	for _, p := range all {
		names = min(max(names, len([]rune(p.Name))+2), 22, max(8, width/4))
	}
	mean := 0 // width of a step's bar; 0: too narrow for bars
	if width >= 90 {
		mean = min(40, width/5)
	}
	head := fmt.Sprintf("%-*s %9s %8s", names, "  process", "step", "ms")
	if width >= 60 {
		head += fmt.Sprintf(" %8s", "own")
	}
	if mean > 0 {
		head += fmt.Sprintf("  %-*s", mean, "parts")
	}
	head += "  does"
	if v.sort > 0 || v.reversed {
		head += " (by " + orders[v.sort].name + ")"
	}
	shown := room - 1
	first := max(0, min(v.first, len(all)-shown))
	last := min(len(all), first+shown)
	if first > 0 || last < len(all) {
		head += fmt.Sprintf("  %d to %d of %d", first+1, last, len(all))
	}
	out = append(out, line{{head, strong}})
	for _, p := range all[first:last] {
		out = append(out, processLine(p, slow[p.Rank] && p.Rank >= 0, names, width >= 60, mean))
	}
	return out
}

// processLine returns a process: the name, marked if the process delays others, the current step,
// the step time in ms and without waits, the parts in a bar of mean columns, and the activity, the
// awaited process or the exit status.
func processLine(p dashboard.ProcessStatus, slow bool, names int, own bool, mean int) line {
	mark, of := "  ", plain
	if slow {
		mark, of = "! ", alarm
	}
	step, ms, mine := "", "", ""
	if p.Steps >= 0 {
		step = cli.Grouped(int(p.Steps))
	}
	if p.Step > 0 {
		ms, mine = milliseconds(float64(p.StepMS)), milliseconds(float64(p.OwnMS))
	}
	name := []rune(strings.Map(visible, mark+p.Name))
	if len(name) > names {
		name = append(name[:names-1], '…')
	}
	out := line{{fmt.Sprintf("%-*s", names, string(name)), of}, {fmt.Sprintf(" %9s %8s", step, ms), plain}}
	if own {
		out = append(out, span{fmt.Sprintf(" %8s", mine), plain})
	}
	if mean > 0 {
		out = append(append(out, span{"  ", plain}), stacked(p.Parts, mean)...)
	}
	does := does(p)
	if p.Rank < 0 && p.UnderWay > 0 {
		does = strings.TrimPrefix(does+", ", ", ") + fmt.Sprintf("%d in its queue", p.UnderWay)
	}
	if p.Ended != "" && p.Ended != "well" {
		of = alarm
	}
	return append(out, span{"  " + does, of})
}

// tableLines returns the tables of servers that fit, at least one, with the number of omitted
// tables. A server without a reply has a line with the reason. Servers are polled for viewers, so
// the values are at most two seconds old.
func tableLines(all []dashboard.TableStatus, room int) (out []line) {
	if len(all) == 0 {
		return nil
	}
	out = append(out, line{{fmt.Sprintf("%-8s %-10s %11s %7s %12s %9s", "  server", "table", "rows", "hits", "below", "bytes"), strong}})
	for i, t := range all {
		if i >= max(1, room) {
			return append(out, line{{fmt.Sprintf("  and %d more", len(all)-i), faint}})
		}
		if t.Fault != "" {
			out = append(out, line{{fmt.Sprintf("  %-6d %s", t.Server, t.Fault), alarm}})
			continue
		}
		hits := "–"
		if h := float64(t.Hits); !math.IsNaN(h) {
			hits = quantity.Percent(h)
		}
		out = append(out, line{{fmt.Sprintf("  %-6d %-10.10s %11s %7s %12s %9s", t.Server, t.Table, cli.Grouped(int(t.Rows)), hits, cli.Grouped(int(t.Below)), quantity.Bytes(float64(t.Bytes))), plain}})
	}
	return out
}

// events returns the last events, each with the time of day: errors, lost processes, recoveries. An
// event with several lines shows only the first; `ringo status` prints all.
func events(s dashboard.Status, most int) (out []line) {
	for _, f := range s.Faults[max(0, len(s.Faults)-most):] {
		at := ""
		if t, err := time.Parse(time.RFC3339, f.At); err == nil {
			at = t.Format(time.TimeOnly) + "  "
		}
		first, _, more := strings.Cut(f.Text, "\n")
		if more {
			first += " …"
		}
		out = append(out, line{{at, faint}, {first, alarm}})
	}
	return out
}
