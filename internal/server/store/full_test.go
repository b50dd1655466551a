package store

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// The test binary is also the process with a small disk: STORE_DIR is where.
func TestMain(m *testing.M) {
	if dir := os.Getenv("STORE_DIR"); dir != "" {
		if err := onSmallDisk(dir); err != nil {
			fmt.Println("child:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func child(dir string) *exec.Cmd {
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), "STORE_DIR="+dir)
	return c
}

func onSmallDisk(dir string) error {
	if err := mountSmall(dir, "8m"); err != nil {
		return err
	}
	ballast := filepath.Join(dir, "ballast")
	fill := func(n int) error { return os.WriteFile(ballast, make([]byte, n), 0o666) }
	return segmentsThenRoom(filepath.Join(dir, "segments"), fill, func() error { return os.Remove(ballast) })
}

// segmentsThenRoom fills a disk with segments, half of whose rows are replaced all the time, and
// goes on when there is room.
func segmentsThenRoom(dir string, fill func(n int) error, room func() error) error {
	s, err := OpenSegments(dir, 0)
	if err != nil {
		return err
	}
	var rows Rows
	put := func(first uint64) error {
		rows.Reset()
		for k := range uint64(200) {
			key := k % 100
			if k >= 100 {
				key = first*100 + k
			}
			rows.Add(key, []byte(strings.Repeat(string(rune('a'+first%26)), 500)))
		}
		return s.Put(1, &rows)
	}
	if err := fill(3 << 20); err != nil {
		return err
	}
	n := uint64(0)
	for ; err == nil && n < 1000; n++ {
		err = put(n)
	}
	if !errors.Is(err, syscall.ENOSPC) || n < 3 || !strings.Contains(err.Error(), "rows put before are safe") {
		return fmt.Errorf("%d puts into segments, then %v", n, err)
	}
	check := func(last uint64) error {
		var found Rows
		err := s.Get(1, []uint64{0, 99, last*100 + 199}, &found)
		if err == nil && (found.Len() != 3 || found.Row(0)[0] != byte('a'+last%26) || s.Table(1).Rows != int64(last+2)*100) {
			err = fmt.Errorf("%d rows, %d found", s.Table(1).Rows, found.Len())
		}
		if err != nil {
			return fmt.Errorf("after put %d of segments: %w", last, err)
		}
		return nil
	}
	if err := check(n - 2); err != nil {
		return err
	}
	if err := errors.Join(room(), put(n-1), check(n-1)); err != nil {
		return fmt.Errorf("with room again: %w", err)
	}
	return s.Close()
}
