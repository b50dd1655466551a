package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// holdProgram keeps what is used of this program's own file in memory. A job whose rows come
// from SSD reads so many pages that the system lets go of the program's where memory is short, and then
// brings back up to several MiB for one of them. It is a hint: the system may allow less to be kept
// (ulimit -l).
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

// addresses are a range of them.
type addresses struct{ from, to uintptr }

// constantParts is where a file is mapped that cannot be written: its code and constants. All
// processes have them in common. Other parts are memory of each process.
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
