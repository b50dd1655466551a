package schema_test

import (
	"fmt"

	"github.com/ringo-ml/ringo/ps/schema"
)

// A schema says what servers keep; who keeps what of it follows from it and their number alone.
func Example() {
	s := schema.Schema{
		Sparse: []schema.Sparse{{Name: "items", Dim: 16, Rule: schema.Rule{Name: "adagrad", LR: 0.1}, Init: schema.Init{Name: "uniform", Value: 0.01}}},
		Dense:  []schema.Dense{{Name: "net", Len: 1000, Rule: schema.Rule{Name: "sgd", LR: 0.1}}},
	}
	fmt.Println(s.Validate())
	for server := range 3 {
		lo, hi := schema.Cut(s.Dense[0].Len, 3, server)
		fmt.Printf("server %d has values %d to %d\n", server, lo, hi)
	}
	fmt.Println("key 7 is server", schema.Owner(7, 3))
	s.Sparse[0].Dim = 0
	fmt.Println(s.Validate())
	// Output:
	// <nil>
	// server 0 has values 0 to 336
	// server 1 has values 336 to 672
	// server 2 has values 672 to 1000
	// key 7 is server 1
	// schema: table "items": rows of 0 weights: want 1 to 65536
}
