package weights_test

import (
	"bytes"
	"fmt"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/weights"
)

// A convolution's weights are written with PyTorch's layout, and what was written is put into another model, whose head stays as it is.
func ExampleModel_Fit() {
	ps := nn.NewParams(1)
	conv := ps.Conv2D("conv", 3, 8, 5)
	x := nn.NewTensor(1, 9, 9, 3)
	nodes, err := nn.Trace(func(t *nn.Tape) { t.Conv2D(x, conv, nn.Conv{}) })
	if err != nil {
		fmt.Println(err)
		return
	}
	var file bytes.Buffer
	if err := weights.Write(&file, weights.Of(ps, nodes, nil).Take(), nil); err != nil {
		fmt.Println(err)
		return
	}
	read, err := weights.NewFile("model.safetensors", bytes.NewReader(file.Bytes()), int64(file.Len()))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, info := range read.Tensors() {
		fmt.Println(info.Name, info.Type, info.Shape)
	}
	other := nn.NewParams(2)
	layer := other.Conv2D("conv", 3, 8, 5)
	other.Dense("head", 8, 2)
	nodes, err = nn.Trace(func(t *nn.Tape) { t.Conv2D(x, layer, nn.Conv{}) })
	if err != nil {
		fmt.Println(err)
		return
	}
	fit, err := weights.Of(other, nodes, nil).Fit(read.Tensors(), nil)
	fmt.Println("taken", fit.Taken, "left", fit.Unmatched, err)
	fmt.Println(fit.Put(read.Read), layer.W.Data[7] == conv.W.Data[7])
	// Output:
	// conv.bias F32 [8]
	// conv.weight F32 [8 3 5 5]
	// taken [conv.bias conv.weight] left [head.bias head.weight] <nil>
	// <nil> true
}
