package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/ringo-ml/ringo/internal/launch"
)

// supported says whether processes can be looked at here.
const supported = true

// process is one process of a job.
type process struct {
	PID    int
	Role   string // "rank", "server", or "" for the launcher and the guard
	Number int    // of the rank, or of the server, from 0
	state  byte   // as in /proc/PID/stat
}

func (p process) String() string {
	if p.Role == "" {
		return fmt.Sprintf("%d (launcher or guard, state %c)", p.PID, p.state)
	}
	return fmt.Sprintf("%d (%s %d, state %c)", p.PID, p.Role, p.Number, p.state)
}

// processes returns the living processes of the job.
func (j *job) processes() []process {
	paths, _ := filepath.Glob("/proc/[0-9]*")
	var out []process
	for _, path := range paths {
		pid, _ := strconv.Atoi(filepath.Base(path))
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)) // that of a process that has ended is empty
		if err != nil || !bytes.Contains(env, []byte(j.mark)) {
			continue
		}
		vars := strings.Split(string(env), "\x00")
		if !slices.Contains(vars, j.mark) {
			continue
		}
		if state := stateOf(pid); state != 'Z' && state != 'X' {
			out = append(out, placed(pid, state, vars))
		}
	}
	return out
}

// placed says which process of a job has an environment.
func placed(pid int, state byte, vars []string) process {
	p := process{PID: pid, state: state}
	env := map[string]string{}
	for _, v := range vars {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}
	if index, ok := env[launch.TableVar]; ok {
		p.Role = "server"
		p.Number, _ = strconv.Atoi(index)
	} else if rank, ok := env[launch.RankVar]; ok {
		size, _ := strconv.Atoi(env[launch.WorldSizeVar])
		p.Role = "rank"
		if p.Number, _ = strconv.Atoi(rank); p.Number >= size {
			p.Role, p.Number = "server", p.Number-size
		}
	}
	return p
}

func stateOf(pid int) byte {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	at := bytes.LastIndexByte(stat, ')')
	if err != nil || at < 0 || at+2 >= len(stat) {
		return 'X'
	}
	return stat[at+2]
}

// peakMiB is the largest memory of a process and those that it has waited for.
func peakMiB(s *os.ProcessState) int {
	if usage, ok := s.SysUsage().(*syscall.Rusage); ok {
		return int(usage.Maxrss >> 10)
	}
	return 0
}

// descriptors counts the open files of a process.
func descriptors(pid int) int {
	entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return len(entries)
}

// listening returns the TCP ports at which a process listens.
func listening(pid int) []int {
	inodes := map[string]bool{}
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, l := range links {
		if to, err := os.Readlink(l); err == nil && strings.HasPrefix(to, "socket:[") {
			inodes[strings.TrimSuffix(strings.TrimPrefix(to, "socket:["), "]")] = true
		}
	}
	var out []int
	for _, table := range []string{"tcp", "tcp6"} {
		f, err := os.Open(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		if err != nil {
			continue
		}
		for scan := bufio.NewScanner(f); scan.Scan(); {
			if port := listeningPort(scan.Text(), inodes); port > 0 {
				out = append(out, port)
			}
		}
		f.Close()
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// listeningPort is the port of a line of /proc/net/tcp that listens by one of the sockets, or 0.
func listeningPort(text string, inodes map[string]bool) int {
	fields := strings.Fields(text)
	const listen = "0A"
	if len(fields) < 10 || fields[3] != listen || !inodes[fields[9]] {
		return 0
	}
	_, hex, _ := strings.Cut(fields[1], ":")
	port, _ := strconv.ParseUint(hex, 16, 16)
	return int(port)
}

// makeFIFO makes a named pipe.
func makeFIFO(path string) error { return syscall.Mkfifo(path, 0o644) }
