package service_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/heter/message"
	"github.com/ringo-ml/ringo/internal/heter/service"
)

// alone is a group whose other members have nothing to add. It fails as often as it is told to.
type alone struct {
	fail *atomic.Int32
	sent *[]float32
}

func (a alone) Sum([]float32) error {
	if a.fail.Add(-1) >= 0 {
		return errors.New("a link has failed")
	}
	return nil
}
func (a alone) Copy([]float32, int) error { return nil }
func (a alone) Trade(dst, src []float32, _, _ []int) error {
	copy(dst, src)
	*a.sent = src
	return a.Sum(nil)
}
func (a alone) Gather(dst, src []float32, lengths []int) error {
	if len(lengths) > 1 && *a.sent != nil { // the others' ranges of the sum
		src, *a.sent = *a.sent, nil
	}
	copy(dst, src)
	return nil
}
func (a alone) Close() error { return nil }

// ofTwo is the first of two heter-trainers; meetings are those that it was at, and it fails so often to sum.
func ofTwo(t *testing.T, trainers int, fail *atomic.Int32, meetings *[]service.GroupSpec) (*home, []guest) {
	h := newHome(t, trainers, func(c *service.Config) {
		c.Count = 2
		c.Meet = func(_ context.Context, m service.GroupSpec) (service.StepGroup, error) {
			*meetings = append(*meetings, m)
			return alone{fail, new([]float32)}, nil
		}
	})
	var guests []guest
	for i := range trainers {
		guests = append(guests, h.guest(message.Hello{Trainer: i, Trainers: trainers, Count: 2}))
		guests[i].hear(message.TypeWelcome)
	}
	return h, guests
}

// end says the end of a step, where all are there, the others with life 9, unless it says otherwise.
func (g guest) end(e message.End) {
	if e.Members == nil {
		e.Members = append([]uint64{g.h.life}, slices.Repeat([]uint64{9}, g.h.others)...)
	}
	g.say(message.TypeEnd, e.Append(nil))
}

func (g guest) again(want message.RetryEnd) {
	g.h.t.Helper()
	if a, err := message.ParseAgain(g.hear(message.TypeAgain)); err != nil || !reflect.DeepEqual(a, want) {
		g.h.t.Errorf("asked for %+v, %v, want %+v", a, err, want)
	}
}

// Trainers that know of different losses are told of all, and a step ends only when all say the same. What a lost one had is added as long
// as the step is open, and no more once it is committed.
func TestLossesAreAgreedOn(t *testing.T) {
	var fail atomic.Int32
	var meetings []service.GroupSpec
	h, g := ofTwo(t, 2, &fail, &meetings)
	g[0].micro(1, 1, 1, false, 1)
	g[0].done(1, false)
	g[0].end(message.End{Step: 1, Attempt: 1, Count: 1, Rate: 1})
	g[1].end(message.End{Step: 1, Attempt: 1, Rate: 1, Members: []uint64{h.life, 0}})
	for _, one := range g {
		one.again(message.RetryEnd{Step: 1, Attempt: 2, Lost: []uint64{9}})
	}
	g[0].end(message.End{Step: 1, Attempt: 2, Open: true, Count: 1, Rate: 1, Members: []uint64{h.life, 0}})
	g[1].again(message.RetryEnd{Step: 1, Attempt: 2, Lost: []uint64{9}})
	g[0].micro(2, 1, 1, false, 2) // which the lost one had
	g[0].done(1, false)
	g[0].end(message.End{Step: 1, Attempt: 2, Count: 2, Rate: 1, Members: []uint64{h.life, 0}})
	g[1].end(message.End{Step: 1, Attempt: 2, Rate: 1, Members: []uint64{h.life, 0}})
	for _, one := range g {
		one.hear(message.TypeCommit)
	}
	g[0].end(message.End{Step: 1, Attempt: 3, Open: true, Count: 2, Rate: 1, Members: []uint64{h.life, 0}}) // it had not heard that yet
	g[0].micro(3, 1, 1, false, 100)
	if head, _ := g[0].done(1, false); head.Number != 3 || head.Loss != 0 {
		t.Errorf("%+v of a step that was committed", head)
	}
	for _, one := range g {
		one.say(message.TypeGoodbye, nil)
	}
	if err := <-h.end; err != nil {
		t.Error(err)
	}
	if want := 2 - float32(1+2)/2; h.device.w[0] != want {
		t.Errorf("w is %v, want %v", h.device.w[0], want)
	}
	if len(meetings) != 1 || !slices.Equal(meetings[0].Members, []int{0}) || meetings[0].Step != 1 || meetings[0].Attempt != 2 {
		t.Errorf("meetings %+v", meetings)
	}
}

