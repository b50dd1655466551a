package checkpoint_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/internal/setting"
)

// A run saves its parameters, and another one goes on from there.
func Example() {
	dir, err := os.MkdirTemp("", "run")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)

	_, err = checkpoint.Latest(dir)
	fmt.Println("new run:", errors.Is(err, checkpoint.ErrNone))
	path, err := checkpoint.Save(dir, checkpoint.State{
		Header: checkpoint.Header{Model: "line", Step: 250, Settings: setting.Values{"training.lr": "0.1"}},
		Arrays: []checkpoint.Array{
			checkpoint.Floats("params", []float32{0.5, -2}),
			checkpoint.Words("rng", []uint64{42}),
		},
		Keep: checkpoint.DefaultKeep,
	})
	fmt.Println(filepath.Base(path), err)

	path, err = checkpoint.Latest(dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	file, err := checkpoint.Load(path)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer file.Close()
	params, rng := make([]float32, 2), make([]uint64, 1)
	err = file.Read(checkpoint.Floats("params", params), checkpoint.Words("rng", rng))
	fmt.Println(file.Header.Model, file.Header.Step, file.Header.Settings["training.lr"], params, rng, err)
	// Output:
	// new run: true
	// step-000000250.ringo <nil>
	// line 250 0.1 [0.5 -2] [42] <nil>
}
