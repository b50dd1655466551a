// Package fault wraps a mesh and injects faults by rules. A rule is a value with a text form:
//
//	rank=1 peer=2 op=send nth=5 do=delay:50ms
package fault

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/internal/faults"
)

// Any matches every rank in a Rule.
const Any = -1

// Op is the kind of operation that a rule matches.
type Op string

// Values of Op. AnyOp matches all kinds.
const (
	AnyOp   Op = ""
	Send    Op = "send"
	Receive Op = "receive"
)

// Action is the effect of a rule.
type Action string

// Values of Action.
const (
	Drop  Action = "drop"  // the message is lost: the send succeeds, the receive never ends
	Delay Action = "delay" // the send starts later; receives cannot be delayed
	Fail  Action = "fail"  // the operation fails with ErrInjected
	Cut   Action = "cut"   // the link to the peer breaks, as if the peer had died, and then the operation continues
)

// Rule selects operations and injects a fault. Start from Every to match all operations: in the
// zero Rule, Rank and Peer mean rank 0.
type Rule struct {
	Rank, Peer int // operating rank and its peer; Any matches all
	Op         Op
	// Nth selects one matching operation, counted from 1 on each mesh; 0 selects all. With Onward,
	// Nth is the first of the selected operations.
	Nth    int
	Onward bool
	Do     Action
	For    time.Duration // duration of a Delay
}

// Every returns the rule that applies an action to every operation.
func Every(do Action) Rule { return Rule{Rank: Any, Peer: Any, Do: do} }

// Validate returns all errors of the rule.
func (r Rule) Validate() error {
	bad := faults.In(fmt.Sprintf("fault rule %q: ", r.String()))
	bad.If(r.Rank < Any, "rank %d", r.Rank)
	bad.If(r.Peer < Any, "peer %d", r.Peer)
	bad.If(r.Op != AnyOp && r.Op != Send && r.Op != Receive, "op %q: send or receive expected", r.Op)
	bad.If(r.Nth < 0 || r.Onward && r.Nth == 0, "nth %d: at least 1 expected", r.Nth)
	switch r.Do {
	case Drop, Fail, Cut:
		bad.If(r.For != 0, "only a delay takes a duration, %s does not", r.Do)
	case Delay:
		bad.If(r.For <= 0, "a delay of %v", r.For)
		bad.If(r.Op != Send, "only sends can be delayed: add op=send")
	default:
		bad.If(true, "do %q: drop, delay:DURATION, fail or cut expected", r.Do)
	}
	return bad.Err()
}

// String returns the rule in ParseRule's syntax, without conditions that match every operation.
func (r Rule) String() string {
	var out []string
	if r.Rank != Any {
		out = append(out, fmt.Sprintf("rank=%d", r.Rank))
	}
	if r.Peer != Any {
		out = append(out, fmt.Sprintf("peer=%d", r.Peer))
	}
	if r.Op != AnyOp {
		out = append(out, "op="+string(r.Op))
	}
	switch {
	case r.Onward:
		out = append(out, fmt.Sprintf("nth=%d+", r.Nth))
	case r.Nth != 0:
		out = append(out, fmt.Sprintf("nth=%d", r.Nth))
	}
	do := "do=" + string(r.Do)
	if r.For != 0 {
		do += ":" + r.For.String()
	}
	return strings.Join(append(out, do), " ")
}

// ParseRule parses one rule: words of the form key=value, in any order. The keys are rank, peer, op
// (send or receive), nth (5, or 5+ for the fifth and all later ones) and do (drop, delay:DURATION,
// fail, cut). Only do is required.
func ParseRule(s string) (Rule, error) {
	r := Every("")
	seen := make(map[string]bool)
	for _, word := range strings.Fields(s) {
		key, value, ok := strings.Cut(word, "=")
		if !ok || seen[key] {
			return Rule{}, fmt.Errorf("fault rule %q: %q: key=value expected, each key once", s, word)
		}
		seen[key] = true
		if err := r.set(key, value); err != nil {
			return Rule{}, fmt.Errorf("fault rule %q: %s: %w", s, key, err)
		}
	}
	return r, r.Validate()
}

func (r *Rule) set(key, value string) (err error) {
	switch key {
	case "rank":
		r.Rank, err = number(value)
	case "peer":
		r.Peer, err = number(value)
	case "op":
		r.Op = Op(value)
	case "nth":
		value, r.Onward = strings.CutSuffix(value, "+")
		r.Nth, err = number(value)
	case "do":
		do, duration, timed := strings.Cut(value, ":")
		r.Do = Action(do)
		if timed {
			r.For, err = time.ParseDuration(duration)
		}
	default:
		err = errors.New("unknown; the keys are rank, peer, op, nth and do")
	}
	return err
}

func number(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number of 0 or more", s)
	}
	return int(n), nil
}

// ParseRules parses rules separated by semicolons or line ends.
func ParseRules(s string) ([]Rule, error) {
	var rules []Rule
	var faults []error
	for _, part := range strings.FieldsFunc(s, func(c rune) bool { return c == ';' || c == '\n' }) {
		if strings.TrimSpace(part) == "" {
			continue
		}
		r, err := ParseRule(part)
		rules, faults = append(rules, r), append(faults, err)
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return rules, nil
}
