package export_test

import (
	"bytes"
	"fmt"

	"github.com/ringo-ml/ringo/internal/server/export"
	"github.com/ringo-ml/ringo/internal/server/export/exporttest"
)

// Rows are written for serving, as text for people and as binary for programs.
func Example() {
	rows := func(do func(keys []uint64, weights []float32) error) error {
		return do([]uint64{42, 7}, []float32{0.25, -1.5, 1, 2})
	}
	for _, format := range []export.Format{export.Text, export.Binary} {
		var file bytes.Buffer
		n, err := export.Write(&file, format, 2, rows)
		fmt.Println(n, err)
		if format == export.Text {
			fmt.Print(file.String())
			continue
		}
		_, _, err = exporttest.Read(&file, int64(file.Len()), func(key uint64, weights []float32) error {
			fmt.Println(key, weights)
			return nil
		})
		fmt.Println(err)
	}
	// Output:
	// 2 <nil>
	// 42 0.25 -1.5
	// 7 1 2
	// 2 <nil>
	// 42 [0.25 -1.5]
	// 7 [1 2]
	// <nil>
}
