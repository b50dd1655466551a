package cluster_test

import (
	"fmt"
	"time"

	"github.com/ringo-ml/ringo/internal/cluster"
)

// Ranks 1 and 2 wait, one for the other, and all for rank 0, which is still evaluating.
func ExampleFindSlow() {
	ranks := []cluster.Status{
		{Doing: "evaluating"},
		{Waits: true, Peer: 0, For: 7 * time.Second, In: "allreduce 12"},
		{Waits: true, Peer: 1, For: 6 * time.Second, In: "allreduce 12"},
	}
	for _, s := range cluster.FindSlow(ranks, 5*time.Second, time.Minute) {
		fmt.Println(s)
	}
	// Output:
	// rank 0 is slow: ranks 1 and 2 have been waiting for it in allreduce 12 for 7s (evaluating)
}
