package service_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ringo-ml/ringo/internal/heter/message"
	"github.com/ringo-ml/ringo/internal/heter/service"
)

// A late one becomes a member with the end of a step of which all trainers name it, and not before. From then on, also where agreeing has failed
// here, it may be a member to a trainer: what one has lost all must lose.
func TestLateMember(t *testing.T) {
	var fail atomic.Int32
	var meetings []service.GroupSpec
	h, g := ofTwo(t, 2, &fail, &meetings)
	end := func(step uint64, others ...uint64) {
		for i, life := range others {
			g[i].end(message.End{Step: step, Attempt: 1, Rate: 1, Members: []uint64{h.life, life}})
		}
	}
	for step, found := range []uint64{0, 5} { // by one trainer
		end(uint64(step+1), found, 0)
		for _, one := range g {
			one.hear(message.TypeCommit)
		}
	}
	fail.Store(1)
	end(3, 5, 5)
	for _, one := range g {
		one.again(message.RetryEnd{Step: 3, Attempt: 2})
	}
	here := func(life uint64) []uint64 { return []uint64{h.life, life} }
	g[0].end(message.End{Step: 3, Attempt: 2, Rate: 1, Members: here(5)})
	g[1].again(message.RetryEnd{Step: 3, Attempt: 2})
	g[1].end(message.End{Step: 3, Attempt: 2, Rate: 1, Members: here(0)})
	gone := message.RetryEnd{Step: 3, Attempt: 3, Lost: []uint64{5}}
	for _, one := range g {
		one.again(gone)
	}
	g[0].end(message.End{Step: 3, Attempt: 3, Rate: 1, Members: here(0)})
	g[1].again(gone)
	g[1].end(message.End{Step: 3, Attempt: 3, Rate: 1, Members: here(0)})
	for _, one := range g {
		one.hear(message.TypeCommit)
	}
	for _, one := range g {
		one.say(message.TypeGoodbye, nil)
	}
	if err := <-h.end; err != nil {
		t.Error(err)
	}
	var members []int
	for _, m := range meetings {
		members = append(members, len(m.Members))
	}
	if want := []int{1, 2, 1}; !slices.Equal(members, want) {
		t.Errorf("meetings of %v, want %v", members, want)
	}
}

// Where all who had the part's state are lost, the end names that, at once.
func TestNobodyHasState(t *testing.T) {
	h := newHome(t, 1, func(c *service.Config) {
		c.Count = 2
		c.Meet = func(context.Context, service.GroupSpec) (service.StepGroup, error) {
			return alone{new(atomic.Int32), nil}, nil
		}
	})
	g := h.guest(message.Hello{Trainers: 1, Count: 2, Joining: true})
	g.hear(message.TypeWelcome)
	g.end(message.End{Step: 7, Attempt: 1, Rate: 1, Members: []uint64{h.life, 0}})
	if err := <-h.end; err == nil || !strings.Contains(err.Error(), "step 7: all heter-trainers that are left have come late: nobody has the part's parameters") {
		t.Error(err)
	}
}

// One whom trainers do not agree whether it is late takes the first one's word.
func TestLateOrNot(t *testing.T) {
	for late, want := range map[bool]string{
		true:  message.ReplacementPrefix + " by another trainer than trainer 1",
		false: "trainer 1 says otherwise than others whether this heter-trainer is the first in its place",
	} {
		h := newHome(t, 2, nil)
		h.guest(message.Hello{Trainers: 2, Count: 1, Joining: late}).hear(message.TypeWelcome)
		text := h.guest(message.Hello{Trainer: 1, Trainers: 2, Count: 1, Joining: !late}).hear(message.TypeFailure)
		if !strings.Contains(string(text), want) {
			t.Errorf("%q, want %q", text, want)
		}
	}
}
