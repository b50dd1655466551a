package main

import (
	"testing"

	"github.com/ringo-ml/ringo/internal/freeport"
)

// A command that another launcher has started more than once is refused with the
// command lines that do what was meant, and a rank placed by hand is not.
func TestStartedByAnotherLauncher(t *testing.T) {
	t.Setenv("OMPI_COMM_WORLD_SIZE", "2")
	t.Setenv("OMPI_COMM_WORLD_RANK", "1")
	for line, want := range map[string]string{
		"train mnist --data synthetic --epochs 3":        "`ringo train --data=synthetic --epochs=3 --np=2 mnist`; or",
		"train mnist --data synthetic --np 4":            "sh -c 'exec ringo train --data=synthetic mnist --np=2 --rank=$OMPI_COMM_WORLD_RANK --rendezvous=HOST:4000'`",
		"train mnist --data synthetic --transport mem":   "OMPI_COMM_WORLD_SIZE=2: mpirun",
		"run -- ./trainer --epochs 3":                    "`ringo run --np=2 -- ./trainer --epochs 3`. If",
		"run --np 3 --servers 1 -- ./trainer --epochs 3": "`ringo run --np=3 --servers=1 -- ./trainer --epochs 3`. If",
		"bench allreduce --floats 10":                    "`ringo bench allreduce --floats=10 --np=2`; or",
		"bench step mnist":                               "env -u OMPI_COMM_WORLD_SIZE",
		"bench gemm":                                     "without mpirun: `ringo bench gemm`. If",
		"train mnist --data synthetic --checkpoint /d":   "--checkpoint=/d",
	} {
		checkRefused(t, exitUsage, line, want)
	}
	address, ticket := freeport.Address(t), ticket()
	zero, one := byHand(t, "train mlp "+small, "0", address, ticket), byHand(t, "train mlp "+small, "1", address, ticket)
	zero.checkEnd(0)
	one.checkEnd(0)
}
