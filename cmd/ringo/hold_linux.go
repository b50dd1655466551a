package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// holdProgram locks used pages of this program's code and constants in memory. A job with rows on
// SSD reads so many pages that the system drops program pages if memory is short, and then reads up
// to several MiB to restore a page. Errors are harmless: the system may limit locked memory (ulimit
// -l).
func holdProgram() error {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return err
	}
	for _, p := range constantParts(string(maps), exe) {
		if _, _, e := unix.Syscall(unix.SYS_MLOCK2, p.from, p.to-p.from, unix.MLOCK_ONFAULT); e != 0 {
			return e
		}
	}
	return nil
}

type addresses struct{ from, to uintptr }

// constantParts returns the read-only mappings of a file: code and constants, which all processes
// share.
func constantParts(maps, path string) (out []addresses) {
	for line := range strings.Lines(maps) {
		var a addresses
		var may, offset, device string
		var inode uint64
		n, _ := fmt.Sscanf(line, "%x-%x %s %s %s %d", &a.from, &a.to, &may, &offset, &device, &inode)
		_, name, ok := strings.Cut(line, "/")
		if n == 6 && ok && "/"+strings.TrimSuffix(name, "\n") == path && may[1] != 'w' {
			out = append(out, a)
		}
	}
	return out
}
