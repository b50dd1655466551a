package meeting

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/transport"
)

// What rank 0 posts, in place of what an earlier job has left, the others find, and it is gone when it is withdrawn.
func TestMeet(t *testing.T) {
	path := filepath.Join(t.TempDir(), "meet")
	if _, err := Post(path, Notice{Job: "j 1", Address: "h:1"}); err != nil {
		t.Fatal(err)
	}
	if _, err := Look(path, "j 2"); err == nil || !strings.Contains(err.Error(), `is of another job, "j 1", not "j 2"`) {
		t.Error(err)
	}
	want := Notice{Version: version, Job: "j 2", Address: "[::1]:2", Ticket: transport.NewTicket().String()}
	withdraw, err := Post(path, want)
	if err != nil {
		t.Fatal(err)
	}
	for _, job := range []string{"j 2", ""} { // who has no name for the job takes any
		if n, err := Look(path, job); err != nil || n != want {
			t.Errorf("%+v, %v", n, err)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	withdraw()
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
	if _, err := Post(filepath.Join(path, "x"), want); err == nil || !strings.Contains(err.Error(), path) {
		t.Error(err)
	}
}

// A notice that another job has put in the place of this one's is not withdrawn.
func TestWithdrawOwn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "meet")
	withdraw, err := Post(path, Notice{Address: "h:1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Post(path, Notice{Address: "h:2"}); err != nil {
		t.Fatal(err)
	}
	withdraw()
	if n, err := read(path); err != nil || n.Address != "h:2" {
		t.Errorf("%+v, %v", n, err)
	}
}

func TestLookSaysWhatIsThere(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		mode os.FileMode
		want string
	}{
		"nothing":    {want: "there is no such file"},
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
		_, err := Look(path, "")
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
		if n, err := Look(path, "a"); err == nil && (n.Job != "a" || n.Version != version) {
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
