package table_test

import (
	"fmt"
	"io"
	"strings"

	"github.com/ringo-ml/ringo/data/table"
)

// What a table's columns are for is guessed but for what one says; numbers are scaled, and categories counted from 0.
func ExampleInferEncoder() {
	const rows = "area,town,price\n50,Bern,300\n70,Zug,600\n90,Bern,500\n"
	csv, err := table.OpenCSV("houses.csv", func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(rows)), nil })
	if err != nil {
		fmt.Println(err)
		return
	}
	fail := func(err error) error { return err }  // of a bad row
	none := func(row int64) bool { return false } // is held out
	enc, err := table.InferEncoder(csv, table.Options{Target: "price", Schema: table.Schema{"town": table.Category, "price": table.Target}}, none, fail)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(enc)
	var s table.Samples
	if err := enc.Encode(csv, true, 1<<20, func(int64) *table.Samples { return &s }, fail); err != nil {
		fmt.Println(err)
	}
	fmt.Printf("%.2f %v %.2f\n", s.Values, s.IDs, s.Targets)
	// Output:
	// finds the number "price" (mean 466.7, deviation 124.7, which is 1 in all figures); from numbers: area; from categories: town (2)
	// [-1.22 0.00 1.22] [1 2 1] [-1.34 1.07 0.27]
}
