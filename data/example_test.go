package data_test

import (
	"fmt"

	"github.com/ringo-ml/ringo/data"
)

// Samples of one's own, shared out among two ranks: this one is rank 0, which sees half of them in each epoch, in an order that seed and
// epoch decide.
func ExampleFromSlice() {
	days := []float64{10, 12, 9, 14, 13, 11, 15, 8}
	src, err := data.FromSlice(days, data.Shape{Values: []int{1}, Labels: 1}, func(day float64, s data.Sample) error {
		if s.Values[0] = float32(day); day > 11 {
			s.Labels[0] = 1 // warm
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	sampler, err := data.NewSampler(data.SamplerConfig{N: src.Len(), Batch: 2, Rank: 0, Size: 2, Seed: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	loader, err := data.NewLoader(data.LoaderConfig{Source: src, Sampler: sampler})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer loader.Close()
	loader.Start(1)
	for range loader.Steps() {
		b, _, err := loader.Next()
		fmt.Println(b.N, "samples:", b.Values, b.Labels, err)
	}
	// Output:
	// 2 samples: [13 10] [1 0] <nil>
	// 2 samples: [9 14] [0 1] <nil>
}

// A share of the samples is held out by a hash of each one's number: the same ones each time, whatever their number is.
func ExampleSplit() {
	all := data.Batch{N: 1000, Values: make([]float32, 1000)}
	src, err := data.FromBatch(data.Shape{Values: []int{1}}, all)
	if err != nil {
		fmt.Println(err)
		return
	}
	train, eval, err := data.Split(src, 0.1)
	fmt.Println(train.Len(), "to train on,", eval.Len(), "held out,", err)
	// Output:
	// 887 to train on, 113 held out, <nil>
}

// Samples are normalised whenever they are seen, and changed at random, by functions of the package and of one's own, when they are
// trained on. The same seed, epoch and sample give the same values, whatever the number of threads.
func ExampleTransformed() {
	images := data.Batch{N: 1, Values: []float32{0, 51, 102, 153, 204, 255}}
	src, err := data.FromBatch(data.Shape{Values: []int{2, 3, 1}}, images) // height, width, channels
	if err != nil {
		fmt.Println(err)
		return
	}
	brighter := func(s data.Sample, _ data.Shape, r *data.Random) error {
		if r == nil { // it is evaluated
			return nil
		}
		by := float32(r.IntN(3)) * 10
		for i := range s.Values {
			s.Values[i] += by
		}
		return nil
	}
	src = data.Transformed(src, brighter, data.RandomCrop(1), data.RandomFlip(), data.Normalise([]float32{0}, []float32{51}))
	var b data.Batch
	for _, draw := range []data.Draw{{}, {Seed: 1, Epoch: 1, Augment: true}, {Seed: 1, Epoch: 2, Augment: true}} {
		if err := src.Fill(&b, []int32{0}, draw); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%.1f\n", b.Values)
	}
	// Output:
	// [0.0 1.0 2.0 3.0 4.0 5.0]
	// [0.0 5.0 4.0 0.0 0.0 0.0]
	// [0.0 0.0 0.0 0.0 0.4 1.4]
}
