package bucket

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
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
// Each plan's output is a timeline.
type scenario struct {
	Step
	names string
	plans []string
}

const ms = 1e-3

func parseScenario(text string) (s scenario, err error) {
	for _, line := range strings.Split(text, "\n") {
		word, rest, _ := strings.Cut(line, " ")
		var l Param
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

// plan is a named planner's plan, or a plan written in layer names.
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
			fmt.Fprintf(&b, "%-8s %16s %16s %16s  %s, %v\n", groups(s.Layers, p[g:g+1]), "", written(t.Buckets[g].Select), written(t.Buckets[g].Send), t.Buckets[g].By, t.Buckets[g].Bytes)
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

// Updates overlap later exchanges, on the cores left by the exchange.
func TestPredictOverlap(t *testing.T) {
	s := Step{
		Layers: []Param{{Len: 10}, {Offset: 10, Len: 10}}, Forward: 1, Backward: []float64{1, 1}, Update: 4,
		Costs: Costs{Sends: []Send{{Payload: Payload{Unit: 4}, Fixed: 4}}},
	}
	for _, c := range []struct {
		overlap           bool
		update            float64
		share, rows, cast float64
		plan              Plan
		total             float64
	}{
		{false, 4, 0, 0, 0, PerLayer(s.Layers), 14}, // exchanges end at 6 and 10
		{true, 4, 0, 0, 0, PerLayer(s.Layers), 12},
		{true, 4, 0, 3, 0, PerLayer(s.Layers), 15},
		{true, 4, 0, 0, 1, PerLayer(s.Layers), 13},
		{false, 4, 0, 0, 1, PerLayer(s.Layers), 15}, // the first group's cast is hidden
		{true, 12, 0, 0, 0, PerLayer(s.Layers), 18}, // 6 to 12 to 18
		{true, 4, 1, 0, 0, PerLayer(s.Layers), 15},  // backward ends at 7, the exchanges at 11: no gain
		{true, 4, 0, 0, 0, One(s.Layers), 11},
		{false, 4, 0, 0, 0, One(s.Layers), 11},
	} {
		s.Overlap, s.Update, s.Rows, s.Costs.After = c.overlap, c.update, c.rows, Curve{Fixed: c.cast}
		s.Costs.Contention.Share = c.share
		if got := Predict(s, c.plan); !near(got.Total, c.total) || !near(s.total(c.plan), got.Compute+got.Exposed+s.Update) {
			t.Errorf("%+v: total %v, exposed %v of %v", c, got.Total, got.Exposed, s.total(c.plan))
		}
	}
}

// In an overlap the computation loses a share of its speed and exchanges take longer; the last
// group, and exchanges after the computation's end, have no contention.
func TestPredictContention(t *testing.T) {
	s := Step{
		Layers: []Param{{Len: 10}, {Offset: 10, Len: 10}}, Forward: 1, Backward: []float64{1, 1}, Update: 1,
		Costs: Costs{Sends: []Send{{Payload: Payload{Unit: 4}, Fixed: 4}}},
	}
	for _, c := range []struct {
		plan                    Plan
		contention              Contention
		compute, exposed, total float64
	}{
		{PerLayer(s.Layers), Contention{}, 3, 7, 11},
		{PerLayer(s.Layers), Contention{Share: 0.5}, 4, 6, 11},                             // the second layer takes 2; the exchanges 2 to 10
		{PerLayer(s.Layers), Contention{Share: 0.5, Stretch: 1.5}, 4, 6 + 2./3, 11 + 2./3}, // four of 6 are left at the computation's end
		{PerLayer(s.Layers), Contention{Late: 1}, 3, 8, 12},
		{PerLayer(s.Layers), Contention{Share: 1}, 7, 4, 12}, // no computation during exchanges
		{One(s.Layers), Contention{Share: 0.5, Stretch: 1.5, Late: 1, Cut: 1}, 3, 4, 8},
		{PerLayer(s.Layers), Contention{Cut: 1}, 4, 6, 11},
		{PerLayer(s.Layers), Contention{Cut: 1, Share: 0.5}, 6, 4, 11}, // the message takes the second layer's turn, and both go at half speed
	} {
		s.Costs.Contention = c.contention
		if got := Predict(s, c.plan); !near(got.Compute, c.compute) || !near(got.Exposed, c.exposed) || !near(got.Total, c.total) || !near(s.total(c.plan), c.total) {
			t.Errorf("%d groups, contention %+v: compute %v, exposed %v, total %v, want %+v", len(c.plan), c.contention, got.Compute, got.Exposed, got.Total, c)
		}
	}
}

// Predict agrees with an event simulation with the rates of both paths.
func TestPredictAgainstSimulation(t *testing.T) {
	rng := rand.New(rand.NewPCG(17, 18))
	slowed := 0
	for i := range 500 {
		s := randomStep(rng, 1+rng.IntN(12), i%2 == 1)
		p := cut(s.Layers, rng.IntN(1<<12))
		got := Predict(s, p)
		compute, end := simulate(s, p)
		if math.Abs(got.Compute-compute) > 1e-9*compute || math.Abs(got.Compute+got.Exposed-end) > 1e-9*end {
			t.Fatalf("predicted compute %v and end %v, simulated %v and %v, of %+v", got.Compute, got.Compute+got.Exposed, compute, end, s)
		}
		if got.Busy > 1e-9*got.Compute {
			slowed++
		}
	}
	if slowed < 50 {
		t.Errorf("%d of the steps were slowed down: hardly anything is tested", slowed)
	}
}

// simulate returns the ends of the compute path and the channel.
func simulate(s Step, p Plan) (compute, now float64) {
	type job struct{ compute, send float64 }
	var jobs []job
	for g, b := range p {
		j := job{compute: s.Costs.Select.At(b.Len()), send: s.Costs.send(b.Len())}
		for i := b.First; i <= b.Last; i++ {
			j.compute += s.Backward[i]
		}
		if g > 0 {
			j.compute += s.Costs.Contention.Cut
		}
		if g < len(p)-1 {
			j.send += s.Costs.Contention.Late / s.Costs.Contention.stretch()
		}
		jobs = append(jobs, j)
	}
	now = s.Forward
	computed, sent := 0, 0 // finished jobs
	for sent < len(jobs) {
		rates := [2]float64{} // of computation and channel
		if computed < len(jobs) {
			if jobs[computed].compute == 0 {
				if computed++; computed == len(jobs) {
					compute = now
				}
				continue
			}
			rates[0] = 1
		}
		if sent < computed {
			rates[1] = 1
		}
		if rates[0]*rates[1] > 0 {
			rates = [2]float64{1 - s.Costs.Contention.Share, 1 / s.Costs.Contention.stretch()}
		}
		step := math.Inf(1)
		if rates[0] > 0 {
			step = jobs[computed].compute / rates[0]
		}
		if rates[1] > 0 {
			step = min(step, jobs[sent].send/rates[1])
		}
		now += step
		if rates[0] > 0 {
			if jobs[computed].compute -= step * rates[0]; jobs[computed].compute < 1e-13*(1+now) {
				jobs[computed].compute = 0
			}
		}
		if rates[1] > 0 {
			if jobs[sent].send -= step * rates[1]; jobs[sent].send < 1e-13*(1+now) {
				sent++
			}
		}
	}
	return compute, now
}
