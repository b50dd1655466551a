package outcome_test

import (
	"fmt"

	"github.com/ringo-ml/ringo/internal/watch/outcome"
)

// A process is killed, and its peers end because of it: one line tells all.
func ExampleLoss() {
	step := outcome.Place{Where: "in step 412 of epoch 2"}
	fmt.Println(outcome.Loss{
		Who: outcome.Rank(3), How: "killed by signal 9 (SIGKILL)", Rank: 3,
		Others: []outcome.End{
			{Rank: 0, Cause: outcome.Rank(3), Place: step},
			{Rank: 1, Cause: outcome.Rank(3), Place: step},
			{Rank: 2, Cause: outcome.Rank(3), Place: step},
		},
	})
	// Output:
	// rank 3 is lost: killed by signal 9 (SIGKILL), in step 412 of epoch 2; ranks 0-2 ended because of it
}
