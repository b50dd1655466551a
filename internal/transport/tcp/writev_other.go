//go:build !linux

package tcp

import "golang.org/x/sys/unix"

func writev(fd int, v [][]byte) (int, error) { return unix.Writev(fd, v) }

func readv(fd int, v [][]byte) (int, error) { return unix.Readv(fd, v) }
