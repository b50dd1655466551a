package hosts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fake is an ssh whose hosts are folders of a test, which are the homes there.
func fake(t *testing.T) (SSH, string) {
	t.Helper()
	dir := t.TempDir()
	script := `#!/bin/sh
echo "$@" >>` + dir + `/told
while [ "$1" != "--" ]; do shift; done
host=$2; shift 2
case $host in
dead) echo "ssh: connect to host dead port 22: Connection refused" >&2; exit 255;;
esac
HOME=` + dir + `/$host; export HOME; mkdir -p "$HOME"; cd "$HOME"
exec sh -c "$*"
`
	path := filepath.Join(dir, "ssh")
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return SSH{Command: []string{path, "-p", "2222"}, Within: 1500 * time.Millisecond}, dir
}

// A session is a program's input and output, and what ends it is told in words.
func TestSession(t *testing.T) {
	ssh, dir := fake(t)
	s, err := ssh.Start("a", `read line; echo "it's $line"; cat >/dev/null`)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(s, "one")
	b := make([]byte, 9)
	if _, err := io.ReadFull(s, b); err != nil || string(b) != "it's one\n" {
		t.Errorf("%q, %v", b, err)
	}
	if err := s.Close(); err != nil || s.Status() != 0 {
		t.Error(err, s.Status())
	}
	told, _ := os.ReadFile(filepath.Join(dir, "told"))
	for _, want := range []string{"-p 2222 -T -x -a -o BatchMode=yes -o ConnectTimeout=2", "-- a exec sh -c 'read line; echo \"it'\\''s $line\""} {
		if !strings.Contains(string(told), want) {
			t.Errorf("%q is not in %q", want, told)
		}
	}
	for script, want := range map[string]string{
		"exec /no/such/program":  "there is no such program there: \"",
		"echo oh >&2; exit 3":    "its launcher has ended with status 3: \"oh\"",
		"exec " + Quote(dir):     "that program cannot be run there",
		"kill -9 $$":             "ssh was ended by a signal",
		"head -c 9999 /dev/zero": "its launcher has ended with status 0",
	} {
		s, err := ssh.Start("a", script)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, s)
		if why := s.Reason(); !strings.HasPrefix(why, want) {
			t.Errorf("%s: %q, want %q", script, why, want)
		}
		_ = s.Close()
	}
	if _, err := (SSH{Command: []string{"/no/ssh"}}).Start("a", "true"); err == nil || !strings.Contains(err.Error(), "host a: ssh cannot be started") {
		t.Error(err)
	}
}

// What ssh says leads to what to do.
func TestExplain(t *testing.T) {
	for wrote, want := range map[string]string{
		"\n": "ssh failed",
		"banner\nHost key verification failed.\r\n":                                              "ssh failed: \"Host key verification failed.\"; its host key is not accepted yet: run `ssh me@n1 true` and accept it",
		"@@@\nWARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!\nHost key verification failed.\n": "ssh failed: \"Host key verification failed.\"; its key is another than it was: if that is right, `ssh-keygen -R me@n1`, and `ssh me@n1 true` to see and accept the new one",
		"me@n1: Permission denied (publickey,password).\n":                                       "ssh failed: \"me@n1: Permission denied (publickey,password).\"; ssh may not ask for a password here: `ssh-copy-id me@n1`, or an agent that has the key; `ssh -o BatchMode=yes me@n1 true` must work",
		"ssh: Could not resolve hostname n1: Name or service not known\n":                        "ssh failed: \"ssh: Could not resolve hostname n1: Name or service not known\"; the name does not resolve on this host: check it with `getent hosts me@n1`",
		"ssh: connect to host n1 port 22: Connection timed out\n":                                "ssh failed: \"ssh: connect to host n1 port 22: Connection timed out\"; it does not answer: the host is off, or a firewall drops the packets",
	} {
		if got := explain("me@n1", sshFailed, wrote); got != want {
			t.Errorf("%q: %s\nwant %s", wrote, got, want)
		}
	}
}

