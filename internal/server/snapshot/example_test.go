package snapshot_test

import (
	"errors"
	"fmt"
	"os"

	"github.com/ringo-ml/ringo/internal/server/snapshot"
)

// A checkpoint appears whole or not at all.
func Example() {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	for _, commits := range []bool{false, true} {
		d, err := snapshot.Begin(dir, "", 0)
		if err != nil {
			fmt.Println(err)
			return
		}
		w, err := d.Create("rows")
		if err == nil {
			_, err = w.Write([]byte("42 0.25"))
			err = errors.Join(err, w.Close())
		}
		if commits {
			_, err = d.Commit(map[string]int{"step": 500})
		} else {
			d.Abandon()
		}
		numbers, listed := snapshot.Numbers(dir)
		fmt.Println(numbers, err, listed)
	}
	// Output:
	// [] <nil> <nil>
	// [1] <nil> <nil>
}
