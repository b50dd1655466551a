package doctor

import (
	"cmp"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/internal/cgroup"
	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/placement"
	"github.com/ringo-ml/ringo/internal/quantity"
)

// Levels of a finding.
const (
	ok   = "ok"   // no problem
	warn = "warn" // jobs run slower than possible, or some jobs fail
	bad  = "bad"  // jobs fail
)

// finding is the result of a check.
type finding struct {
	Subject string `json:"what"`
	Found   string `json:"found"`
	Level   string `json:"level"`
	Costs   string `json:"costs,omitempty"` // consequence of the problem
	Mend    string `json:"mend,omitempty"`  // remedy: a command, if possible
}

// passed returns a finding without a problem.
func passed(what, found string) finding { return finding{Subject: what, Found: found, Level: ok} }

func (f *finding) warns(costs, mend string) { f.Level, f.Costs, f.Mend = warn, costs, mend }

func (f *finding) fails(costs, mend string) { f.Level, f.Costs, f.Mend = bad, costs, mend }

// host is the inputs of the checks of this host. Checks with missing files return no finding.
type host struct {
	root    fs.FS         // system files
	allowed []int         // available processors
	kernels string        // kernels in use, by instruction set
	shared  error         // reason why processes cannot share memory; nil: sharing works
	files   uint64        // maximum open files; 0: unknown
	reading time.Duration // time of a clock reading
}

func (h host) look() []finding {
	var out []finding
	for _, look := range []func() (finding, bool){h.processor, h.cores, h.memory, h.pages, h.sharing, h.openFiles, h.clock, h.ports} {
		if f, found := look(); found {
			out = append(out, f)
		}
	}
	return out
}

func (h host) text(name string) string {
	b, _ := fs.ReadFile(h.root, name)
	return strings.TrimSpace(string(b))
}

// value returns the first value of a key in a file of "key: value" lines.
func (h host) value(name, key string) string {
	for line := range strings.Lines(h.text(name)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

func (h host) processor() (finding, bool) {
	f := passed("processor", cmp.Or(h.value("proc/cpuinfo", "model name"), "of unknown model")+", kernels "+h.kernels)
	if h.kernels == "portable" {
		f.warns("there are no kernels for its instructions: products and codecs are computed by plain Go", "")
	}
	return f, true
}

// cores compares the number of processors with the control group's quota.
func (h host) cores() (finding, bool) {
	m := placement.Read(h.root, h.allowed)
	f := passed("cores", cli.Counted(len(m.CPUs), "processor"))
	if m.Quota > 0 {
		f.Found += fmt.Sprintf(", of which the control group lets %s work at a time", quantity.Float(m.Quota))
	}
	if m.Quota > 0 && m.Quota < float64(len(m.CPUs)) {
		f.warns("threads beyond the limit are stopped for the rest of each 100 ms, and all ranks wait for the one that is",
			fmt.Sprintf("let ranks and threads together be at most %d (--np, --threads), or raise the container's limit: resources.limits.cpu", max(1, int(m.Quota))))
	}
	return f, len(m.CPUs) > 0
}

const leastMemory = 1 << 30

// memory checks the available memory, or the control group's limit.
func (h host) memory() (finding, bool) {
	kib, err := strconv.ParseInt(strings.TrimSuffix(h.value("proc/meminfo", "MemAvailable"), " kB"), 10, 64)
	if err != nil {
		return finding{}, false
	}
	free := kib << 10
	f := passed("memory", cli.Memory(free)+" available")
	if limit := cgroup.Limit(cgroup.MemoryOf(h.root)); limit.Limit > 0 && limit.Limit < free {
		free = limit.Limit
		f.Found += fmt.Sprintf(", of which control group %s allows %s", limit.Group, cli.Memory(free))
	}
	if free < leastMemory {
		f.warns("a job that needs more is killed by signal 9", "give it more (resources.limits.memory), or take fewer ranks: --np")
	}
	return f, true
}

// pages checks transparent huge pages. The current value is in brackets in the list of values.
func (h host) pages() (finding, bool) {
	const file = "sys/kernel/mm/transparent_hugepage/enabled"
	_, rest, found := strings.Cut(h.text(file), "[")
	word, _, _ := strings.Cut(rest, "]")
	f := passed("large pages", word)
	if word == "never" {
		f.warns("tables and buffers of gigabytes miss the processor's cache of addresses: look-ups of rows take longer", "echo madvise | sudo tee /"+file)
	}
	return f, found
}

func (h host) sharing() (finding, bool) {
	f := passed("shared memory", "processes can share memory")
	if h.shared != nil {
		f.Found = h.shared.Error()
		f.warns("ranks of one host talk over TCP, which copies what shared memory does not", "allow memfd_create in the container's seccomp profile")
	}
	return f, true
}

// leastFiles is the number of files for a server with a thousand connections, with a reserve.
const leastFiles = 4096

func (h host) openFiles() (finding, bool) {
	f := passed("open files", fmt.Sprintf("at most %d for a process", h.files))
	if h.files < leastFiles {
		f.warns("each link to another rank is a file: large jobs, and servers of many ranks, cannot open theirs", "ulimit -Hn 65536, or LimitNOFILE=65536 in the unit")
	}
	return f, h.files > 0
}

// slowClock is the maximum time of a clock reading; a step reads the clock some hundred times.
const slowClock = 500 * time.Nanosecond

const clocks = "sys/devices/system/clocksource/clocksource0/"

// clock checks the clock source.
func (h host) clock() (finding, bool) {
	source := h.text(clocks + "current_clocksource")
	f := passed("clock", fmt.Sprintf("%s, read in %s", source, quantity.Duration(h.reading)))
	if h.reading > slowClock {
		f.warns("what is measured and recorded of each operation takes longer than the operation may", h.betterClock(source))
	}
	return f, source != ""
}

// betterClock returns the command that selects a faster clock source, or "".
func (h host) betterClock(source string) string {
	for _, better := range []string{"tsc", "kvm-clock", "arch_sys_counter"} {
		if better != source && slices.Contains(strings.Fields(h.text(clocks+"available_clocksource")), better) {
			return "echo " + better + " | sudo tee /" + clocks + "current_clocksource"
		}
	}
	return ""
}

// leastPorts is enough for a few hundred ranks per host, with links to all other ranks.
const leastPorts = 10000

func (h host) ports() (finding, bool) {
	const file = "proc/sys/net/ipv4/ip_local_port_range"
	var first, last int
	n, _ := fmt.Sscan(h.text(file), &first, &last)
	f := passed("ports", fmt.Sprintf("%d to %d for connections", first, last))
	if last-first+1 < leastPorts {
		f.warns("links of many ranks to many others find no port", "echo 32768 60999 | sudo tee /"+file)
	}
	return f, n == 2
}
