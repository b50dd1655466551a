package cluster

import (
	"slices"
	"time"

	"github.com/ringo-ml/ringo/internal/watch/failure"
	"github.com/ringo-ml/ringo/transport"
)

// reportKind is the kind of proof of a failure report. Smaller numbers are stronger.
type reportKind int

const (
	proofFailed  reportKind = iota // rank reported a failure of its own
	proofExited                    // launcher saw the process end
	proofLeft                      // rank left in good order while another rank waits for it
	proofSilent                    // no heartbeat for DeadAfter
	proofCut                       // control connection ended before the rank left
	proofSuspect                   // another rank cannot reach the rank
)

// Times for which a report waits for stronger reports. A killed process closes its connections
// before the launcher reads the exit status and last lines, and a rank that blames its neighbour
// may see only the consequence of a loss elsewhere.
const (
	settleDisconnect = 700 * time.Millisecond
	settleSuspect    = 2 * time.Second
)

// failureReport is an accusation of a rank.
type failureReport struct {
	proof reportKind
	rank  int // accused rank
	by    int // accusing rank; -1: coordinator or launcher
	why   string
	at    time.Time
	late  bool // an operation with the rank has timed out

	in string // operation of by that failed because the accused has left; "" for another reason
}

// decideLost chooses the lost rank: the strongest of the reports that have waited long enough, and
// the first of equals. Without such a report ok is false, and again is the time to call decideLost
// again (zero: at the next report).
//
// A rank that ends after blaming another ends as a consequence: its accusation counts, not its end.
func decideLost(all []failureReport, now time.Time) (lost transport.LostError, again time.Time, ok bool) {
	best := -1
	for i, e := range all {
		if e.proof.isExit() && accuser(e.rank, all) {
			continue
		}
		ripe := e.at.Add(e.proof.settle())
		if ripe.After(now) {
			if again.IsZero() || ripe.Before(again) {
				again = ripe
			}
			continue
		}
		if best < 0 || e.proof < all[best].proof {
			best = i
		}
	}
	if best < 0 {
		return transport.LostError{}, again, false
	}
	return transport.LostError{Rank: all[best].rank, Reason: all[best].why, Timeout: all[best].late}, time.Time{}, true
}

func (p reportKind) isExit() bool { return p == proofExited || p == proofLeft || p == proofCut }

func (p reportKind) settle() time.Duration {
	switch p {
	case proofSuspect:
		return settleSuspect
	case proofCut:
		return settleDisconnect
	}
	return 0
}

// left makes a suspicion a proof of leaving early, after operation last, if its accuser saw that.
func (e *failureReport) left(last string) {
	if e.proof == proofSuspect && e.in != "" {
		after := ""
		if last != "" {
			after = " after " + last
		}
		e.proof, e.why = proofLeft, failure.Early("it left the job"+after, failure.Rank(e.by), e.in)
	}
}

func accuser(rank int, all []failureReport) bool {
	return slices.ContainsFunc(all, func(e failureReport) bool { return e.by == rank && e.rank != rank })
}
