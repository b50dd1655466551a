package cgroup

import (
	"io/fs"
	"maps"
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

// files is a file system of names and contents.
func files(texts map[string]string) fs.FS {
	out := fstest.MapFS{}
	for name, text := range texts {
		out[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return out
}

// Kills are explained by the innermost group that has reached its limit, in both versions, and each
// counted kill explains one process.
func TestShortageExplainsKills(t *testing.T) {
	const none = "9223372036854771712\n"
	two := map[string]string{
		"proc/self/cgroup":              "0::/a/b\n",
		"sys/fs/cgroup/a/b/memory.max":  "max\n",
		"sys/fs/cgroup/a/memory.max":    "209715200\n",
		"sys/fs/cgroup/memory.max":      "1073741824\n",
		"sys/fs/cgroup/a/memory.events": "max 3\noom 1\noom_kill 1\n", "sys/fs/cgroup/a/b/memory.events": "oom 0\noom_kill 0\n", "sys/fs/cgroup/memory.events": "oom 1\noom_kill 1\n",
		"proc/meminfo": "MemTotal:        2097152 kB\n", "proc/vmstat": "oom_kill 7\n",
	}
	one := map[string]string{
		"proc/self/cgroup": "9:cpu:/q\n4:memory:/a/b\n0::/\n",
		"sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": "1572864\n", "sys/fs/cgroup/memory/a/memory.limit_in_bytes": none, "sys/fs/cgroup/memory/memory.limit_in_bytes": none,
		"sys/fs/cgroup/memory/a/b/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n", "sys/fs/cgroup/memory/a/b/memory.failcnt": "2\n",
		"proc/meminfo": "MemTotal:        2097152 kB\n",
	}
	hidden := map[string]string{ // a container of version 1 sees its own group as the root
		"proc/self/cgroup": "4:memory:/docker/1\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "1048576\n",
		"sys/fs/cgroup/memory/memory.oom_control": "oom_kill 0\n", "sys/fs/cgroup/memory/memory.failcnt": "0\n",
	}
	bare := map[string]string{"proc/vmstat": "nr_free_pages 1\noom_kill 7\n"}
	for _, c := range []struct {
		name          string
		before, after map[string]string
		want          string
	}{
		{"version 2, the group above", two, map[string]string{"sys/fs/cgroup/a/memory.events": "oom 2\noom_kill 2\n", "sys/fs/cgroup/a/b/memory.events": "oom 0\noom_kill 1\n", "sys/fs/cgroup/memory.events": "oom 2\noom_kill 2\n"},
			"because memory reached the limit of control group /a, 200 MiB"},
		{"version 2, the host", two, map[string]string{"sys/fs/cgroup/a/b/memory.events": "oom 0\noom_kill 1\n"}, "because the memory of the whole host, 2 GiB, was used up"},
		{"version 1", one, map[string]string{"sys/fs/cgroup/memory/a/b/memory.oom_control": "oom_kill 6\n", "sys/fs/cgroup/memory/a/b/memory.failcnt": "90\n"},
			"because memory reached the limit of control group /a/b, 1.5 MiB"},
		{"version 1, reclaimed", one, map[string]string{"sys/fs/cgroup/memory/a/b/memory.failcnt": "90\n"}, ""},
		{"version 1, hidden", hidden, map[string]string{"sys/fs/cgroup/memory/memory.oom_control": "oom_kill 1\n", "sys/fs/cgroup/memory/memory.failcnt": "9\n"},
			"because memory reached the limit of control group /, 1 MiB"},
		{"no groups", bare, map[string]string{"proc/vmstat": "oom_kill 8\n"}, "while the kernel killed a process of this host for lack of memory"},
		{"another container's kill", two, map[string]string{"proc/vmstat": "oom_kill 8\n"}, ""},
		{"moved", two, map[string]string{"proc/self/cgroup": "0::/\n"}, ""},
		{"no system files", nil, nil, ""},
	} {
		s := Watch(files(c.before))
		if got := s.Explain(); got != "" {
			t.Errorf("%s: %q before the kill", c.name, got)
		}
		after := maps.Clone(c.before)
		maps.Copy(after, c.after)
		s.root = files(after)
		if got := s.Explain(); got != c.want && !(c.want != "" && strings.HasPrefix(got, c.want+" (raise it")) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		if got := s.Explain(); got != "" {
			t.Errorf("%s: %q of a second process, though one was killed", c.name, got)
		}
	}
}

// The smallest limit of memory counts, and files of another kind are no limit.
func TestLimit(t *testing.T) {
	for text, want := range map[string]int64{"max": 0, "": 0, "-1": 0, "junk": 0, "4096": 4096, "18446744073709551615": 0, "9223372036854771712": 0} {
		all := MemoryOf(files(map[string]string{"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": text, "sys/fs/cgroup/memory.max": "8192\n"}))
		if got := Limit(all); got.Limit != min(8192, max(want, 0)) && !(want == 0 && got.Limit == 8192) {
			t.Errorf("%q: %+v", text, got)
		}
	}
	if got := Limit(MemoryOf(os.DirFS("/"))); got.Limit < 0 {
		t.Errorf("here: %+v", got)
	}
}

// TestFree: the group with the least free memory counts, and files that can be reclaimed are free.
func TestFree(t *testing.T) {
	const host = "MemTotal: 8192 kB\nMemAvailable: 4096 kB\n"
	two := map[string]string{"proc/meminfo": host, "proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "3145728\n",
		"sys/fs/cgroup/a/memory.current": "2097152\n", "sys/fs/cgroup/a/memory.stat": "anon 1\ninactive_file 524288\n", "sys/fs/cgroup/memory.max": "max\n"}
	one := map[string]string{"proc/meminfo": host, "proc/self/cgroup": "4:memory:/a\n", "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "3145728\n",
		"sys/fs/cgroup/memory/a/memory.usage_in_bytes": "4194304\n", "sys/fs/cgroup/memory/a/memory.stat": "total_inactive_file 524288\n"}
	for name, c := range map[string]struct {
		files     map[string]string
		free, all int64
	}{
		"host": {map[string]string{"proc/meminfo": host}, 4 << 20, 8 << 20}, "version 2": {two, 3 << 19, 3 << 20},
		"version 1, full": {one, 0, 3 << 20}, "unknown": {nil, 0, 0},
	} {
		if free, all := Free(files(c.files)); free != c.free || all != c.all {
			t.Errorf("%s: %d of %d, want %d of %d", name, free, all, c.free, c.all)
		}
	}
}
