// Package cgroup reads the control groups of this process, of version 2 or 1: the limits of
// processors and memory that containers, Slurm and systemd set.
//
// # Limits
//
// A container may see only the container's own groups. Limits of higher groups are then unknown.
package cgroup

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/ringo-ml/ringo/internal/quantity"
)

// group is a folder of the files of one control group.
type group struct {
	name   string // below the root of its hierarchy
	folder string
}

// groups returns this process's groups of a controller, from the leaf to the root of each
// hierarchy.
func groups(root fs.FS, controller string) (out []group) {
	for line := range strings.Lines(text(root, "proc/self/cgroup")) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 || parts[1] != "" && !slices.Contains(strings.Split(parts[1], ","), controller) {
			continue
		}
		for at := path.Join("/", parts[2]); ; at = path.Dir(at) {
			folder := path.Join("sys/fs/cgroup", parts[1], at)
			if _, err := fs.Stat(root, folder); err != nil && parts[1] != "" {
				folder = path.Join("sys/fs/cgroup", controller, at)
			}
			out = append(out, group{at, folder})
			if at == "/" {
				break
			}
		}
	}
	return out
}

// Processors returns the smallest quota of this process's groups, in processors. 0 means no limit.
func Processors(root fs.FS) (least float64) {
	for _, g := range groups(root, "cpu") {
		words := append(strings.Fields(text(root, g.folder+"/cpu.max")), text(root, g.folder+"/cpu.cfs_quota_us"), text(root, g.folder+"/cpu.cfs_period_us"))
		quota, err := strconv.ParseFloat(words[0], 64)
		period, err2 := strconv.ParseFloat(words[1], 64)
		if err == nil && err2 == nil && quota > 0 && period > 0 && (least == 0 || quota/period < least) {
			least = quota / period
		}
	}
	return least
}

// Memory is the state of one control group's memory.
type Memory struct {
	Group   string // name
	Limit   int64  // limit in bytes; 0 means no limit
	Kills   uint64 // processes that the kernel has killed for lack of memory
	Hits    uint64 // allocations that have reached the limit
	Counted bool   // the group counts its kills
}

// noLimit is the smallest value that version 1 uses for no limit.
const noLimit = 1 << 60

// MemoryOf returns the memory of this process's groups, from the leaf to the root.
func MemoryOf(root fs.FS) (out []Memory) {
	for _, g := range groups(root, "memory") {
		m := memoryOf(root, g)
		two, one := counters(root, g.folder+"/memory.events"), counters(root, g.folder+"/memory.oom_control")
		m.Kills, m.Hits = two["oom_kill"]+one["oom_kill"], two["oom"]+number(root, g.folder+"/memory.failcnt")
		if m.Counted = two != nil || one != nil; m.Counted || m.Limit > 0 {
			out = append(out, m)
		}
	}
	return out
}

// memoryOf returns the name and the limit of a group.
func memoryOf(root fs.FS, g group) Memory {
	m := Memory{Group: g.name, Limit: int64(number(root, g.folder+"/memory.max") + number(root, g.folder+"/memory.limit_in_bytes"))}
	if m.Limit >= noLimit || m.Limit < 0 {
		m.Limit = 0
	}
	return m
}

// Limit returns the group with the smallest memory limit, or a Limit of 0.
func Limit(all []Memory) (least Memory) {
	for _, m := range all {
		if m.Limit > 0 && (least.Limit == 0 || m.Limit < least.Limit) {
			least = m
		}
	}
	return least
}

// Free returns the free memory, with memory that the system reclaims from files, and all of it: of
// the host, or of the group with the least free memory. 0 of 0 means unknown.
func Free(root fs.FS) (free, all int64) {
	host := counters(root, "proc/meminfo")
	free, all = int64(host["MemAvailable:"])<<10, int64(host["MemTotal:"])<<10
	for _, g := range groups(root, "memory") {
		m := memoryOf(root, g)
		if m.Limit == 0 {
			continue
		}
		stat := counters(root, g.folder+"/memory.stat")
		used := int64(number(root, g.folder+"/memory.current") + number(root, g.folder+"/memory.usage_in_bytes"))
		files := int64(max(stat["inactive_file"], stat["total_inactive_file"]))
		if left := max(0, m.Limit-used+files); all == 0 || left < free {
			free, all = left, m.Limit
		}
	}
	return free, all
}

// Shortage detects kills for lack of memory, by the kernel's counters. Call Explain once for each
// killed process.
type Shortage struct {
	root fs.FS
	mu   sync.Mutex
	was  []Memory
	host uint64 // kills on the whole host
}

// Watch returns a Shortage that counts from now on.
func Watch(root fs.FS) *Shortage {
	return &Shortage{root: root, was: MemoryOf(root), host: counters(root, "proc/vmstat")["oom_kill"]}
}

// Explain returns the reason for a process's end by SIGKILL, if a counter shows that the kernel had
// no memory left, and "" otherwise. Each kill explains one process.
func (s *Shortage) Explain() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, host := MemoryOf(s.root), counters(s.root, "proc/vmstat")["oom_kill"]
	switch {
	case len(now) != len(s.was):
		return "" // the process was moved
	case len(now) > 0 && now[0].Counted:
		if now[0].Kills <= s.was[0].Kills {
			return ""
		}
		s.was[0].Kills++
	case host <= s.host:
		return ""
	default:
		s.host++
		return "while the kernel killed a process of this host for lack of memory"
	}
	for i, m := range now {
		if m.Limit > 0 && m.Hits > s.was[i].Hits {
			return fmt.Sprintf("because memory reached the limit of control group %s, %s (raise it, or take fewer ranks or a smaller batch)", m.Group, quantity.Bytes(m.Limit))
		}
	}
	return fmt.Sprintf("because the memory of the whole host, %s, was used up", quantity.Bytes(int64(counters(s.root, "proc/meminfo")["MemTotal:"])<<10))
}

// counters reads lines of a name and a number. nil means that the file does not exist.
func counters(root fs.FS, name string) map[string]uint64 {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return nil
	}
	out := map[string]uint64{}
	for line := range strings.Lines(string(b)) {
		if words := strings.Fields(line); len(words) >= 2 {
			out[words[0]], _ = strconv.ParseUint(words[1], 10, 64) // 0 if not a counter
		}
	}
	return out
}

// text is a file's content, "" if unreadable.
func text(root fs.FS, name string) string {
	b, _ := fs.ReadFile(root, name)
	return strings.TrimSpace(string(b))
}

// number is a file's number, 0 for a text such as "max".
func number(root fs.FS, name string) uint64 {
	n, _ := strconv.ParseUint(text(root, name), 10, 64)
	return n
}
