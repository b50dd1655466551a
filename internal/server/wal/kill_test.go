package wal

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// The test binary is also the process that is killed: WAL_CHILD says as what.
func TestMain(m *testing.M) {
	child := map[string]func(dir string) error{"append": appendForever}
	maps.Copy(child, diskChildren())
	if run := child[os.Getenv("WAL_CHILD")]; run != nil {
		if err := run(os.Getenv("WAL_DIR")); err != nil {
			fmt.Println("child:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func child(as, dir string) *exec.Cmd {
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), "WAL_CHILD="+as, "WAL_DIR="+dir)
	return c
}

var killed = Config{SegmentBytes: 64 << 10, BufferBytes: 8 << 10}

const appenders = 4

// appendForever appends from several goroutines and says which records were
// acknowledged: appender and count.
func appendForever(dir string) error {
	l, err := Open(dir, killed)
	if err != nil {
		return err
	}
	next, err := counts(l)
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	for a := range appenders {
		all.Go(func() {
			record := make([]byte, 300)
			for n := next[a]; ; n++ {
				binary.LittleEndian.PutUint64(record, uint64(a))
				binary.LittleEndian.PutUint64(record[8:], n)
				p, err := l.Append(record[:16+n*13%280])
				if err == nil {
					err = l.Wait(p)
				}
				if err != nil {
					fmt.Println("child:", err)
					return
				}
				fmt.Printf("%d %d\n", a, n) // a write of its own
			}
		})
	}
	all.Wait()
	return nil
}

// counts returns how many records each appender has in a log, all of them and in
// order.
func counts(l *Log) (next [appenders]uint64, err error) {
	err = l.Replay(0, func(number uint64, r []byte) error {
		if len(r) < 16 || binary.LittleEndian.Uint64(r) >= appenders {
			return fmt.Errorf("record %d is %x", number, r)
		}
		a, n := binary.LittleEndian.Uint64(r), binary.LittleEndian.Uint64(r[8:])
		if n != next[a] || len(r) != 16+int(n*13%280) {
			return fmt.Errorf("record %d of appender %d, %d bytes, where %d belongs", n, a, len(r), next[a])
		}
		next[a]++
		return nil
	})
	return next, err
}

// A process killed at any moment loses nothing that was acknowledged.
// It holds invariant[acknowledged-is-logged].
func TestKill(t *testing.T) {
	dir := t.TempDir()
	var acknowledged [appenders]uint64
	for round := range 4 {
		c := child("append", dir)
		out, err := c.StdoutPipe()
		must(t, err)
		must(t, c.Start())
		lines := bufio.NewScanner(out)
		for i := 0; lines.Scan(); i++ {
			var a, n uint64
			if _, err := fmt.Sscanf(lines.Text(), "%d %d", &a, &n); err != nil || a >= appenders {
				t.Fatalf("the child says %q", lines.Text())
			}
			acknowledged[a] = max(acknowledged[a], n+1)
			if i == 150+round*97 {
				must(t, c.Process.Kill()) // what is in the pipe still counts
			}
		}
		_ = c.Wait() // killed
		told := uint64(0)
		for _, n := range acknowledged {
			told += n
		}
		if e, err := Ends(dir, ""); err != nil || !e.Marked || e.Closed || e.Acknowledged < told || e.Acknowledged > e.Last {
			t.Errorf("round %d: %d records acknowledged: %+v, %v", round, told, e, err)
		}
		l := mustOpen(t, dir, killed)
		has, err := counts(l)
		if err != nil {
			t.Fatal(err)
		}
		for a := range appenders {
			if has[a] < acknowledged[a] {
				t.Errorf("round %d: appender %d: %d records acknowledged, %d kept", round, a, acknowledged[a], has[a])
			}
		}
		mustClose(t, l)
	}
}

// runChild runs a child that checks something by itself. Where it may not have
// what it needs the test is skipped.
func runChild(t *testing.T, c *exec.Cmd) {
	t.Helper()
	out, err := c.CombinedOutput()
	if errors.Is(err, syscall.EPERM) || err != nil && strings.Contains(string(out), "child: cannot") {
		t.Skipf("NOT TESTED: %v %s", err, out)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// untilFull appends and returns how many records were acknowledged before the
// first error.
func untilFull(l *Log) (safe uint64, err error) {
	record := make([]byte, 5000)
	for {
		p, err := l.Append(record)
		if err == nil {
			err = l.Wait(p)
		}
		if err != nil {
			return safe, err
		}
		if safe = p.Number; safe > 1000 {
			return safe, io.ErrShortBuffer
		}
	}
}
