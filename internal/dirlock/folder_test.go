package dirlock

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A directory has one holder at a time, in this process too. It holds invariant[one-writer].
func TestOneHolder(t *testing.T) {
	dir := t.TempDir()
	l, err := Take(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Take(dir); !errors.Is(err, ErrHeld) {
		t.Fatalf("a second holder: %v", err)
	} else if held := new(HeldError); !errors.As(err, &held) || held.By.PID != os.Getpid() || held.By.Since.IsZero() || !strings.Contains(err.Error(), held.By.Command) {
		t.Errorf("its error: %v, by %+v", err, held.By)
	}
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	l, err = Take(dir)
	if err != nil {
		t.Fatalf("after its release: %v", err)
	}
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	if _, err := Take(dir + "/none"); err == nil {
		t.Error("a directory that does not exist was taken")
	}
}

func TestSync(t *testing.T) {
	dir := t.TempDir()
	if err := Sync(dir); err != nil {
		t.Error(err)
	}
	if err := Sync(dir + "/none"); err == nil {
		t.Error("a directory that does not exist was synced")
	}
}

// What a holder that was killed has said stands in nobody's way, and is nobody's name.
func TestStale(t *testing.T) {
	dir := t.TempDir()
	dead := thisProcess()
	dead.PID = 1 << 30 // more than any system has
	for _, text := range [][]byte{nil, []byte("{"), []byte(strings.Repeat("x", 3*maxHolder)), []byte(`{"pid":-1}`), marshal(t, dead)} {
		if by := parseHolder(text); by != (Holder{}) {
			t.Errorf("%.40s names %v", text, by)
		}
		if err := os.WriteFile(filepath.Join(dir, fileName), text, 0o666); err != nil {
			t.Fatal(err)
		}
		l, err := Take(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Release(); err != nil {
			t.Error(err)
		}
	}
	far := Holder{Host: "elsewhere.example", PID: 1 << 30, Command: "ringo train", Since: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	if by, want := parseHolder(marshal(t, far)), "process 1073741824 on host elsewhere.example since 2026-01-02 03:04:05 (ringo train)"; by.String() != want {
		t.Errorf("%v, want %s", by, want)
	}
}

func marshal(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
