package service_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/heter/message"
	"github.com/ringo-ml/ringo/internal/heter/service"
)

// lends is a hello of a trainer that lends the part.
func lends(trainer, trainers int) message.Hello {
	return message.Hello{Trainer: trainer, Trainers: trainers, Count: 1, Stateless: true}
}

func newLentHome(t *testing.T, trainers int, change func(*service.Config)) *home {
	t.Helper()
	return newHome(t, trainers, func(c *service.Config) {
		c.Stateless = true
		if change != nil {
			change(c)
		}
	})
}

func (g guest) lend(step uint64, w float32) {
	g.h.t.Helper()
	g.say(message.TypePut, append(message.Ask{Step: step, Count: 1}.Append(nil), bytesview.Bytes([]float32{w})...))
}

// sum ends a step after so many micro-batches, and returns the gradient.
func (g guest) sum(step, count uint64) float32 {
	g.h.t.Helper()
	g.say(message.TypeEnd, message.End{Step: step, Attempt: 1, Count: count}.Append(nil))
	b := g.hear(message.TypeValues)
	a, err := message.ParsePiece(b[:message.AskSize], len(b), 1)
	if err != nil || a.Step != step {
		g.h.t.Fatalf("%+v, %v", a, err)
	}
	return bytesview.As[float32](b[message.AskSize:])[0]
}

// What trainers lend is each one's own, and so are their sums, however their micro-batches come in between; evaluations are in none. The device
// keeps nothing, and moves nothing.
func TestLent(t *testing.T) {
	h := newLentHome(t, 2, nil)
	one, two := h.guest(lends(0, 2)), h.guest(lends(1, 2))
	one.hear(message.TypeWelcome)
	two.hear(message.TypeWelcome)
	one.lend(1, 3)
	two.lend(1, 5)
	out := func(g guest, number, step uint64, eval bool, x, want float32) {
		t.Helper()
		g.micro(number, step, 1, eval, x)
		if head, m := g.done(1, eval); head.Number != number || m.Out[0] != want {
			t.Errorf("micro-batch %d: %+v, %v, want %v", number, head, m.Out, want)
		}
	}
	out(one, 1, 1, false, 2, 6)
	out(two, 1, 1, false, 4, 20)
	out(one, 2, 1, false, 7, 21)
	out(two, 2, 1, true, 1, 5)
	if got := one.sum(1, 2); got != 2+7 {
		t.Errorf("the first trainer's gradient is %v", got)
	}
	out(two, 3, 1, false, 1, 5)
	one.lend(2, -1)
	out(one, 3, 2, false, 8, -8)
	if got := two.sum(1, 3); got != 4+1 {
		t.Errorf("the second trainer's gradient is %v", got)
	}
	out(one, 4, 2, false, 1, -1) // as those of a lost one, after an end
	if got := one.sum(2, 4); got != 8+1 {
		t.Errorf("the first trainer's gradient is %v", got)
	}
	if got := one.sum(2, 4); got != 0 {
		t.Errorf("a gradient of nothing is %v", got)
	}
	out(two, 4, 2, false, 6, 30) // with what was lent before
	if got := two.sum(2, 4); got != 6 {
		t.Errorf("the second trainer's gradient is %v", got)
	}
	one.say(message.TypeGoodbye, nil)
	two.say(message.TypeGoodbye, nil)
	if err := <-h.end; err != nil || h.served.MicroBatches != 8 || h.served.Steps != 5 {
		t.Errorf("%v, %+v", err, h.served)
	}
}

// hearOut reads until it is told a failure, and closes.
func (g guest) hearOut() {
	for {
		f, err := g.ReadHeader()
		if err == nil {
			_, err = g.ReadPayload(make([]byte, f.Length))
		}
		if err != nil || f.Type == message.TypeFailure {
			_ = g.Close()
			return
		}
	}
}

