package main

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// all are the first n cases of a part.
func all(name string, seed uint64, n int) []trial {
	p := parts[slices.IndexFunc(parts, func(p part) bool { return p.name == name })]
	var out []trial
	for i := range n {
		out = append(out, p.draw(dice(seed, name, i), i))
	}
	return out
}

// A case is a function of seed, part and number.
func TestCasesRepeat(t *testing.T) {
	for _, p := range parts {
		words := map[string]bool{}
		for i, c := range all(p.name, 1, 40) {
			again := p.draw(dice(1, p.name, i), i)
			if fmt.Sprint(c) != fmt.Sprint(again) {
				t.Errorf("%s %d: first %v, then %v", p.name, i, c, again)
			}
			words[fmt.Sprint(c)] = true
		}
		other := map[string]bool{}
		for _, c := range all(p.name, 2, 40) {
			other[fmt.Sprint(c)] = true
		}
		if p.name != "pages" && reflect.DeepEqual(words, other) {
			t.Errorf("%s: seeds 1 and 2 have the same cases", p.name)
		}
	}
}

// The campaign has everything that it promises, in jobs that ringo takes.
func TestDrawnFaults(t *testing.T) {
	seen := map[string]int{}
	for _, part := range []string{"ranks", "servers"} {
		for i, c := range all(part, 1, 130) {
			c := c.(strikeCase)
			for _, what := range []string{"mode " + c.Mode, "moment " + string(c.Moment), fmt.Sprint("stop ", c.Stop), "model " + c.Model.Name, "strategy " + c.Strategy,
				fmt.Sprint("ranks ", c.Ranks), fmt.Sprint("on ", c.GoOn), fmt.Sprint("restarts ", c.Restarts), "transport " + c.Transport, fmt.Sprint("accumulate ", c.Accumulate)} {
				seen[part+" "+what]++
			}
			checkJob(t, part, i, c)
		}
	}
	for _, want := range []string{
		"ranks mode allreduce", "ranks mode aggregate", "ranks mode bsp", "ranks mode async", "ranks mode ssp", "ranks mode geo", "ranks on true", "ranks moment join",
		"ranks moment first step", "ranks moment mid-epoch", "ranks moment evaluation", "ranks moment checkpoint", "ranks moment end", "ranks stop true", "ranks stop false",
		"ranks strategy topk", "ranks strategy dlgs", "ranks strategy int8", "ranks strategy partialUpdate", "ranks transport shm", "ranks transport tcp", "ranks accumulate 2",
		"ranks model mnist", "ranks model mlp", "ranks model cifar-resnet20", "ranks model gpt-mini", "ranks model ctr-dnn", "ranks ranks 2", "ranks ranks 4",
		"servers mode aggregate", "servers mode bsp", "servers mode async", "servers mode ssp", "servers mode geo", "servers restarts true", "servers restarts false",
	} {
		if seen[want] == 0 {
			t.Errorf("no case has %s", want)
		}
	}
	if got := seen["servers stop true"]; got != serverStops {
		t.Errorf("%d stops of servers, want %d", got, serverStops)
	}
}

// checkJob wants what ringo refuses to be drawn never.
func checkJob(t *testing.T, part string, i int, c strikeCase) {
	t.Helper()
	switch {
	case c.tables() && (c.Strategy != "fp32" || c.Accumulate != 1):
		t.Errorf("%s %d: servers that keep parameters take fp32 gradients of one batch: %v", part, i, c)
	case c.Mode == "aggregate" && c.Strategy == "partialUpdate":
		t.Errorf("%s %d: partialUpdate has nothing for servers: %v", part, i, c)
	case c.Victim.Server && c.Victim.Number >= c.Servers, !c.Victim.Server && c.Victim.Number >= c.Ranks:
		t.Errorf("%s %d: there is no %v: %v", part, i, c.Victim, c)
	case c.GoOn && c.Moment == atSaving:
		t.Errorf("%s %d: a job that goes on without a rank has no checkpoints: %v", part, i, c)
	case (c.GoOn || c.Restarts || c.Moment == atEnd) != (c.Epochs > 0):
		t.Errorf("%s %d: %d epochs: %v", part, i, c.Epochs, c)
	}
}

// Where most of a job evaluates, each rank still has whole steps.
func TestEvaluationLast(t *testing.T) {
	c := strikeCase{Model: clicks, Ranks: 3, Accumulate: 2, Mode: "allreduce", Moment: evaluation}
	text := strings.Join(c.args("DIR"), " ")
	if want := "--train-limit 192 --eval-limit 320 "; !strings.Contains(text, want) {
		t.Errorf("%q is not in %s", want, text)
	}
}

func TestRealData(t *testing.T) {
	s := &setup{Data: "D"}
	for args, want := range map[string]string{
		"train mlp --data synthetic --np 2":     "train mlp --data D/mnist --np 2",
		"train gpt --data synthetic --np 2":     "train gpt --data synthetic --np 2",
		"train ctr-dnn --data synthetic --np 2": "train ctr-dnn --train-file D/criteo/criteo_8000_train.tsv --eval-file D/criteo/criteo_8000_test.tsv --set data.max-bad-records=1000 --np 2",
	} {
		if got := strings.Join(s.real(strings.Fields(args)), " "); got != want {
			t.Errorf("%s becomes %s, want %s", args, got, want)
		}
		if got := strings.Join((&setup{}).real(strings.Fields(args)), " "); got != args {
			t.Errorf("without data %s becomes %s", args, got)
		}
	}
}

func TestChosen(t *testing.T) {
	for _, c := range []struct {
		options
		want int
	}{
		{options{Case: -1}, 100 + serverCases + 100 + 100 + 100 + oddCases + len(hostileInputs) + len(floods) + len(adminPaths) + len(pacedJobs)*len(crowds)},
		{options{Case: -1, Only: "ranks,files", Cases: 7}, 14},
		{options{Case: 17, Only: "servers"}, 1},
	} {
		got, err := c.chosen()
		if err != nil || len(got) != c.want {
			t.Errorf("%+v: %d cases, %v, want %d", c.options, len(got), err, c.want)
		}
	}
	if _, err := (&options{Only: "rank"}).chosen(); err == nil || !strings.Contains(err.Error(), `no part "rank"`) {
		t.Errorf("a part that is none: %v", err)
	}
}
