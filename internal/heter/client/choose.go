package client

import "time"

// load is what a trainer knows of one heter-trainer.
type load struct {
	// full says that it has no room for more; lost, that it is not there.
	full, lost bool
	// under is how many of this trainer's samples are under way there.
	under int
	// each is how long it has taken for a sample lately; 0: it is not known.
	each time.Duration
	// transferTime is how long it takes to lend it the part's parameters, and to collect their
	// gradients; 0: it has them, or its own.
	transferTime time.Duration
}

// choose is which heter-trainer a micro-batch of so many samples goes to: that which will probably be done with it first, so that a
// slow one gets less. Of equal ones it is the one that follows the last one, so that trainers without knowledge deal in turn. It is -1
// where none has room.
func choose(loads []load, last, samples int) int {
	best, least := -1, time.Duration(0)
	for k := range loads {
		i := (last + 1 + k) % len(loads)
		l := loads[i]
		if l.full || l.lost {
			continue
		}
		done := time.Duration(l.under+samples)*max(l.each, 1) + l.transferTime
		if best < 0 || done < least {
			best, least = i, done
		}
	}
	return best
}
