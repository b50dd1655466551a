package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/bindings"
	"github.com/ringo-ml/ringo/internal/launch"
)

// TestTorchEnvironment wants a heter-trainer in PyTorch, started by hand, to have its settings and
// place once each, also beside exported variables of the same names. A python3 that prints its
// environment stands in for PyTorch.
func TestTorchEnvironment(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("no /proc")
	}
	dir := t.TempDir()
	program, secret := filepath.Join(dir, "stage.py"), filepath.Join(dir, "ticket")
	for path, text := range map[string]string{filepath.Join(dir, "python3"): "#!/bin/cat /proc/self/environ\n", program: "", secret: ""} {
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	p := start(t, "heter --index 1 --np 3 --sync bsp --transport tcp --collective-algorithm ring --timeout 7s --set model=ctr-dnn --ticket-file "+secret+
		" --set heter.count=2 --set heter.addresses=a:1,b:2 --set heter.device="+program,
		"PATH="+dir, launch.WorldSizeVar+"=9", launch.HetersVar+"=c:3", bindings.PartSettingsVar+"={}", ticket())
	p.checkEnd(0)
	got := map[string][]string{}
	for line := range strings.SplitSeq(p.out.String(), "\x00") {
		name, value, _ := strings.Cut(line, "=")
		got[name] = append(got[name], value)
	}
	for name, want := range map[string]string{
		launch.HeterVar: "1", launch.WorldSizeVar: "3", launch.HetersVar: "a:1,b:2", launch.TicketFileVar: secret, launch.TicketVar: "",
	} {
		if len(got[name]) != 1 || got[name][0] != want {
			t.Errorf("%s is %q, want %q once", name, got[name], want)
		}
	}
	var s bindings.PartSettings
	if text := got[bindings.PartSettingsVar]; len(text) != 1 || json.Unmarshal([]byte(text[0]), &s) != nil || s.Transport != "tcp" || s.Algorithm != "ring" || s.Timeout != 7*time.Second {
		t.Errorf("the settings are %q", text)
	}
}
