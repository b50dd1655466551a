//go:build !linux

package wal

// diskChildren are for tests of full disks, which are there on Linux.
func diskChildren() map[string]func(dir string) error { return nil }
