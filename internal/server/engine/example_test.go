package engine_test

import (
	"context"
	"fmt"

	"github.com/ringo-ml/ringo/internal/server/engine"
	"github.com/ringo-ml/ringo/internal/server/rows"
	"github.com/ringo-ml/ringo/ps/schema"
)

// Two trainers push the gradient of one row in a step; the mean is applied when both have
// clocked it.
func Example() {
	s := schema.Schema{Sparse: []schema.Sparse{{Name: "items", Dim: 2, Rule: schema.Rule{Name: "sgd", LR: 1}}}}
	e, err := engine.Open(engine.Config{Trainers: 2, Mode: engine.BSP, Durability: engine.None}, s)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer e.Close()
	for session := range 2 {
		if _, err := e.PushRows(session, 1, 0, 1, []uint64{42}, []float32{float32(session), 4}); err != nil {
			fmt.Println(err)
		}
		if _, err := e.Clock(session, 2, 1, -1); err != nil {
			fmt.Println(err)
		}
	}
	row := make([]float32, 2)
	if err := e.Await(context.Background(), 0, 2); err != nil {
		fmt.Println(err)
	}
	if err := e.PullRows(rows.PullID{}, 0, []uint64{42}, row); err != nil {
		fmt.Println(err)
	}
	fmt.Println(row)
	// Output: [-0.5 -4]
}
