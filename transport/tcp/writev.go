//go:build !race || !linux

package tcp

import "golang.org/x/sys/unix"

// writev is writev(2).
func writev(fd int, v [][]byte) (int, error) { return unix.Writev(fd, v) }
