//go:build !linux

package tcp

import "golang.org/x/sys/unix"

// writev is writev(2).
func writev(fd int, v [][]byte) (int, error) { return unix.Writev(fd, v) }

// readv is readv(2).
func readv(fd int, v [][]byte) (int, error) { return unix.Readv(fd, v) }
