package optim_test

import (
	"fmt"

	"github.com/ringo-ml/ringo/optim"
)

// An optimizer changes any part of the parameters as soon as its gradients are there: here two buckets, one after the other.
func ExampleSGD() {
	sgd := &optim.SGD{LR: 0.5, Momentum: 0.5}
	params, grads := []float32{1, 2, 3, 4}, []float32{1, 1, 2, 2}
	if err := sgd.Bind(len(params)); err != nil {
		fmt.Println(err)
		return
	}
	for range 2 {
		sgd.BeginStep()
		sgd.Update(2, params[2:], grads[2:], 1)
		sgd.Update(0, params[:2], grads[:2], 1)
		fmt.Println(params)
	}
	// Output:
	// [0.5 1.5 2 3]
	// [-0.25 0.75 0.5 1.5]
}

// Parts of the parameters learn at rates of their own: here the last two ten times as fast.
func ExampleNewGrouped() {
	opt, err := optim.NewGrouped(&optim.SGD{LR: 0.125}, []optim.Rate{{Lo: 2, Hi: 4, Factor: 10}})
	if err != nil {
		fmt.Println(err)
		return
	}
	params := make([]float32, 4)
	if err := opt.Bind(len(params)); err != nil {
		fmt.Println(err)
		return
	}
	opt.BeginStep()
	opt.Update(0, params, []float32{1, 1, 1, 1}, 1)
	fmt.Println(params)
	// Output:
	// [-0.125 -0.125 -1.25 -1.25]
}
