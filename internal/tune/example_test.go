package tune_test

import (
	"fmt"

	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/tune"
)

// A profile is read whole and valid, or all errors are reported together.
func ExampleDecode() {
	measured := tune.Profile{Planner: &bucket.Profile{
		Model: "my-model", Ranks: 2, Batch: 32, Forward: 0.004,
		Layers: []bucket.LayerProfile{{Name: "fc", Values: 1024, Backward: 0.001}},
	}}
	file, err := tune.Encode(measured)
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := tune.Decode(file)
	fmt.Println(p.Planner.Model, p.Planner.Layers[0].Values, err)
	measured.Planner.Layers[0].Backward = -1
	_, err = tune.Encode(measured)
	fmt.Println(err)
	// Output:
	// my-model 1024 <nil>
	// tune: bad profile: bucket: bad profile: layer 0 "fc": backward -1 s: want 0 or more
}
