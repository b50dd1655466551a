package failure

import (
	"fmt"
	"slices"
	"strings"
)

// Exit is the end of one member of a job, as reported by the member.
type Exit struct {
	Rank   int      `json:"rank"`   // number in the mesh
	Cause  string   `json:"cause"`  // Name of the LostProcess that caused the end; "" for an error of the member itself
	Reason string   `json:"reason"` // member's error
	Place  Position `json:"place"`
	// Stopped reports whether the member was asked to end, instead of failing.
	Stopped bool `json:"stopped"`
}

func (e Exit) called() string { return Rank(e.Rank) }

// Fault returns the member's error, after the lost process that caused the end, if any.
func (e Exit) Fault() string {
	if e.Cause == "" || strings.Contains(e.Reason, e.Cause) {
		return e.Reason
	}
	return Lost(e.Cause, e.Reason)
}

// Rank returns the name of a member of the mesh.
func Rank(rank int) string { return fmt.Sprintf("rank %d", rank) }

// Lost returns the beginning of a text about a lost process: "rank 3 is lost: exit status 3", or
// "rank 3 ended early: …" for a reason of Early.
func Lost(who, how string) string {
	if strings.HasPrefix(how, early) {
		return who + " " + how
	}
	return fmt.Sprintf("%s is lost: %s", who, how)
}

// early is the prefix of all reasons of Early.
const early = "ended early"

// Early returns the reason of a rank that ended without an error while other ranks still needed the
// rank. how is the rank's end: "it left the job after allreduce 98". by is a waiting rank and in
// that rank's operation; "" means unknown.
func Early(how, by, in string) string {
	how = early + ": " + how
	if by == "" {
		return how
	}
	how += ", but " + by + " waits for it"
	if in != "" {
		how += " in " + in
	}
	return how + ": all ranks must start the same operations"
}

// ParameterServer is the noun for a parameter server, before its number.
const ParameterServer = "parameter server"

// LostProcess describes the end of a job because of a lost process.
type LostProcess struct {
	Name   string   // "rank 3", "parameter server 0"
	Host   string   // host, in a multi-host job; otherwise ""
	Status string   // "killed by signal 9 (SIGKILL)", "exit status 3", "no sign of life for 10s"
	Failed string   // error reported by the process, or ""
	Tail   []string // last lines of output
	Quoted bool     // Tail is known: an empty Tail means no output

	Rank     int    // number in the mesh, -1 outside
	Ranks    int    // members below this number are ranks, the rest servers; 0: all are ranks
	Affected []Exit // ends of other members, at most one per member
}

// String returns the whole description on one line, with the lost process's last lines after it:
//
//	rank 3 is lost: killed by signal 9 (SIGKILL), in step 412 of epoch 2, bucket 3 (conv1.weight
//	… fc.bias); ranks 0-2 and 4-63 ended because of it; it wrote nothing
//
// Errors seen differently by some ranks appear once per difference, with their ranks.
func (l LostProcess) String() string {
	var echoes, same, own []Exit
	for _, e := range l.Affected {
		switch cause := l.cause(e); {
		case cause == l.Name:
			echoes = append(echoes, e)
		case l.Failed != "" && e.Reason == l.Failed:
			same = append(same, e)
		case l.quotedBy(e):
			echoes = append(echoes, e)
		default:
			own = append(own, e)
		}
	}
	parts := []string{l.head(same, echoes)}
	if len(echoes) > 0 {
		parts = append(parts, l.because(echoes))
	}
	for _, g := range groups(own, func(e Exit) string { return oneLine(e.Reason) }) {
		parts = append(parts, fmt.Sprintf("%s failed: %s", l.members(g.ends), g.key))
	}
	return strings.Join(parts, "; ") + l.lastLines()
}

// quotedBy reports whether a member's error repeats the error of the lost process, as after a
// server that cannot start, which sends its error to each rank. It ignores a package name before
// the error.
func (l LostProcess) quotedBy(e Exit) bool {
	_, fault, prefixed := strings.Cut(l.Failed, ": ")
	if !prefixed {
		fault = l.Failed
	}
	return len(fault) >= leastQuote && strings.Contains(e.Reason, fault)
}

// leastQuote is the minimum length of an error for a repetition to be no coincidence.
const leastQuote = 20

// cause returns the lost process that made a member end, directly or by way of other members.
func (l LostProcess) cause(e Exit) string {
	for range l.Affected {
		i := slices.IndexFunc(l.Affected, func(o Exit) bool { return o.called() == e.Cause && o.Cause != "" })
		if i < 0 || e.Cause == l.Name {
			break
		}
		e = l.Affected[i]
	}
	return e.Cause
}

func (l LostProcess) on() string {
	if l.Host == "" {
		return ""
	}
	return " on " + l.Host
}

