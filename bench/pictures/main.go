// Command pictures draws the pictures of README and docs from what is in this tree: one gradient's way from docs/passages/gradients.txt, a
// step of a real run from a timeline that `ringo train --trace` wrote, and the ratios against peers from README's table. Its test
// finds pictures that are not what it would draw.
//
//	go run ./bench/pictures            # in the root of the tree: writes docs/pictures/*.svg
//
// Pictures of the page are made by Chromium, see CONTRIBUTING.md.
package main

import (
	"bufio"
	"cmp"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/internal/pathname"
	"github.com/ringo-ml/ringo/internal/steptrace"
	"github.com/ringo-ml/ringo/internal/watch/record"
)

// width is that of pictures in px: texts of 12 px can be read where a telephone shows them on 320.
const width = 460

func main() {
	root := flag.String("root", ".", "the root of the tree")
	flag.Parse()
	all, err := draw(*root)
	for _, p := range all {
		if err == nil {
			err = os.WriteFile(filepath.Join(*root, folder, p.name), []byte(p.text), 0o666)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

const folder = "docs/pictures"

// picture is a file.
type picture struct{ name, text string }

// draw draws all of them.
func draw(root string) (out []picture, err error) {
	style, err := pathname.Read(filepath.Join(root, themeFile), 1<<20)
	if err != nil {
		return nil, err
	}
	theme, err := themeOf(string(style))
	if err != nil {
		return nil, err
	}
	for _, p := range []struct {
		name, from string
		of         func(text string) (chart, error)
	}{
		{"gradient.svg", "docs/passages/gradients.txt", gradient},
		{"timeline.svg", "bench/pictures/testdata/trace.json", timeline},
		{"ratios.svg", "README.md", ratios},
	} {
		text, err := pathname.Read(filepath.Join(root, p.from), 1<<20)
		if err != nil {
			return nil, err
		}
		c, err := p.of(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.from, err)
		}
		out = append(out, picture{p.name, svg(c, width, 300, theme)})
	}
	return out, nil
}

// stages are those of a passage, in the order of the path.
var stages = []string{"nn", "exchange", "transport", "optim", "distopt"}

var bucketBounds = regexp.MustCompile(`from (\d+) to (\d+)`)

// gradient draws the first passage: what happened to gradients, in order, a line for each package. Colours are of buckets.
func gradient(text string) (chart, error) {
	passage, _, _ := strings.Cut(strings.TrimPrefix(text, "# "), "\n# ")
	title, lines, _ := strings.Cut(passage, "\n")
	c := tracks{name: "One step's gradients, in the order of events", kinds: nil}
	for _, s := range stages {
		c.rows = append(c.rows, track{label: s})
	}
	// Events have no times in a passage: their place in it is theirs. What transport does is of the bucket that exchange or optim named last,
	// and a gradient that is final is of the next bucket to be complete.
	at, bucket := 0, 0
	for _, line := range strings.Split(lines, "\n") {
		stage, what, _ := strings.Cut(strings.TrimSpace(line), " ")
		row := slices.Index(stages, stage)
		if row < 0 {
			if stage != "" {
				return nil, fmt.Errorf("%q is of no package that is known", line)
			}
			continue
		}
		what = strings.TrimSpace(what)
		kind := bucket
		if m := bucketBounds.FindString(what); m != "" && (stage == "exchange" || stage == "optim") {
			name := "bucket " + strings.TrimPrefix(m, "from ")
			if kind = slices.Index(c.kinds, name); kind < 0 {
				kind, c.kinds = len(c.kinds), append(c.kinds, name)
			}
			bucket = kind
		} else if stage == "nn" {
			bucket = len(c.kinds)
			kind = bucket
		}
		c.rows[row].boxes = append(c.rows[row].boxes, box{from: float64(at), to: float64(at + 1), kind: kind, text: what})
		at++
	}
	if len(c.kinds) == 0 {
		return nil, fmt.Errorf("the passage %q has no bucket", title)
	}
	for i := range c.rows { // what is of no bucket, such as the end of backward, has a colour of its own
		for k := range c.rows[i].boxes {
			if b := &c.rows[i].boxes[k]; b.kind >= len(c.kinds) {
				b.kind = len(c.kinds)
			}
		}
	}
	c.kinds = append(c.kinds, "of no bucket")
	return c, nil
}

// drawn are the tracks that a picture of a step has.
var drawn = []record.Phase{record.Forward, record.Backward, record.Exchange, record.Update}

// timeline draws the last whole step of all ranks: that which was updated last, because later ones
// were cut when the timeline was full.
func timeline(text string) (chart, error) {
	file, err := steptrace.Read(strings.NewReader(text))
	if err != nil {
		return nil, err
	}
	c := tracks{name: "A step of ResNet-20 on two ranks over TCP", unit: "ms"}
	last, spans := int64(0), make([][][]steptrace.Span, len(file.Ranks)) // by rank and track
	for _, r := range file.Ranks {
		for _, s := range r.Spans {
			if s.Track == record.Update {
				last = max(last, s.Step)
			}
		}
	}
	begin := int64(math.MaxInt64)
	for rank, r := range file.Ranks {
		spans[rank] = make([][]steptrace.Span, len(drawn))
		for _, s := range r.Spans {
			if kind := slices.Index(drawn, s.Track); kind >= 0 && s.Step == last {
				begin, spans[rank][kind] = min(begin, s.Start), append(spans[rank][kind], s)
			}
		}
	}
	for rank, head := range spans {
		label := fmt.Sprintf("rank %d", rank)
		for kind, all := range head {
			t := track{head: label, label: drawn[kind].String()}
			before := 0. // an exchange that began behind others waited for its turn
			for _, s := range all {
				from, to := float64(s.Start-begin)/1e6, float64(s.End-begin)/1e6
				from, before = min(max(from, before), to), max(before, to)
				t.boxes = append(t.boxes, box{from: from, to: to, kind: kind, text: fmt.Sprintf("%s: %.2f to %.2f ms", file.Name(s), from, to)})
			}
			if len(t.boxes) > 0 {
				c.rows, label = append(c.rows, t), ""
			}
		}
	}
	for _, stage := range drawn {
		c.kinds = append(c.kinds, stage.String())
	}
	if len(c.rows) == 0 {
		return nil, fmt.Errorf("step %d has nothing to draw", last)
	}
	return c, nil
}

// short are the names of README's ratios in a picture, by how their rows begin.
var short = [][2]string{
	{"PyTorch's training step over ours", "step: PyTorch over ours"},
	{"PyTorch's step under autocast over ours", "bf16 step: PyTorch over ours"},
	{"OpenMPI's allreduce over TCP over ours", "allreduce by TCP: OpenMPI over ours"},
	{"rows pulled per second from our tables", "rows pulled a second: ours over Redis"},
	{"uncompressed step over DLGS's", "slow links: dense step over DLGS"},
	{"PyTorch's memory over ours", "memory: PyTorch over ours"},
}

var ratio = regexp.MustCompile(`^([0-9.]+)(?: to ([0-9.]+))?$`)

// ratios draws README's table of ratios against peers.
func ratios(text string) (chart, error) {
	_, text, _ = strings.Cut(text, "\n| what | ratio |")
	c := ranges{name: "Against peers: above 1 ringo is ahead", kinds: []string{"ringo is ahead", "ringo is behind"}}
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		cells := strings.Split(lines.Text(), " | ")
		if len(cells) < 3 {
			if len(c.rows) > 0 {
				break
			}
			continue
		}
		name, m := strings.TrimPrefix(cells[0], "| "), ratio.FindStringSubmatch(strings.TrimSpace(cells[1]))
		i := slices.IndexFunc(short, func(s [2]string) bool { return strings.HasPrefix(name, s[0]) })
		if m == nil || i < 0 {
			return nil, fmt.Errorf("the row %q has no ratio, or no short name in bench/pictures", name)
		}
		low, errLow := strconv.ParseFloat(m[1], 64)
		high, errHigh := strconv.ParseFloat(cmp.Or(m[2], m[1]), 64)
		if errLow != nil || errHigh != nil || low <= 0 || high < low {
			return nil, fmt.Errorf("the ratio %q of the row %q is no range above 0", m[0], name)
		}
		c.rows = append(c.rows, valueRange{label: short[i][1], low: low, high: high})
	}
	if len(c.rows) != len(short) {
		return nil, fmt.Errorf("%d ratios, want %d: the table has changed", len(c.rows), len(short))
	}
	return c, nil
}
