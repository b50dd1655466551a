package cluster

import (
	"time"

	"github.com/ringo-ml/ringo/internal/watch/failure"
	"github.com/ringo-ml/ringo/transport"
)

// reportKind is what an accusation rests on. A stronger one is a smaller number.
type reportKind int

const (
	proofFailed  reportKind = iota // the rank itself said that it failed
	proofExited                    // the launcher saw its process end
	proofLeft                      // it left in good order, and another rank waits for it
	proofSilent                    // no heartbeat for DeadAfter
	proofCut                       // its control connection ended before it left
	proofSuspect                   // another rank cannot reach it
)

// How long an accusation waits for a stronger one. A killed process closes its
// connections before the launcher has read its status and last words; and a
// rank that blames its neighbour may only see the echo of a loss further on.
const (
	settleDisconnect = 700 * time.Millisecond
	settleSuspect    = 2 * time.Second
)

// failureReport is one accusation of a rank.
type failureReport struct {
	proof reportKind
	rank  int // the accused
	by    int // the accusing rank; -1: the coordinator or the launcher
	why   string
	at    time.Time
	late  bool // an operation with it has timed out

	in string // the operation of by that failed because the accused has left; "": there was another reason
}

// decideLost decides who is lost: of the accusations that have waited long enough,
// the strongest, of equals the first. ok is false when none has; again is then
// when to ask next (zero: at the next accusation).
//
// A rank that ends after blaming another is the echo of the other's loss: its
// end proves nothing, its accusation stands.
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

// isExit says that the proof is a process that ended, left or hung up.
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

// left turns a suspicion into proof that the accused left early, after its operation last, if the
// accuser noticed that it left.
func (e *failureReport) left(last string) {
	if e.proof == proofSuspect && e.in != "" {
		after := ""
		if last != "" {
			after = " after " + last
		}
		e.proof, e.why = proofLeft, failure.Early("it left the job"+after, failure.Rank(e.by), e.in)
	}
}

// accuser says whether rank has accused another rank.
func accuser(rank int, all []failureReport) bool {
	for _, e := range all {
		if e.by == rank && e.rank != rank {
			return true
		}
	}
	return false
}
