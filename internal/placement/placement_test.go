package placement

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

var update = flag.Bool("update", false, "write testdata/plans.txt anew")

// shape counts a machine's packages, nodes per package, last-level caches per node, cores per
// cache, and hardware threads per core. Linux numbers the first thread of every core, then the
// second threads.
type shape struct{ packages, nodes, caches, cores, threads int }

func (s shape) all() int { return s.packages * s.nodes * s.caches * s.cores }

func (s shape) cpu(n int) CPU {
	core := n % s.all()
	cache := core / s.cores
	node := cache / s.caches
	return CPU{Number: n, Package: node / s.nodes, Node: node, Cache: cache * s.cores, Core: core % (s.all() / s.packages)}
}

// system is the shape as Linux files.
func (s shape) system() fstest.MapFS {
	fs := fstest.MapFS{}
	file := func(text, format string, args ...any) {
		fs[fmt.Sprintf(format, args...)] = &fstest.MapFile{Data: []byte(text + "\n")}
	}
	nodes, caches := map[int][]string{}, map[int][]string{}
	for n := range s.all() * s.threads {
		c := s.cpu(n)
		nodes[c.Node], caches[c.Cache] = append(nodes[c.Node], fmt.Sprint(n)), append(caches[c.Cache], fmt.Sprint(n))
	}
	for n := range s.all() * s.threads {
		c := s.cpu(n)
		at := fmt.Sprintf("sys/devices/system/cpu/cpu%d", n)
		file(fmt.Sprint(c.Package), "%s/topology/physical_package_id", at)
		file(fmt.Sprint(c.Core), "%s/topology/core_id", at)
		for i, level := range []int{1, 1, 2, 3} {
			file(fmt.Sprint(level), "%s/cache/index%d/level", at, i)
			file(fmt.Sprint(n), "%s/cache/index%d/shared_cpu_list", at, i)
		}
		file(strings.Join(caches[c.Cache], ","), "%s/cache/index3/shared_cpu_list", at)
	}
	file(fmt.Sprintf("0-%d", len(nodes)-1), "sys/devices/system/node/online")
	for node, list := range nodes {
		file(strings.Join(list, ","), "sys/devices/system/node/node%d/cpulist", node)
	}
	return fs
}

