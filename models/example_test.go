package models_test

import (
	"fmt"
	"strings"

	"github.com/ringo-ml/ringo/models"
)

// A model of the zoo says what it is trained with, and how its parameters are called in PyTorch.
func ExampleLookup() {
	spec, err := models.Lookup("resnet50")
	fmt.Println(spec.Input, spec.Defaults.Optimizer, spec.PyTorch("block1.1.conv1.weight"), err)
	_, err = models.Lookup("resnet-5")
	fmt.Println(strings.Split(err.Error(), ": ")[1])
	// Output:
	// [224 224 3] sgd layer1.0.conv1.weight <nil>
	// unknown model "resnet-5" (did you mean "resnet50"?)
}