// A sum that fails is asked for again, with the gradients as they were, and not for ever.
func TestSumFails(t *testing.T) {
	var fail atomic.Int32
	var meetings []service.GroupSpec
	h, g := ofTwo(t, 1, &fail, &meetings)
	g[0].micro(1, 1, 1, false, 1)
	g[0].done(1, false)
	fail.Store(2) // of the first meeting, who has done the step; of the second one, too
	attempt := 1
	for ; attempt <= 2; attempt++ {
		g[0].end(message.End{Step: 1, Attempt: attempt, Count: 1, Rate: 1})
		g[0].again(message.RetryEnd{Step: 1, Attempt: attempt + 1})
	}
	g[0].end(message.End{Step: 1, Attempt: attempt, Count: 1, Rate: 1})
	g[0].hear(message.TypeCommit)
	fail.Store(1000)
	for attempt = 1; attempt < 16; attempt++ {
		g[0].end(message.End{Step: 2, Attempt: attempt, Count: 1, Rate: 1})
		g[0].again(message.RetryEnd{Step: 2, Attempt: attempt + 1})
	}
	g[0].end(message.End{Step: 2, Attempt: attempt, Count: 1, Rate: 1})
	if err := <-h.end; err == nil || !strings.Contains(err.Error(), "step 2: agreeing with the other heter-trainers, attempt 16: a link has failed") {
		t.Error(err)
	}
	if h.device.w[0] != 1 {
		t.Errorf("w is %v, want 1", h.device.w[0])
	}
}

// A server that fails while it waits for other heter-trainers waits no longer.
func TestFailsWhileMeeting(t *testing.T) {
	met := make(chan struct{})
	h := newHome(t, 1, func(c *service.Config) {
		c.Count = 2
		c.Meet = func(ctx context.Context, _ service.GroupSpec) (service.StepGroup, error) {
			close(met)
			<-ctx.Done()
			return nil, ctx.Err()
		}
	})
	g := h.guest(message.Hello{Trainers: 1, Count: 2})
	g.hear(message.TypeWelcome)
	g.end(message.End{Step: 1, Attempt: 1, Rate: 1})
	<-met
	_ = g.Close()
	select {
	case err := <-h.end:
		if err == nil || !strings.Contains(err.Error(), "trainer 0: it is lost") {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it still waits for the other heter-trainer")
	}
}

// Ends of steps that make no sense end the job by name.
func TestNoEnd(t *testing.T) {
	for want, ends := range map[string][]message.End{
		"ends step 1 in attempt 1, it has ended 1 in attempt 1":         {{Step: 1, Attempt: 1}, {Step: 1, Attempt: 1}},
		"ends step 1 in attempt 2, it has ended 1 in attempt 3":         {{Step: 1, Attempt: 3, Open: true}, {Step: 1, Attempt: 2}},
		"trainer 0 has lost this heter-trainer, and goes on without it": {{Step: 1, Attempt: 1, Members: []uint64{0, 9}}},
		"malformed: trainer 0 knows of 1 heter-trainers, there are 2":   {{Step: 1, Attempt: 1, Members: []uint64{9}}},
		"the end of step 1 after 2 micro-batches, 0 have come":          {{Step: 1, Attempt: 1, Count: 2}},
		"ends step 3 in attempt 1, it has ended 1 in attempt 1":         {{Step: 1, Attempt: 1}, {Step: 3, Attempt: 1}},
	} {
		var fail atomic.Int32
		var meetings []service.GroupSpec
		h, g := ofTwo(t, 2, &fail, &meetings)
		for _, e := range ends {
			g[0].end(e)
		}
		for _, one := range g { // it drains what they still say
			go func() {
				defer one.Close()
				for f, err := one.ReadHeader(); err == nil && f.Type != message.TypeFailure; f, err = one.ReadHeader() {
					if _, err := one.ReadPayload(make([]byte, f.Length)); err != nil {
						return
					}
				}
			}()
		}
		if err := <-h.end; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
