package schedule_test

import (
	"fmt"

	"github.com/ringo-ml/ringo/optim/schedule"
)

// A warm-up over one epoch of five steps, then a drop after two.
func ExampleSchedule() {
	drops, err := schedule.ParseDrops("2:0.01")
	if err != nil {
		fmt.Println(err)
		return
	}
	s := schedule.Schedule{LR: 0.1, Drops: drops, Warmup: schedule.Warmup{Epochs: 1}}
	fmt.Println(s)
	for _, step := range []int{0, 4, 9, 10} {
		fmt.Printf("%d: %.3g\n", step, s.At(step, 5, 3))
	}
	// Output:
	// 0.1, 0.01 from epoch 2, warm-up 1 epoch
	// 0: 0.02
	// 4: 0.1
	// 9: 0.1
	// 10: 0.01
}
