package doctor

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

// files makes a system's files.
func files(text map[string]string) fstest.MapFS {
	out := fstest.MapFS{}
	for name, t := range text {
		out[name] = &fstest.MapFile{Data: []byte(t)}
	}
	return out
}

// sound is a host without faults.
func sound() host {
	return host{
		root: files(map[string]string{
			"proc/cpuinfo":                               "processor\t: 0\nmodel name\t: A Processor\nflags\t: x\n",
			"proc/meminfo":                               "MemTotal: 9999999 kB\nMemAvailable:    8388608 kB\n",
			"proc/sys/net/ipv4/ip_local_port_range":      "32768\t60999\n",
			"sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
			"sys/devices/system/clocksource/clocksource0/current_clocksource":   "tsc\n",
			"sys/devices/system/clocksource/clocksource0/available_clocksource": "tsc hpet acpi_pm\n",
		}),
		allowed: []int{0, 1, 2, 3}, kernels: "avx2", files: 1 << 20, reading: 40 * time.Nanosecond,
	}
}

// with is the host with other files.
func (h host) with(text map[string]string) host {
	all := fstest.MapFS{}
	for name, f := range h.root.(fstest.MapFS) {
		all[name] = f
	}
	for name, f := range files(text) {
		all[name] = f
	}
	h.root = all
	return h
}

// words are findings as people read them.
func words(all []finding) string {
	var lines []string
	for _, f := range all {
		lines = append(lines, f.words())
	}
	return strings.Join(lines, "\n")
}

// A host in order has nothing to mend.
func TestSoundHost(t *testing.T) {
	want := `ok    processor: A Processor, kernels avx2
ok    cores: 4 processors
ok    memory: 8 GiB available
ok    large pages: madvise
ok    shared memory: processes can share memory
ok    open files: at most 1048576 for a process
ok    clock: tsc, read in 40ns
ok    ports: 32768 to 60999 for connections`
	if got := words(sound().look()); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if got := words(host{root: files(nil), kernels: "avx2"}.look()); got != "ok    processor: of unknown model, kernels avx2\nok    shared memory: processes can share memory" {
		t.Errorf("of a system without files: %s", got)
	}
}

// Each fault says what it costs and what mends it.
func TestFaultsOfAHost(t *testing.T) {
	group := map[string]string{"proc/self/cgroup": "0::/pod\n", "sys/fs/cgroup/pod/cpu.max": "150000 100000\n"}
	for _, c := range []struct {
		name string
		h    host
		want string
	}{
		{"kernels", func() host { h := sound(); h.kernels = "portable"; return h }(), "warn  processor: A Processor, kernels portable\n      there are no kernels for its instructions"},
		{"quota", sound().with(group), "warn  cores: 4 processors, of which the control group lets 1.5 work at a time\n      threads beyond the limit are stopped for the rest of each 100 ms, and all ranks wait for the one that is\n      mend: let ranks and threads together be at most 1 (--np, --threads)"},
		{"wide quota", sound().with(map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "800000 100000"}), "ok    cores: 4 processors, of which the control group lets 8 work at a time\n"},
		{"memory", sound().with(map[string]string{"proc/meminfo": "MemAvailable: 524288 kB"}), "warn  memory: 512 MiB available\n      a job that needs more is killed by signal 9"},
		{"limit of memory", sound().with(map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "268435456\n"}), "warn  memory: 8 GiB available, of which control group / allows 256 MiB"},
		{"limit of memory of a group above, in version 1", sound().with(map[string]string{"proc/self/cgroup": "3:memory:/a/b\n", "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "268435456\n"}), "warn  memory: 8 GiB available, of which control group /a allows 256 MiB"},
		{"no limit of memory", sound().with(map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}), "ok    memory: 8 GiB available\n"},
		{"pages", sound().with(map[string]string{"sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]"}), "warn  large pages: never\n      tables and buffers of gigabytes miss the processor's cache of addresses: look-ups of rows take longer\n      mend: echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"},
		{"sharing", func() host { h := sound(); h.shared = errors.New("memfd_create: not permitted"); return h }(), "warn  shared memory: memfd_create: not permitted\n      ranks of one host talk over TCP"},
		{"files", func() host { h := sound(); h.files = 1024; return h }(), "warn  open files: at most 1024 for a process"},
		{"clock", func() host {
			h := sound().with(map[string]string{"sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet"})
			h.reading = 2 * time.Microsecond
			return h
		}(), "mend: echo tsc | sudo tee /sys/devices/system/clocksource/clocksource0/current_clocksource"},
		{"slow clock without another", func() host {
			h := sound().with(map[string]string{"sys/devices/system/clocksource/clocksource0/available_clocksource": "hpet"})
			h.reading = 2 * time.Microsecond
			return h
		}(), "than the operation may\nok    ports"},
		{"ports", sound().with(map[string]string{"proc/sys/net/ipv4/ip_local_port_range": "60000 60999"}), "warn  ports: 60000 to 60999 for connections"},
	} {
		if got := words(c.h.look()) + "\n"; !strings.Contains(got, c.want) {
			t.Errorf("%s: %q is not in\n%s", c.name, c.want, got)
		}
	}
}

// This very host is looked at without a fault of the program's own.
func TestHere(t *testing.T) {
	h := localHost()
	for _, f := range append(h.look(), network("")) {
		if f.Subject == "" || f.Found == "" || f.Level == ok && f.Costs != "" || f.Level != ok && f.Costs == "" {
			t.Errorf("%+v", f)
		}
	}
	if f := network("no-such-interface"); f.Level != bad || !strings.Contains(f.Found, "no-such-interface") {
		t.Errorf("%+v", f)
	}
	if f := network("lo"); f.Level != warn || !strings.Contains(f.Found, ", by lo, ") {
		t.Errorf("%+v", f)
	}
}
