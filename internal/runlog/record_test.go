package runlog

import (
	"runtime"
	"testing"
)

func TestHere(t *testing.T) {
	m := LocalMachine()
	if m.CPUs < runtime.NumCPU() || m.System != runtime.GOOS+"/"+runtime.GOARCH || m.Go != runtime.Version() {
		t.Errorf("%+v", m)
	}
	if runtime.GOOS == "linux" && m.MemoryBytes < 64<<20 {
		t.Errorf("memory of %d bytes", m.MemoryBytes)
	}
}

func TestValueOf(t *testing.T) {
	const text = "processor\t: 0\nmodel name\t: A CPU: fast\nMemTotal:       24576 kB\n"
	for name, want := range map[string]string{"model name": "A CPU: fast", "MemTotal": "24576 kB", "model": ""} {
		if got := valueOf(text, name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	for text, want := range map[string]int64{"24576 kB": 24576 << 10, "": 0, "x kB": 0, "99999999999999999999 kB": 0, "-1 kB": 0} {
		if got := kilobytes(text); got != want {
			t.Errorf("%q is %d, want %d", text, got, want)
		}
	}
}