// A program is found at its path, or copied once to where it is found by what it holds.
func TestStartProgram(t *testing.T) {
	ssh, dir := fake(t)
	path := filepath.Join(dir, "it's mine")
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho $0 $1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	hash, err := Hash(path)
	if err != nil {
		t.Fatal(err)
	}
	p := Program{Path: path, Hash: hash, Command: "attend"}
	said := func(host string, p Program) string {
		t.Helper()
		s, err := ssh.StartProgram(t.Context(), host, p, time.Minute)
		if err != nil {
			return err.Error()
		}
		defer s.Close()
		b, _ := io.ReadAll(s)
		return string(b)
	}
	if got := said("a", p); got != path+" attend\n" {
		t.Errorf("%q", got)
	}
	p.Copied = true
	for range 2 { // the second time it is there
		if got, want := said("a", p), filepath.Join(dir, "a/.cache/ringo/ringo-"+hash[:32])+" attend\n"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	told, _ := os.ReadFile(filepath.Join(dir, "told"))
	if n := strings.Count(string(told), "cat >"); n != 1 {
		t.Errorf("%d copies", n)
	}
	if got := said("dead", p); !strings.HasPrefix(got, "host dead: ssh failed: ") {
		t.Errorf("%q", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "full"), nil, 0o600); err != nil { // no home there
		t.Fatal(err)
	}
	if got := said("full", p); !strings.HasPrefix(got, "host full: copying this program there: ") {
		t.Errorf("%q", got)
	}
	if _, err := Hash(dir + "/none"); err == nil {
		t.Error("a file that is not there has a checksum")
	}
}

// Each remedy is found by what OpenSSH writes, and statuses without ssh's own words are told as they are.
func TestRemedies(t *testing.T) {
	for _, r := range remedies {
		got := explain("n1", sshFailed, "ssh: "+r.says+"\n")
		if want := "ssh failed: \"ssh: " + r.says + "\"; " + strings.ReplaceAll(r.do, "HOST", "n1"); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
	for _, c := range []struct {
		status      int
		wrote, want string
	}{
		{sshFailed, "", "ssh failed"},
		{sshFailed, "Broken pipe\n", `ssh failed: "Broken pipe"`},
		{notFound, "", "there is no such program there"},
		{notFound, "sh: 1: exec: /r: not found\n", `there is no such program there: "sh: 1: exec: /r: not found"`},
		{cannotExecute, "", "that program cannot be run there"},
		{-1, "", "ssh was ended by a signal"},
		{1, "\n \n", "its launcher has ended with status 1"},
		{0, "bye\n\n", `its launcher has ended with status 0: "bye"`},
	} {
		if got := explain("n1", c.status, c.wrote); got != c.want {
			t.Errorf("%d, %q: %s, want %s", c.status, c.wrote, got, c.want)
		}
	}
}

// A session that is killed has ended by a signal, whatever runs in it, and one that runs says nothing of its end.
func TestKill(t *testing.T) {
	ssh, _ := fake(t)
	s, err := ssh.Start("a", "exec sleep 1000")
	if err != nil {
		t.Fatal(err)
	}
	if why := s.Reason(); why != "its connection has ended" { // as far as one can tell who sees its output end
		t.Error(why)
	}
	s.Kill()
	if s.Status() != -1 || s.Reason() != "ssh was ended by a signal" {
		t.Error(s.Status(), s.Reason())
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	s.Kill() // of one that has ended nothing comes
}

// Of what ssh writes the last is kept, however it comes.
func TestLastWords(t *testing.T) {
	var words lastWords
	all := ""
	for i := range 3000 {
		piece := fmt.Sprintf("%d ", i)
		if n, err := words.Write([]byte(piece)); n != len(piece) || err != nil {
			t.Fatal(n, err)
		}
		all += piece
	}
	if got := words.String(); got != all[len(all)-maxWords:] {
		t.Errorf("%d bytes, which end with %q", len(got), got[max(0, len(got)-20):])
	}
	if n, _ := words.Write(make([]byte, 3*maxWords)); n != 3*maxWords || len(words.String()) != maxWords {
		t.Errorf("%d bytes written, %d kept", n, len(words.String()))
	}
}

// A copy that takes too long is given up, and nothing of it is taken for the program.
func TestCopyIsWhole(t *testing.T) {
	ssh, dir := fake(t)
	path := filepath.Join(dir, "program")
	if err := os.WriteFile(path, make([]byte, 1<<20), 0o700); err != nil {
		t.Fatal(err)
	}
	hash, err := Hash(path)
	if err != nil {
		t.Fatal(err)
	}
	slow := filepath.Join(dir, "slow")
	script := "#!/bin/sh\ncase \"$*\" in *'cat >'*) exec sleep 1000;; esac\nexec " + ssh.Command[0] + " \"$@\"\n"
	if err := os.WriteFile(slow, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	p := Program{Path: path, Hash: hash, Command: "attend", Copied: true}
	begun := time.Now()
	_, err = SSH{Command: []string{slow}}.StartProgram(t.Context(), "a", p, 300*time.Millisecond)
	if want := "host a: copying this program there: it took longer than 300ms: raise job.join-timeout, or copy it yourself"; err == nil || err.Error() != want || time.Since(begun) > 10*time.Second {
		t.Errorf("%v after %v, want %s", err, time.Since(begun), want)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "a/.cache/ringo/*")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(100*time.Millisecond, func() { cancel(enough) })
	if _, err = (SSH{Command: []string{slow}}).StartProgram(ctx, "a", p, time.Minute); !errors.Is(err, enough) || time.Since(begun) > 10*time.Second {
		t.Errorf("%v after %v, want %v", err, time.Since(begun), enough)
	}
	cut := filepath.Join(dir, "cut") // the connection is lost in the middle, which ends the input as its end does
	script = "#!/bin/sh\ncase \"$*\" in *'cat >'*) head -c 1000 | " + ssh.Command[0] + " \"$@\";; *) exec " + ssh.Command[0] + " \"$@\";; esac\n"
	if err := os.WriteFile(cut, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err = (SSH{Command: []string{cut}}).StartProgram(t.Context(), "a", p, time.Minute); err == nil || !strings.Contains(err.Error(), "the program did not come whole") {
		t.Errorf("a copy that is cut: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "a/.cache/ringo/*")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	p.Path = filepath.Join(dir, "gone")
	if _, err := ssh.StartProgram(t.Context(), "a", p, time.Minute); err == nil || !strings.Contains(err.Error(), "gone") {
		t.Error(err)
	}
}
