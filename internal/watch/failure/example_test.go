package failure_test

import (
	"fmt"

	"github.com/ringo-ml/ringo/internal/watch/failure"
)

// A process is killed, and its peers end because of it: one line tells all.
func ExampleLostProcess() {
	step := failure.Position{Where: "in step 412 of epoch 2"}
	fmt.Println(failure.LostProcess{
		Name: failure.Rank(3), Status: "killed by signal 9 (SIGKILL)", Rank: 3,
		Affected: []failure.Exit{
			{Rank: 0, Cause: failure.Rank(3), Place: step},
			{Rank: 1, Cause: failure.Rank(3), Place: step},
			{Rank: 2, Cause: failure.Rank(3), Place: step},
		},
	})
	// Output:
	// rank 3 is lost: killed by signal 9 (SIGKILL), in step 412 of epoch 2; ranks 0-2 ended because of it
}