// head names the lost process and, if equal for all, the position.
func (l LostProcess) head(same, echoes []Exit) string {
	if l.Failed != "" {
		who := l.Name + l.on()
		if len(same) > 0 {
			who = l.members(append(same, Exit{Rank: l.Rank}))
		}
		how := ""
		if l.Status != "" {
			how = ", then " + l.Status
		}
		return fmt.Sprintf("%s failed: %s%s", who, oneLine(l.Failed), how)
	}
	return At(Lost(l.Name+l.on(), l.Status), shared(echoes))
}

// because lists the processes that ended as a consequence, with their positions if different.
func (l LostProcess) because(echoes []Exit) string {
	text := l.members(echoes) + " ended because of it"
	common := shared(echoes)
	if l.Failed != "" {
		common = Position{}
	}
	var at []string
	for _, g := range groups(echoes, func(e Exit) string { return e.Place.beyond(common) }) {
		if g.key != "" {
			at = append(at, l.members(g.ends)+" "+g.key)
		}
	}
	switch {
	case len(at) == 0:
		return text
	case len(at) == 1 && at[0] == l.members(echoes)+" "+echoes[0].Place.beyond(common):
		return text + " " + echoes[0].Place.beyond(common)
	}
	return text + ": " + strings.Join(at, ", ")
}

func shared(ends []Exit) Position {
	var p Position
	for _, e := range ends {
		switch {
		case e.Place == Position{}:
		case p == Position{}:
			p = e.Place
		case e.Place.Where != p.Where:
			return Position{}
		case e.Place.Bucket != p.Bucket:
			p.Bucket = ""
			return onlyWhere(p, ends)
		}
	}
	return p
}

// onlyWhere returns p if all ends with a position are in the same step.
func onlyWhere(p Position, ends []Exit) Position {
	for _, e := range ends {
		if e.Place != (Position{}) && e.Place.Where != p.Where {
			return Position{}
		}
	}
	return p
}

// beyond returns the parts of p that differ from common.
func (p Position) beyond(common Position) string {
	if p.Where == common.Where {
		p.Where = ""
	}
	if p.Bucket == common.Bucket {
		p.Bucket = ""
	}
	return p.String()
}

// group is a set of ends of members with the same key.
type group struct {
	key  string
	ends []Exit
}

// groups groups ends by a key, in the order of first appearance.
func groups(ends []Exit, key func(Exit) string) (out []group) {
	for _, e := range ends {
		k := key(e)
		i := slices.IndexFunc(out, func(g group) bool { return g.key == k })
		if i < 0 {
			i, out = len(out), append(out, group{key: k})
		}
		out[i].ends = append(out[i].ends, e)
	}
	return out
}

// members formats ends: "rank 1", "ranks 0-2 and 4-63", "rank 0 and server 1".
func (l LostProcess) members(ends []Exit) string {
	var ranks, servers []int
	for _, e := range ends {
		if l.Ranks > 0 && e.Rank >= l.Ranks {
			servers = append(servers, e.Rank-l.Ranks)
		} else {
			ranks = append(ranks, e.Rank)
		}
	}
	var out []string
	for _, part := range []string{list("rank", ranks), list("server", servers)} {
		if part != "" {
			out = append(out, part)
		}
	}
	return strings.Join(out, " and ")
}

// list formats numbers, with neighbours as FIRST-LAST: "rank 1", "ranks 0-2, 5 and 7-9".
func list(noun string, numbers []int) string {
	numbers = slices.Compact(slices.Sorted(slices.Values(numbers)))
	if len(numbers) == 0 {
		return ""
	}
	var runs []string
	for first := 0; first < len(numbers); {
		last := first
		for last+1 < len(numbers) && numbers[last+1] == numbers[last]+1 {
			last++
		}
		switch last - first {
		case 0:
			runs = append(runs, fmt.Sprint(numbers[first]))
		case 1:
			runs = append(runs, fmt.Sprint(numbers[first]), fmt.Sprint(numbers[last]))
		default:
			runs = append(runs, fmt.Sprintf("%d-%d", numbers[first], numbers[last]))
		}
		first = last + 1
	}
	if len(numbers) > 1 {
		noun += "s"
	}
	if n := len(runs) - 1; n > 0 {
		return noun + " " + strings.Join(runs[:n], ", ") + " and " + runs[n]
	}
	return noun + " " + runs[0]
}

// lastLines quotes the last lines, indented, unless an error was reported.
func (l LostProcess) lastLines() string {
	switch {
	case !l.Quoted || l.Failed != "":
		return ""
	case len(l.Tail) == 0:
		return "; it wrote nothing"
	}
	return "; its last lines:\n  " + strings.Join(l.Tail, "\n  ")
}