// machines have plans in the golden file; some have fewer allowed processors, or quotas.
var machines = []struct {
	name    string
	shape   shape
	allowed string
	cgroup  map[string]string
	asked   []Request
}{
	{name: "2 cores", shape: shape{1, 1, 1, 2, 1}, asked: requests("1 2 3 4 6 2x2 4x2 core1 core2 core3 core4 none2 apart2 apartcore2")},
	{name: "8 cores of 2 threads", shape: shape{1, 1, 1, 8, 2}, asked: requests("1 2 3 4 8 16 17 32 2x4 2x8 4x4 16x2 core2 core8 core16 core2x4 core2x8")},
	{name: "2 packages of 8 cores", shape: shape{2, 1, 1, 8, 1}, asked: requests("2 3 4 5 16 2x8 3x5 core2 core2x8")},
	{name: "2 packages of 4 cores of 2 threads", shape: shape{2, 1, 1, 4, 2}, asked: requests("2 4 8 16 2x8")},
	{name: "2 nodes of 2 caches of 4 cores", shape: shape{1, 2, 2, 4, 1}, asked: requests("2 3 4 5 6 7 8 2x8 3x5 3x6 core3 core4x3 core5x3 core6x3")},
	{name: "2 cores, one allowed", shape: shape{1, 1, 1, 2, 1}, allowed: "1", asked: requests("1 2 4 core1 core2")},
	{name: "2 packages of 4 cores, some allowed", shape: shape{2, 1, 1, 4, 1}, allowed: "1-2,5-6", asked: requests("2 4 core2")},
	{name: "one thread of some cores", shape: shape{1, 1, 1, 8, 2}, allowed: "8-11", asked: requests("2 4 8")},
	{name: "8 cores, a quota of 1.5 (version 2)", shape: shape{1, 1, 1, 8, 1}, asked: requests("1 2 core1 core2"), cgroup: map[string]string{
		"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/cpu.max": "max 100000\n", "sys/fs/cgroup/a/cpu.max": "150000 100000\n", "sys/fs/cgroup/cpu.max": "400000 100000\n"}},
	{name: "8 cores, a quota of 4 (version 1)", shape: shape{1, 1, 1, 8, 1}, asked: requests("2 8 core2 core4 core5"), cgroup: map[string]string{
		"proc/self/cgroup": "12:memory:/x\n4:cpu,cpuacct:/x\n", "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us": "400000\n", "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us": "100000\n",
		"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n", "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n"}},
	{name: "2 cores, a quota of 2", shape: shape{1, 1, 1, 2, 1}, asked: requests("2"), cgroup: map[string]string{
		"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "200000 100000\n"}},
	{name: "a system that says nothing", asked: requests("1 2 core2")},
}

// requests reads words such as "3", "2x4" (processes and threads), "core2" and "apart2".
func requests(words string) (out []Request) {
	for w := range strings.FieldsSeq(words) {
		r := Request{Mode: Auto}
		w, r.Preassigned = strings.CutPrefix(w, "apart")
		for _, m := range []Mode{Core, None} {
			if rest, ok := strings.CutPrefix(w, string(m)); ok {
				w, r.Mode = rest, m
			}
		}
		if n, _ := fmt.Sscanf(w, "%dx%d", &r.Processes, &r.Threads); n == 0 {
			panic(w)
		}
		out = append(out, r)
	}
	return out
}

func (r Request) text() string {
	threads := ""
	if r.Threads > 0 {
		threads = fmt.Sprintf(" of %d threads", r.Threads)
	}
	apart := ""
	if r.Preassigned {
		apart = ", bound already"
	}
	return fmt.Sprintf("%s %d%s%s", r.Mode, r.Processes, threads, apart)
}

// The plans for many machines are in testdata/plans.txt.
func TestPlans(t *testing.T) {
	var b bytes.Buffer
	for _, on := range machines {
		root := on.shape.system()
		for name, text := range on.cgroup {
			root[name] = &fstest.MapFile{Data: []byte(text)}
		}
		m := Read(root, allowedOf(t, on.shape, on.allowed))
		fmt.Fprintf(&b, "%s\n", on.name)
		for _, r := range on.asked {
			plan, err := Decide(m, r)
			if err != nil {
				fmt.Fprintf(&b, "  %-24s error: %v\n", r.text(), err)
				continue
			}
			fmt.Fprintf(&b, "  %-24s %v\n", r.text(), plan)
			for i, own := range plan.Shares {
				if i == 8 {
					fmt.Fprintf(&b, "  %-24s …\n", "")
					break
				}
				fmt.Fprintf(&b, "  %24s %v\n", fmt.Sprint(i), own)
			}
		}
	}
	const file = "testdata/plans.txt"
	if *update {
		if err := os.WriteFile(file, b.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || b.String() != string(want) {
		t.Errorf("other plans than in %s (-update writes it): %v\n%s", file, err, b.String())
	}
}

func allowedOf(t *testing.T, s shape, list string) (out []int) {
	if list == "" {
		for n := range s.all() * s.threads {
			out = append(out, n)
		}
		return out
	}
	out, err := ParseList(list)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// For all requests and machines, shares are equal and of allowed processors; processes share
// processors only if outnumbering the processors; and threads have room.
func TestSharesAreFair(t *testing.T) {
	for _, s := range []shape{{1, 1, 1, 2, 1}, {1, 1, 1, 8, 2}, {2, 1, 1, 8, 1}, {2, 2, 2, 4, 2}, {1, 2, 2, 3, 1}, {1, 1, 3, 2, 2}} {
		m := Read(s.system(), allowedOf(t, s, ""))
		for _, mode := range []Mode{Auto, Core} {
			for processes := 1; processes <= 2*len(m.CPUs); processes++ {
				for _, threads := range []int{1, 2, 3, 8} {
					r := Request{Processes: processes, Threads: threads, Mode: mode}
					if p, err := Decide(m, r); err == nil && p.Bound() {
						checkShares(t, fmt.Sprintf("%v, %s", s, r.text()), m, r, p)
					}
				}
			}
		}
	}
}

func checkShares(t *testing.T, what string, m Machine, r Request, p Plan) {
	t.Helper()
	if len(p.Shares) != r.Processes {
		t.Fatalf("%s: %d shares", what, len(p.Shares))
	}
	uses := map[int]int{}
	for _, own := range p.Shares {
		if len(own) != len(p.Shares[0]) || len(own) < r.Threads || !slices.IsSorted(own) {
			t.Fatalf("%s: shares %v", what, p.Shares)
		}
		for _, cpu := range own {
			if cpu < 0 || cpu >= len(m.CPUs) {
				t.Fatalf("%s: processor %d", what, cpu)
			}
			uses[cpu]++
		}
	}
	for cpu, n := range uses {
		if n > 1 && (r.Processes < len(m.CPUs) || n != r.Processes/len(m.CPUs)) {
			t.Fatalf("%s: processor %d is in %d shares: %v", what, cpu, n, p.Shares)
		}
	}
}

// Read understands the system's files, and defaults are harmless.
func TestRead(t *testing.T) {
	s := shape{2, 2, 2, 3, 2}
	m := Read(s.system(), []int{0, 5, 30})
	for i, n := range []int{0, 5, 30} {
		if m.CPUs[i] != s.cpu(n) {
			t.Errorf("processor %d: %+v, want %+v", n, m.CPUs[i], s.cpu(n))
		}
	}
	bare := Read(fstest.MapFS{}, []int{3, 4})
	if len(cores(bare.CPUs)) != 2 || bare.CPUs[0].Cache != bare.CPUs[1].Cache || bare.Quota != 0 {
		t.Errorf("a system that says nothing: %+v", bare)
	}
}

func TestParseList(t *testing.T) {
	for text, want := range map[string][]int{"": nil, "0\n": {0}, "0-2,7": {0, 1, 2, 7}, "3,1,1": {1, 3}} {
		if got, err := ParseList(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"x", "1-", "-1", "3-1", "0-99999999999", "0-70000", "1,,2"} {
		if got, err := ParseList(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func FuzzParseList(f *testing.F) {
	f.Add("0-3,7")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ParseList(text)
		if err == nil && (!slices.IsSorted(got) || len(got) > maxCPU) {
			t.Errorf("%q: %v", text, got)
		}
	})
}

// A process bound to one node of several has a memory home.
func TestHome(t *testing.T) {
	two, one := shape{1, 2, 1, 2, 1}, shape{1, 1, 1, 2, 1}
	for _, c := range []struct {
		of   shape
		cpus []int
		node int
		ok   bool
	}{{two, []int{2, 3}, 1, true}, {two, []int{0}, 0, true}, {two, []int{1, 2}, 0, false}, {two, nil, 0, false}, {one, []int{0}, 0, false}} {
		node, ok := Read(c.of.system(), allowedOf(t, c.of, "")).Home(c.cpus)
		if ok != c.ok || ok && node != c.node {
			t.Errorf("%v of %v: node %d, %v", c.cpus, c.of, node, ok)
		}
	}
}
