package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestConstantParts(t *testing.T) {
	const maps = `00400000-00402000 r--p 00000000 fd:00 3801 /opt/a b/ringo
00402000-010eb000 r-xp 00002000 fd:00 3801                               /opt/a b/ringo
01e0b000-01eb8000 rw-p 01a0a000 fd:00 3801                               /opt/a b/ringo
01eb8000-03f05000 rw-p 00000000 00:00 0                                  [heap]
7f1ec0000000-7f1ec0021000 rw-p 00000000 00:00 0 
7f1f20014000-7f1f2016a000 r-xp 00028000 fd:00 99                         /usr/lib/libc.so.6
7f1f20200000-7f1f20300000 r--p 00000000 fd:00 77                         /opt/a b/ringo.old
`
	want := []addresses{{0x400000, 0x402000}, {0x402000, 0x10eb000}}
	if got := constantParts(maps, "/opt/a b/ringo"); !slices.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
}

// What is used of the program stays, and what no process has used takes no memory.
func TestHoldProgram(t *testing.T) {
	if err := holdProgram(); err != nil {
		if errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
			t.Skipf("the system allows no more to be kept: %v", err)
		}
		t.Fatal(err)
	}
	defer unix.Munlockall()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		var kib int64
		if n, _ := fmt.Sscanf(line, "VmLck: %d kB", &kib); n == 1 {
			if kib < 4<<10 {
				t.Errorf("%d KiB are kept", kib)
			}
			return
		}
	}
	t.Error("the system does not say what is kept")
}
