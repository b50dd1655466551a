package client

import "time"

// load is a trainer's view of a heter-trainer.
type load struct {
	// full reports a heter-trainer at its limits; lost, a lost heter-trainer.
	full, lost bool
	// under is the number of this trainer's samples that the heter-trainer has not yet returned.
	under int
	// each is the recent time per sample; 0: unknown.
	each time.Duration
	// transferTime is the time to send parameters and collect gradients; 0: not needed.
	transferTime time.Duration
}

// smooth returns the recent mean of a duration, 0 if there is none, after one more.
func smooth(mean, next time.Duration) time.Duration {
	if mean == 0 {
		return next
	}
	return mean + (next-mean)/4
}

// choose returns the heter-trainer that is expected to finish the micro-batch first. Slow
// heter-trainers therefore get fewer. Among equals home, and then the numbers after it, come first,
// so that without measurements the choice is round-robin. Another heter-trainer than home must need
// less than 1/patience of home's time, and save more time than a separate gradient costs. choose
// returns -1 if all are full or lost.
func choose(loads []load, home, samples int, patience, gradient time.Duration) int {
	best, least := -1, time.Duration(0)
	for k := range loads {
		i := (home + k) % len(loads)
		l := loads[i]
		if l.full || l.lost {
			continue
		}
		done := time.Duration(l.under+samples)*max(l.each, 1) + l.transferTime
		if i == home {
			done = min(done/patience, max(0, done-gradient))
		}
		if best < 0 || done < least {
			best, least = i, done
		}
	}
	return best
}