// Who says what is not for lent parameters is refused by name.
func TestLentMalformed(t *testing.T) {
	put := func(a message.Ask, w ...float32) []byte { return append(a.Append(nil), bytesview.Bytes(w)...) }
	for want, say := range map[string]func(g guest){
		"micro-batch 1 with 0 values of the part, of 1":                           func(g guest) { g.micro(1, 1, 1, false, 2) },
		"a trainer does not send ask frames":                                      func(g guest) { g.say(message.TypeAsk, message.Ask{Step: 1, Count: 1}.Append(nil)) },
		"an ask for 1 values from 1 on, of 1":                                     func(g guest) { g.say(message.TypePut, put(message.Ask{Step: 1, Lo: 1, Count: 1}, 2)) },
		"1 values in 32 bytes":                                                    func(g guest) { g.say(message.TypePut, put(message.Ask{Step: 1, Count: 1}, 2, 3)) },
		"3 bytes of values to compute with, while 0 micro-batches are under way":  func(g guest) { g.say(message.TypePut, make([]byte, 3)) },
		"the end of step 1 after 5 micro-batches, 0 have come":                    func(g guest) { g.say(message.TypeEnd, message.End{Step: 1, Attempt: 1, Count: 5}.Append(nil)) },
		"values to compute with in memory, and none is shared":                    func(g guest) { g.say(message.TypePut, nil) },
		"an end of step 0 at the rate 0":                                          func(g guest) { g.say(message.TypeEnd, message.End{Attempt: 1}.Append(nil)) },
		"28 bytes of values to compute with, while 1 micro-batches are under way": func(g guest) { g.lend(1, 2); g.micro(1, 1, 1, false, 2); g.lend(2, 3) },
	} {
		h := newLentHome(t, 1, nil)
		if strings.Contains(want, "while 1") {
			h.device.slow = 50 * time.Millisecond
		}
		g := h.guest(lends(0, 1))
		g.hear(message.TypeWelcome)
		say(g)
		g.hearOut()
		if err := <-h.end; err == nil || !strings.Contains(err.Error(), "trainer 0: malformed: "+want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Both ends must know who has the part's parameters.
func TestLentOrNot(t *testing.T) {
	h := newLentHome(t, 1, nil)
	want := "trainer 0 does not lend the part's parameters, and this heter-trainer is told otherwise: give all the same sync"
	if text := string(h.guest(message.Hello{Trainers: 1, Count: 1}).hear(message.TypeFailure)); text != want {
		t.Errorf("%q, want %q", text, want)
	}
	h = newHome(t, 1, nil)
	if text := string(h.guest(lends(0, 1)).hear(message.TypeFailure)); text != strings.Replace(want, "does not lend", "lends", 1) {
		t.Errorf("%q", text)
	}
}

// One that stands in for a lost one works for whom it finds, and ends when these have left: others may have left before.
func TestLentLate(t *testing.T) {
	h := newLentHome(t, 3, func(c *service.Config) { c.Times = cluster.Times{Join: 20 * time.Millisecond} })
	hello := lends(2, 3)
	hello.Joining = true
	g := h.guest(hello)
	g.hear(message.TypeWelcome)
	time.Sleep(40 * time.Millisecond)
	g.lend(9, 2)
	g.micro(1, 9, 1, false, 3)
	g.done(1, false)
	if got := g.sum(9, 1); got != 3 {
		t.Errorf("the gradient is %v", got)
	}
	g.say(message.TypeGoodbye, nil)
	if err := <-h.end; err != nil {
		t.Error(err)
	}
}

// Where others go on without a lost trainer it counts as one that has left.
func TestLentGoesOn(t *testing.T) {
	h := newLentHome(t, 3, func(c *service.Config) { c.ContinueOnLoss = true })
	var all []guest
	for i := range 3 {
		g := h.guest(lends(i, 3))
		g.hear(message.TypeWelcome)
		g.lend(1, 2)
		all = append(all, g)
	}
	all[0].micro(1, 1, 1, false, 3)
	_ = all[0].Close()
	all[1].say(message.TypeFailure, []byte("it is lost"))
	all[2].micro(1, 1, 1, false, 4)
	all[2].done(1, false)
	if got := all[2].sum(1, 1); got != 4 {
		t.Errorf("the gradient is %v", got)
	}
	all[2].say(message.TypeGoodbye, nil)
	if err := <-h.end; err != nil {
		t.Error(err)
	}
}
