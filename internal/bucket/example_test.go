package bucket_test

import (
	"fmt"

	"github.com/ringo-ml/ringo/internal/bucket"
)

// Three layers: the step's time with a message per layer, and with the best plan.
func Example() {
	s := bucket.Step{
		Layers: []bucket.Param{
			{Name: "output", Offset: 0, Len: 1_500_000},
			{Name: "hidden", Offset: 1_500_000, Len: 250_000},
			{Name: "input", Offset: 1_750_000, Len: 250_000},
		},
		Forward:  0.010,
		Backward: []float64{0.002, 0.007, 0.007},
		Costs: bucket.Costs{Sends: []bucket.Send{{
			Name: "ring", Payload: bucket.Payload{Unit: 4}, Fixed: 0.008, PerByte: 1e-9,
		}}},
	}
	for _, name := range []string{"per-layer", "dlgs-scan", "exact"} {
		planner, err := bucket.LookupPlanner(name)
		if err != nil {
			fmt.Println(err)
			return
		}
		plan := planner.Plan(s)
		t := bucket.Predict(s, plan)
		fmt.Printf("%s: %d groups, %.0f ms, of which %.0f wait for messages\n", name, len(plan), 1e3*t.Total, 1e3*t.Exposed)
	}
	// Output:
	// per-layer: 3 groups, 44 ms, of which 18 wait for messages
	// dlgs-scan: 1 groups, 42 ms, of which 16 wait for messages
	// exact: 2 groups, 36 ms, of which 10 wait for messages
}
