package folder

import (
	"errors"
	"testing"
)

func TestOneHolder(t *testing.T) {
	dir := t.TempDir()
	l, err := Take(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Take(dir); !errors.Is(err, ErrHeld) {
		t.Fatalf("a second holder: %v", err)
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
