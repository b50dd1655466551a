package bucket

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden timelines anew, to be read in review")

// scenario is the input of a golden file, a line each:
//
//	forward MS
//	update MS
//	layer NAME VALUES BACKWARD_MS          in the order of backward
//	select FIXED_MS MS_PER_VALUE
//	send NAME DENSITY UNIT FIXED_MS MS_PER_BYTE
//	plan ab|c                               or the name of a planner
//
// Each plan is answered with its timeline.
type scenario struct {
	Step
	names string
	plans []string
}

const ms = 1e-3

func parseScenario(text string) (s scenario, err error) {
	for _, line := range strings.Split(text, "\n") {
		word, rest, _ := strings.Cut(line, " ")
		var l Layer
		var w Send
		var t float64
		switch word {
		case "", "#":
		case "forward":
			_, err = fmt.Sscan(rest, &s.Forward)
			s.Forward *= ms
		case "update":
			_, err = fmt.Sscan(rest, &s.Update)
			s.Update *= ms
		case "layer":
			_, err = fmt.Sscan(rest, &l.Name, &l.Len, &t)
			if n := len(s.Layers); n > 0 {
				l.Offset = s.Layers[n-1].Offset + s.Layers[n-1].Len
			}
			s.Layers, s.Backward, s.names = append(s.Layers, l), append(s.Backward, t*ms), s.names+l.Name
		case "select":
			_, err = fmt.Sscan(rest, &s.Costs.Select.Fixed, &s.Costs.Select.PerValue)
			s.Costs.Select.Fixed *= ms
			s.Costs.Select.PerValue *= ms
		case "send":
			_, err = fmt.Sscan(rest, &w.Name, &w.Payload.Density, &w.Payload.Unit, &w.Fixed, &w.PerByte)
			w.Fixed, w.PerByte = w.Fixed*ms, w.PerByte*ms
			s.Costs.Sends = append(s.Costs.Sends, w)
		case "plan":
			s.plans = append(s.plans, rest)
		default:
			err = fmt.Errorf("unknown word")
		}
		if err != nil {
			return s, fmt.Errorf("%q: %w", line, err)
		}
	}
	return s, s.Validate()
}

// plan is the one that a planner makes, or that is written as names of layers.
func (s scenario) plan(text string) Plan {
	if n, err := LookupPlanner(text); err == nil {
		return n.Plan(s.Step)
	}
	bits, at := 0, -1
	for _, c := range text {
		if c == '|' {
			bits |= 1 << at
		} else {
			at++
		}
	}
	return cut(s.Layers, bits)
}

func (s scenario) trace() string {
	var b strings.Builder
	for _, text := range s.plans {
		p := s.plan(text)
		t := Predict(s.Step, p)
		fmt.Fprintf(&b, "\nplan %s: %s\n", text, groups(s.Layers, p))
		fmt.Fprintf(&b, "%-8s %16s %16s %16s  %s\n", "", "backward", "select", "send", "by, bytes")
		for g, k := range p {
			for i := k.First; i <= k.Last; i++ {
				fmt.Fprintf(&b, "%-8s %16s\n", "  "+s.Layers[i].Name, written(t.Layers[i]))
			}
			fmt.Fprintf(&b, "%-8s %16s %16s %16s  %s, %v\n", groups(s.Layers, p[g:g+1]), "", written(t.Groups[g].Select), written(t.Groups[g].Send), t.Groups[g].By, t.Groups[g].Bytes)
		}
		fmt.Fprintf(&b, "compute %.4g (selecting %.4g) + exposed %.4g + update %.4g = %.4g\n", t.Compute/ms, t.Selecting/ms, t.Exposed/ms, s.Update/ms, t.Total/ms)
	}
	return b.String()
}

func written(i Interval) string { return fmt.Sprintf("%.4g..%.4g", i.Start/ms, i.End/ms) }

