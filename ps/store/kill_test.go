package store

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// The test binary is also the process that is killed: STORE_CHILD says as what.
func TestMain(m *testing.M) {
	child := map[string]func(dir string) error{
		"put":     func(dir string) error { return putForever(dir, false) },
		"put log": func(dir string) error { return putForever(dir, true) },
		"tmpfs":   onSmallDisk,
	}
	if run := child[os.Getenv("STORE_CHILD")]; run != nil {
		if err := run(os.Getenv("STORE_DIR")); err != nil {
			fmt.Println("child:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func child(as, dir string) *exec.Cmd {
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), "STORE_CHILD="+as, "STORE_DIR="+dir)
	return c
}

const (
	killedKeys  = 500 // all of which a Put writes
	killedWidth = 64
)

// putForever writes the same keys again and again, with the number of the Put in
// each row, and says which Puts are done. After each it deletes one more key.
func putForever(dir string, log bool) error {
	d, err := Open(dir, Config{LimitBytes: MinLimitBytes, Log: log})
	if err != nil {
		return err
	}
	var rows Rows
	for n := uint64(1); ; n++ {
		rows.Reset()
		row := make([]byte, killedWidth)
		binary.LittleEndian.PutUint64(row, n)
		for k := range uint64(killedKeys) {
			rows.Add(k, row)
		}
		if err := errors.Join(d.Put(1, &rows), d.Delete(1, []uint64{n % killedKeys}, nil)); err != nil {
			return err
		}
		fmt.Println(n)
	}
}

// A process killed at any moment leaves a store whose rows are those after one of
// its Puts, all of them, and whose sizes are theirs: of the last that was done
// where it keeps a log.
func TestKill(t *testing.T) {
	for _, as := range []string{"put", "put log"} {
		for round := range 2 {
			dir := t.TempDir()
			c := child(as, dir)
			out, err := c.StdoutPipe()
			must(t, err)
			must(t, c.Start())
			done := uint64(0)
			lines := bufio.NewScanner(out)
			for i := 0; lines.Scan(); i++ {
				if _, err := fmt.Sscan(lines.Text(), &done); err != nil {
					t.Fatalf("the child says %q", lines.Text())
				}
				if i == 30+round*23 {
					must(t, c.Process.Kill())
				}
			}
			_ = c.Wait() // killed
			d, err := Open(dir, Config{})
			must(t, err)
			seen, rows := uint64(0), int64(0)
			must(t, d.Iterate(1, func(k uint64, row []byte) error {
				n := binary.LittleEndian.Uint64(row)
				if rows++; seen != 0 && n != seen {
					return fmt.Errorf("key %d is of Put %d, others of %d", k, n, seen)
				}
				seen = n
				return nil
			}))
			if got := d.Table(1); got.Rows != rows || got.Bytes != rows*(killedWidth+KeyBytes) {
				t.Errorf("%s: %+v, but %d rows", as, got, rows)
			}
			if as == "put log" && seen < done || seen > 0 && rows < killedKeys-1 {
				t.Errorf("%s: %d rows of Put %d; %d were done", as, rows, seen, done)
			}
			if as == "put" && seen == 0 {
				t.Errorf("nothing of %d Puts has reached a file", done)
			}
			must(t, d.Close())
		}
	}
}

// fullThenRoom fills a store until the disk is full, and goes on when it is not.
func fullThenRoom(dir string, fill func(n int) error, room func() error) error {
	d, err := Open(dir, Config{LimitBytes: MinLimitBytes})
	if err != nil {
		return err
	}
	var rows Rows
	put := func(first uint64) error {
		rows.Reset()
		for k := range uint64(100) {
			rows.Add(first+k, []byte(strings.Repeat("x", 500)))
		}
		return d.Put(1, &rows)
	}
	if err := errors.Join(put(0), fill(3<<20)); err != nil {
		return err
	}
	n := uint64(1)
	for ; err == nil && n < 1000; n++ {
		err = put(n * 100)
	}
	if !errors.Is(err, syscall.ENOSPC) || n < 3 {
		return fmt.Errorf("%d puts, then %v", n, err)
	}
	if got := d.Table(1).Rows; got != int64(n-1)*100 {
		return fmt.Errorf("%d rows, want %d", got, (n-1)*100)
	}
	if err := errors.Join(room(), put(n*100)); err != nil {
		return fmt.Errorf("with room again: %w", err)
	}
	if err := errors.Join(d.Close(), wants(dir, n*100, n*100)); err != nil {
		return err
	}
	// A disk that somebody else fills, with rows in a buffer: Close says so.
	if d, err = Open(dir, Config{LimitBytes: MinLimitBytes}); err != nil {
		return err
	}
	if err := put(n*100 + 100); err != nil {
		return err
	}
	if err := fill(9 << 20); !errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("filling the disk: %w", err)
	}
	least := n * 100
	switch err := d.Close(); {
	case err == nil: // a file that went in the meantime left room for them
		least += 100
	case !errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("closed with rows for a full disk: %w", err)
	}
	return errors.Join(room(), wants(dir, least, n*100+100))
}

// wants checks how many rows a store has, and that it knows.
func wants(dir string, least, most uint64) error {
	d, err := Open(dir, Config{LimitBytes: MinLimitBytes})
	if err != nil {
		return err
	}
	seen := uint64(0)
	err = d.Iterate(1, func(uint64, []byte) error { seen++; return nil })
	if got := d.Table(1).Rows; err == nil && (seen < least || seen > most || uint64(got) != seen) {
		err = fmt.Errorf("%d rows after all, %d counted, want %d to %d", seen, got, least, most)
	}
	return errors.Join(err, d.Close())
}

func onSmallDisk(dir string) error {
	if err := mountSmall(dir, "8m"); err != nil {
		return err
	}
	ballast := filepath.Join(dir, "ballast")
	fill := func(n int) error { return os.WriteFile(ballast, make([]byte, n), 0o666) }
	room := func() error { return os.Remove(ballast) }
	return errors.Join(
		segmentsThenRoom(filepath.Join(dir, "segments"), fill, room),
		listThenRoom(filepath.Join(dir, "list"), fill, room),
		fullThenRoom(filepath.Join(dir, "store"), fill, room))
}

// listThenRoom has no room for a store's list: it is the one of before, or none.
func listThenRoom(dir string, fill func(n int) error, room func() error) error {
	for _, had := range []bool{false, true} {
		if err := os.MkdirAll(filepath.Join(dir, rowsFolder), 0o777); err != nil {
			return err
		}
		if had {
			if err := writeList(dir); err != nil {
				return err
			}
		}
		if err := fill(9 << 20); !errors.Is(err, syscall.ENOSPC) {
			return fmt.Errorf("filling the disk: %w", err)
		}
		if err := writeList(dir); !errors.Is(err, syscall.ENOSPC) {
			return fmt.Errorf("a list written to a full disk: %v", err)
		}
		if _, err := os.Stat(filepath.Join(dir, listFile)); (err == nil) != had {
			return fmt.Errorf("a list before: %t; after: %v", had, err)
		}
		if err := errors.Join(checkList(dir), room()); err != nil {
			return err
		}
	}
	return nil
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
