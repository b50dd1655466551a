package main

import (
	"testing"

	"github.com/ringo-ml/ringo/internal/launch"
)

const synthetic = "train mnist --data synthetic "

// A process that a launcher placed cannot be placed again.
func TestWorkerUsage(t *testing.T) {
	t.Setenv(launch.RankVar, "0")
	checkRefused(t, exitUsage, synthetic+"--rank 0 --np 2 --rendezvous localhost:70", "--rank 0, but RINGO_RANK is set too")
	checkRefused(t, exitUsage, synthetic+"--np 2 --transport mem", "not for a single rank")
	checkRefused(t, exitFailed, synthetic, "RINGO_WORLD_SIZE is not set", "RINGO_RENDEZVOUS is not set", "RINGO_TICKET is not set")
}
