//go:build !linux

package main

import (
	"os"
	"syscall"
)

// supported says whether processes can be looked at here.
const supported = false

// process is one process of a job.
type process struct {
	PID    int
	Role   string
	Number int
}

func (p process) String() string    { return p.Role }
func (j *job) processes() []process { return nil }
func peakMiB(*os.ProcessState) int  { return 0 }
func descriptors(int) int           { return 0 }
func listening(int) []int           { return nil }
func makeFIFO(path string) error    { return syscall.Mkfifo(path, 0o644) }