// The timelines of testdata/timeline, line by line.
func TestGoldenTimelines(t *testing.T) {
	files, err := filepath.Glob("testdata/timeline/*.txt")
	if err != nil || len(files) < 4 {
		t.Fatalf("%d scenarios, %v", len(files), err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		const line = "----\n"
		input, want, _ := strings.Cut(string(content), line)
		s, err := parseScenario(input)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		got := s.trace()
		if *update {
			if err := os.WriteFile(file, []byte(input+line+got), 0o666); err != nil {
				t.Fatal(err)
			}
		} else if got != want {
			t.Errorf("%s: got\n%s\nwant\n%s\nread the difference; if it is right, run with -update", file, got, want)
		}
	}
}

// Updates happen while later groups travel, as far as the exchange leaves them cores.
func TestPredictOverlap(t *testing.T) {
	s := Step{
		Layers: []Layer{{Len: 10}, {Offset: 10, Len: 10}}, Forward: 1, Backward: []float64{1, 1}, Update: 4,
		Costs: Costs{Sends: []Send{{Payload: Payload{Unit: 4}, Fixed: 4}}},
	}
	for _, c := range []struct {
		overlap          bool
		update           float64
		busy, rows, cast float64
		plan             Plan
		total            float64
	}{
		{false, 4, 0, 0, 0, PerLayer(s.Layers), 14}, // groups are agreed at 6 and 10
		{true, 4, 0, 0, 0, PerLayer(s.Layers), 12},
		{true, 4, 0, 3, 0, PerLayer(s.Layers), 15},
		{true, 4, 0, 0, 1, PerLayer(s.Layers), 13},
		{false, 4, 0, 0, 1, PerLayer(s.Layers), 15}, // of the cast of the first group nothing is left
		{true, 12, 0, 0, 0, PerLayer(s.Layers), 18}, // 6 to 12 to 18
		{true, 4, 4, 0, 0, PerLayer(s.Layers), 15},  // backward ends at 7, the exchanges at 11: nothing is gained
		{true, 4, 0, 0, 0, One(s.Layers), 11},
		{false, 4, 0, 0, 0, One(s.Layers), 11},
	} {
		s.Overlap, s.Update, s.Rows, s.Costs.After = c.overlap, c.update, c.rows, Curve{Fixed: c.cast}
		s.Costs.Sends[0].BusyFixed = c.busy
		if got := Predict(s, c.plan); !near(got.Total, c.total) || !near(s.total(c.plan), got.Compute+got.Exposed+s.Update) {
			t.Errorf("%+v: total %v, exposed %v of %v", c, got.Total, got.Exposed, s.total(c.plan))
		}
	}
}

// What an exchange takes from the computation delays what follows, and no more than it
// lasts; after the last group there is nothing to delay.
func TestPredictBusy(t *testing.T) {
	s := Step{
		Layers: []Layer{{Len: 10}, {Offset: 10, Len: 10}}, Forward: 1, Backward: []float64{1, 1}, Update: 1,
		Costs: Costs{Sends: []Send{{Payload: Payload{Unit: 4}, Fixed: 4, BusyFixed: 1, BusyPerByte: 0.05}}},
	}
	for _, c := range []struct {
		plan                    Plan
		busy                    float64
		compute, exposed, total float64
	}{
		{PerLayer(s.Layers), 1, 6, 4, 11}, // 3 from the second layer; its group starts at 6
		{PerLayer(s.Layers), 9, 7, 4, 12}, // no more than the 4 that the exchange lasts
		{One(s.Layers), 1, 3, 4, 8},
	} {
		s.Costs.Sends[0].BusyFixed = c.busy
		if got := Predict(s, c.plan); got.Compute != c.compute || got.Exposed != c.exposed || got.Total != c.total || s.total(c.plan) != c.total {
			t.Errorf("%d groups, busy %v: compute %v, exposed %v, total %v, want %+v", len(c.plan), c.busy, got.Compute, got.Exposed, got.Total, c)
		}
	}
}
