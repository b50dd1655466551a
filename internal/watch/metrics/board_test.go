package metrics

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// boardIn opens a board that ends with the test.
func boardIn(t *testing.T) *Dir {
	t.Helper()
	b, err := Open(filepath.Join(t.TempDir(), "board"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// told are the ranks of a board with whether they live, such as "0+ 2-", and a figure of each.
func told(b *Dir, id ID) string {
	var out []string
	for _, r := range b.Read() {
		text := fmt.Sprintf("%d-", r.Rank)
		if r.Alive {
			text = fmt.Sprintf("%d+", r.Rank)
		}
		for _, v := range r.Values {
			if v.ID == id {
				text += fmt.Sprint(v.Value)
			}
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

func TestBoard(t *testing.T) {
	b := boardIn(t)
	var ranks [3]*RankMetrics
	for i := range ranks {
		var err error
		if ranks[i], err = b.Rank(i, len(ranks)); err != nil {
			t.Fatal(err)
		}
		ranks[i].Add(Samples, 0, int64(10+i))
	}
	if _, err := b.Rank(1, 3); err == nil || !strings.Contains(err.Error(), "rank 1: another process has them") {
		t.Errorf("a rank was had twice: %v", err)
	}
	if got := told(b, Samples); got != "0+10 1+11 2+12" {
		t.Errorf("read %s", got)
	}
	if err := ranks[1].Close(); err != nil {
		t.Error(err)
	}
	ranks[1].Add(Samples, 0, 1) // late, by another goroutine
	if got := told(b, Samples); got != "0+10 1-12 2+12" {
		t.Errorf("after one has ended: %s", got)
	}
	other, err := Open(b.Path())
	if err != nil {
		t.Fatal(err)
	}
	other.Leave()
	if got := told(b, Samples); got == "" {
		t.Error("a board that is open was removed")
	}
	again, err := b.Rank(1, 3) // begins anew
	if err != nil {
		t.Fatal(err)
	}
	if got := told(b, Samples); got != "0+10 1+0 2+12" {
		t.Errorf("after a rank began anew: %s", got)
	}
	for _, f := range []*RankMetrics{ranks[0], again, ranks[2]} {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	b.Leave()
	if _, err := os.Stat(b.Path()); !os.IsNotExist(err) {
		t.Errorf("the board is still there: %v", err)
	}
	for _, bad := range [][2]int{{-1, 2}, {2, 2}, {0, 0}, {0, maxRanks + 1}} {
		if _, err := b.Rank(bad[0], bad[1]); err == nil {
			t.Errorf("rank %d of %d was taken", bad[0], bad[1])
		}
	}
}

// victim says where the test's program is to count and be killed.
const victim = "METRICS_TEST_VICTIM"

// The figures of a process that was killed stay, and it is known to be gone.
func TestFiguresOutliveTheirProcess(t *testing.T) {
	if path := os.Getenv(victim); path != "" {
		b, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		f, err := b.Rank(1, 2)
		if err != nil {
			t.Fatal(err)
		}
		f.Add(Samples, 0, 42)
		if _, ok, err := b.Answer(); !ok || err != nil {
			t.Fatal(ok, err)
		}
		fmt.Println("counted")
		_, _ = io.Copy(io.Discard, os.Stdin) // until it is killed
	}
	b := boardIn(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestFiguresOutliveTheirProcess$")
	cmd.Env = append(os.Environ(), victim+"="+b.Path())
	in, _ := cmd.StdinPipe()
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	if got := told(b, Samples); got != "1+42" || line != "counted\n" {
		t.Errorf("while it lives: %s; it said %q", got, line)
	}
	if _, ok, err := b.Answer(); ok || err != nil {
		t.Errorf("two processes answer: %v, %v", ok, err)
	}
	_ = cmd.Process.Signal(syscall.SIGKILL)
	_ = cmd.Wait()
	if got := told(b, Samples); got != "1-42" {
		t.Errorf("after it was killed: %s", got)
	}
	release, ok, err := b.Answer()
	if !ok || err != nil {
		t.Fatalf("nobody can answer in its place: %v, %v", ok, err)
	}
	if err := release(); err != nil {
		t.Error(err)
	}
}

// Readers never keep a rank from its file.
func TestReadersKeepNobodyOut(t *testing.T) {
	b := boardIn(t)
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			default:
				b.Read()
			}
		}
	}()
	for range 50 {
		f, err := b.Rank(0, 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	close(end)
	<-ended
}

// Files that are none are left out, and folders of others are not used.
func TestBoardsBelieveNothing(t *testing.T) {
	b := boardIn(t)
	f, err := b.Rank(0, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	good, err := os.ReadFile(filepath.Join(b.Path(), "rank-0"))
	if err != nil {
		t.Fatal(err)
	}
	bad := map[string][]byte{"rank-1": nil, "rank-2": good[:100], "rank-3": make([]byte, len(good)), "rank-4": append(good, 0, 0, 0, 0, 0, 0, 0, 0), "rank-x": []byte("abc")}
	huge := append([]byte{}, good...)
	huge[8*headSize+7] = 255
	bad["rank-5"] = huge
	for name, text := range bad {
		if err := os.WriteFile(filepath.Join(b.Path(), name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(b.Path(), "rank-6")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(b.Path(), "rank-7"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := told(b, Samples); got != "0+0" {
		t.Errorf("read %s", got)
	}
	open := filepath.Join(t.TempDir(), "open")
	if err := os.Mkdir(open, 0o755); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(b.Path(), link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{open, link} {
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "remove it") {
			t.Errorf("%s was taken: %v", path, err)
		}
	}
	if _, err := Open(filepath.Join(b.Path(), "no", "folder")); err == nil {
		t.Error("a folder in no folder was made")
	}
}

// Boards of jobs that were killed are removed by the next job, those of others are not. Of ranks of a killed job the next one with the same
// secret reads nothing.
func TestSweep(t *testing.T) {
	secret := []byte(t.Name() + time.Now().String())
	dead, living, again := PathOf(append(secret, 1)), PathOf(append(secret, 2)), PathOf(append(secret, 3))
	for _, path := range []string{dead, living, again} {
		defer os.RemoveAll(path)
		if path == living {
			b, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Leave()
			continue
		}
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := (&Dir{path: path}).Rank(7, 8); err != nil { // its process is this one, which has not opened the board
			t.Fatal(err)
		}
	}
	b, err := Open(again)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Leave()
	if got := told(b, Samples); got != "" {
		t.Errorf("of a job with the same secret that was killed: %s", got)
	}
	Sweep()
	for path, want := range map[string]bool{dead: false, living: true, again: true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func FuzzBoard(f *testing.F) {
	good := New(0, 2)
	var text []byte
	for _, w := range good.words {
		text = binary.LittleEndian.AppendUint64(text, w)
	}
	f.Add(text)
	f.Add([]byte("RINMTRIC"))
	f.Fuzz(func(t *testing.T, text []byte) {
		b := boardIn(t)
		if err := os.WriteFile(filepath.Join(b.Path(), "rank-0"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, r := range b.Read() {
			if r.Rank >= r.Size {
				t.Errorf("rank %d of %d", r.Rank, r.Size)
			}
		}
	})
}
