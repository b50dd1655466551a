package wal_test

import (
	"fmt"
	"os"

	"github.com/ringo-ml/ringo/internal/server/wal"
)

// A record is safe when Wait has answered for it, and is there again when the log is opened.
func Example() {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	log, err := wal.Open(dir, wal.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, push := range []string{"first", "second"} {
		at, err := log.Append([]byte(push))
		if err == nil {
			err = log.Wait(at)
		}
		fmt.Println(push, err)
	}
	fmt.Println(log.Close())

	if log, err = wal.Open(dir, wal.Config{}); err != nil {
		fmt.Println(err)
		return
	}
	defer log.Close()
	err = log.Replay(1, func(number uint64, record []byte) error {
		fmt.Println(number, string(record))
		return nil
	})
	fmt.Println(err)
	// Output:
	// first <nil>
	// second <nil>
	// <nil>
	// 1 first
	// 2 second
	// <nil>
}
