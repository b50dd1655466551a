package placement

import (
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/internal/cgroup"
)

// LocalMachine is the part of this machine open to this process.
func LocalMachine() Machine { return Read(os.DirFS("/"), Allowed()) }

// Read describes the allowed processors, ascending, of the system with files in root. Without
// further files, every processor is a separate core in the same node.
func Read(root fs.FS, allowed []int) Machine {
	m := Machine{Quota: cgroup.Processors(root)}
	nodes := nodesOf(root)
	for _, n := range allowed {
		dir := fmt.Sprintf("sys/devices/system/cpu/cpu%d/", n)
		c := CPU{Number: n, Node: nodes[n], Package: max(0, number(root, dir+"topology/physical_package_id", 0))}
		c.Core = number(root, dir+"topology/core_id", n)
		c.Cache = lastCache(root, dir, -1-c.Package) // below every processor number
		m.CPUs = append(m.CPUs, c)
	}
	return m
}

// Usable is the number of threads of this process that can run at the same time: on the process's
// processors, within the control groups' quota. At least 1. runtime.NumCPU ignores quotas.
func Usable() int { return Machine{Quota: Quota()}.Together(runtime.NumCPU()) }

// Quota returns the quota of this process's control groups, in processors. 0 means no limit.
func Quota() float64 { return cgroup.Processors(os.DirFS("/")) }

func nodesOf(root fs.FS) map[int]int {
	out := map[int]int{}
	nodes, _ := ParseList(text(root, "sys/devices/system/node/online"))
	for _, node := range nodes {
		cpus, _ := ParseList(text(root, fmt.Sprintf("sys/devices/system/node/node%d/cpulist", node)))
		for _, c := range cpus {
			out[c] = node
		}
	}
	return out
}

// lastCache is the number of a processor's last-level cache: the first processor that shares the
// cache.
func lastCache(root fs.FS, dir string, unknown int) int {
	best, cache := 0, unknown
	for i := range 10 {
		at := fmt.Sprintf("%scache/index%d/", dir, i)
		level := number(root, at+"level", 0)
		shared, err := ParseList(text(root, at+"shared_cpu_list"))
		if level == 0 {
			break
		}
		if level > best && err == nil && len(shared) > 0 {
			best, cache = level, shared[0]
		}
	}
	return cache
}

// text is a file's content, or empty.
func text(root fs.FS, name string) string {
	b, _ := fs.ReadFile(root, name)
	return strings.TrimSpace(string(b))
}

func number(root fs.FS, name string, unknown int) int {
	n, err := strconv.Atoi(text(root, name))
	if err != nil {
		return unknown
	}
	return n
}

// maxCPU bounds the numbers in a list.
const maxCPU = 1 << 16

// ParseList reads a list such as "0-3,7", ascending. The empty text is the empty list.
func ParseList(list string) (out []int, err error) {
	if list = strings.TrimSpace(list); list == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(list, ",") {
		first, last, ranges := strings.Cut(part, "-")
		if !ranges {
			last = first
		}
		lo, err := strconv.Atoi(first)
		hi, err2 := strconv.Atoi(last)
		if err != nil || err2 != nil || lo < 0 || hi < lo || hi >= maxCPU {
			return nil, fmt.Errorf("a list of processors with %q: want numbers and ranges, such as 0-3,7", part)
		}
		for n := lo; n <= hi; n++ {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}
