package fault_test

import (
	"fmt"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/transport/fault"
	"github.com/ringo-ml/ringo/internal/transport/mem"
)

// Two ranks in memory, of which the second one's first message fails: what a program makes of that is tried without a network.
func ExampleWrap() {
	rules, err := fault.ParseRules("rank=1 op=send nth=1 do=fail")
	if err != nil {
		fmt.Println(err)
		return
	}
	var all sync.WaitGroup
	for rank, mesh := range mem.New(2) {
		all.Go(func() {
			defer mesh.Close()
			group, err := collective.New(fault.Wrap(mesh, rules...), collective.Config{Timeout: time.Minute})
			if err != nil {
				fmt.Println(err)
				return
			}
			defer group.Close()
			err = collective.AllReduce(group, []float32{1}, collective.Sum)
			if rank == 1 {
				fmt.Println(err)
			}
		})
	}
	all.Wait()
	// Output:
	// collective: allreduce 0 on rank 1: rank 1: send to rank 0 (message 0/0/0): injected fault by the rule "rank=1 op=send nth=1 do=fail"
}
