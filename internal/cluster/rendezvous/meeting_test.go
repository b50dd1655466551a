package rendezvous

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/transport"
)

// A file leaves nothing beside it, and is its owner's alone.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "meet")
	withdraw, err := File(path).Publish(t.Context(), Endpoint{Address: "h:1", Ticket: transport.NewTicket().String()})
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	withdraw()
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
	if _, err := File(filepath.Join(path, "x")).Publish(t.Context(), Endpoint{}); err == nil || !strings.Contains(err.Error(), path) {
		t.Error(err)
	}
}

// TestFileWaitsForAnotherRank0: a notice whose rank 0 still listens stays until it is withdrawn, and one that nobody listens for gives way.
func TestFileWaitsForAnotherRank0(t *testing.T) {
	path := filepath.Join(t.TempDir(), "meet")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	withdraw, err := File(path).Publish(t.Context(), Endpoint{Address: l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	limited, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := File(path).Publish(limited, Endpoint{Address: "127.0.0.1:1"}); err == nil || !strings.Contains(err.Error(), l.Addr().String()) || !strings.Contains(err.Error(), path) {
		t.Errorf("a second rank 0: %v", err)
	}
	posted := make(chan error)
	go func() {
		_, err := File(path).Publish(t.Context(), Endpoint{Address: "127.0.0.1:1"})
		posted <- err
	}()
	select {
	case err := <-posted:
		t.Errorf("posted beside another: %v", err)
	case <-time.After(150 * time.Millisecond):
	}
	withdraw()
	if err := <-posted; err != nil {
		t.Error(err)
	}
	if _, err := File(path).Publish(t.Context(), Endpoint{Address: "127.0.0.1:2"}); err != nil {
		t.Errorf("after one that does not listen: %v", err)
	}
	if n, err := File(path).Lookup(t.Context(), ""); err != nil || n.Address != "127.0.0.1:2" {
		t.Errorf("%+v, %v", n, err)
	}
	if left, _ := filepath.Glob(path + "*"); len(left) != 1 {
		t.Errorf("%v are left", left)
	}
}

func TestOpen(t *testing.T) {
	for rendezvous, want := range map[string]struct {
		place bool
		fault string
	}{
		"/a":                 {true, ""},
		"host:1":             {false, "want the absolute path of a file, or etcd://"},
		"a/b":                {false, "want the absolute path"},
		"etcd://h:2379/job":  {true, "built without etcd's client"},
		"etcds://h:2379/job": {true, "built without etcd's client"},
	} {
		_, err := Open(rendezvous)
		if IsBackend(rendezvous) != want.place || (err == nil) != (want.fault == "") || err != nil && !strings.Contains(err.Error(), want.fault) {
			t.Errorf("%s: %v, %v", rendezvous, IsBackend(rendezvous), err)
		}
		if IsPrivate(rendezvous) != (rendezvous == "/a") {
			t.Errorf("%s: private %v", rendezvous, IsPrivate(rendezvous))
		}
	}
}

func TestLookSaysWhatIsThere(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		mode os.FileMode
		want string
	}{
		"nothing":    {want: "the file does not exist"},
		"garbage":    {text: "hello", mode: 0o600, want: "is no notice of rank 0: invalid character"},
		"later":      {text: `{"version":2,"address":"h:1"}`, mode: 0o600, want: "of this version of ringo, 1: version 2"},
		"no address": {text: `{"version":1}`, mode: 0o600, want: `address ""`},
		"long":       {text: strings.Repeat(" ", maxNotice+1), mode: 0o600, want: "has more than 4096 bytes"},
		"for all":    {text: `{"version":1,"address":"h:1"}`, mode: 0o644, want: "others may read it (mode -rw-r--r--): chmod 600"},
		"writable":   {text: `{"version":1,"address":"h:1"}`, mode: 0o620, want: "others may write it"},
	} {
		path := filepath.Join(t.TempDir(), "meet")
		if c.mode != 0 {
			if err := errors.Join(os.WriteFile(path, []byte(c.text), 0o600), os.Chmod(path, c.mode)); err != nil {
				t.Fatal(err)
			}
		}
		_, err := File(path).Lookup(t.Context(), "")
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) || errors.As(err, new(*UnsafeError)) != strings.Contains(c.want, "others") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func FuzzLook(f *testing.F) {
	f.Add([]byte(`{"version":1,"job":"a","address":"h:1","ticket":"00"}`))
	path := filepath.Join(f.TempDir(), "meet")
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if n, err := File(path).Lookup(t.Context(), "a"); err == nil && (n.Job != "a" || n.Version != version) {
			t.Errorf("%q: %+v", text, n)
		}
	})
}

func TestTicket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ticket")
	if err := NewTicket(path); err != nil {
		t.Fatal(err)
	}
	first, err := Ticket(path)
	if err != nil || len(first) == 0 {
		t.Fatal(err)
	}
	if err := NewTicket(path); !errors.Is(err, os.ErrExist) {
		t.Errorf("a ticket that is there: %v", err)
	}
	for text, want := range map[string]string{"": path, "zz": path, strings.Repeat("0", maxTicket+1): "more than"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Ticket(path); err == nil || !strings.Contains(err.Error(), want) || text != "" && strings.Contains(err.Error(), text) {
			t.Errorf("%.10q: %v", text, err)
		}
	}
	if err := errors.Join(os.WriteFile(path, []byte("\n "+first.String()+" \r\n"), 0o600), os.Chmod(path, 0o644)); err != nil {
		t.Fatal(err)
	}
	if _, err := Ticket(path); !errors.As(err, new(*UnsafeError)) {
		t.Error(err)
	}
	if err := os.Chmod(path, 0o400); err != nil {
		t.Fatal(err)
	}
	if got, err := Ticket(path); err != nil || got.String() != first.String() {
		t.Error(err)
	}
}

func TestPrivate(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	path, err := Private("a")
	if err != nil || filepath.Base(path) != "a" {
		t.Fatal(path, err)
	}
	if again, err := Private("a"); err != nil || again != path {
		t.Error(again, err)
	}
	if err := os.Chmod(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Private("a"); err == nil || !strings.Contains(err.Error(), "others may write it") {
		t.Error(err)
	}
}
