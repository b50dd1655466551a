package remote_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/remote"
	"github.com/ringo-ml/ringo/internal/remote/store"
)

var errCut = errors.New("the store is cut off")

// failing is a store of which each operation may fail, half-way when it reads.
type failing struct {
	store.Store
	mu    sync.Mutex
	rand  *rand.Rand
	share float64 // of operations that fail
	cut   bool    // all do
	calls int
}

func (f *failing) fails() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	return f.cut || f.rand.Float64() < f.share
}

func (f *failing) List(ctx context.Context) ([]store.Object, error) {
	if f.fails() {
		return nil, errCut
	}
	return f.Store.List(ctx)
}

func (f *failing) Read(ctx context.Context, name string, from, n int64) (io.ReadCloser, store.Object, error) {
	r, o, err := f.Store.Read(ctx, name, from, n)
	if err == nil && f.fails() {
		return struct {
			io.Reader
			io.Closer
		}{io.MultiReader(io.LimitReader(r, n/2), broken{}), r}, o, nil
	}
	return r, o, err
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errCut }

func (f *failing) Write(ctx context.Context, name string, r io.Reader, size int64) error {
	if f.fails() {
		return errCut
	}
	return f.Store.Write(ctx, name, r, size)
}

func (f *failing) Remove(ctx context.Context, name string) error {
	if f.fails() {
		return errCut
	}
	return f.Store.Remove(ctx, name)
}

func put(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, filepath.FromSlash(name))
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, []byte(text), 0o666)); err != nil {
		t.Fatal(err)
	}
}

// save is what a job with one server saves after a step: a part of the server, and a file that names it.
func save(t *testing.T, dir string, n int) {
	t.Helper()
	part := fmt.Sprintf("start-1/server-0/checkpoints/checkpoint-%012d/", n)
	put(t, dir, "start-1/server-0/JOB", "{}")
	put(t, dir, part+"dense-0", strings.Repeat("x", 1000*n))
	put(t, dir, part+"table-0/memory", "y")
	put(t, dir, part+"MANIFEST", "dense-0 table-0/memory")
	put(t, dir, fmt.Sprintf("step-%09d.ringo", n), part)
	for _, noise := range []string{"LOCK", "step-000000001.ringo.00.tmp", "start-1/server-0/log/1", "start-1/server-0/below/2", "start-1/server-0/checkpoints/checkpoint-000000000009.tmp/dense-0"} {
		put(t, dir, noise, "none of a checkpoint")
	}
}

// whole wants that all that files of a store refer to is there: at any moment, whoever looks.
func whole(t *testing.T, dir string) (steps int) {
	t.Helper()
	all, err := store.Folder(dir).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]bool{}
	for _, o := range all {
		has[o.Name] = true
	}
	for name := range has {
		base := filepath.Base(name)
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case base == "MANIFEST":
			for _, f := range strings.Fields(string(text)) {
				if !has[strings.TrimSuffix(name, "MANIFEST")+f] {
					t.Fatalf("%s without its %s", name, f)
				}
			}
		case strings.HasPrefix(base, "step-"):
			if steps++; !has[string(text)+"MANIFEST"] || !has["start-1/server-0/JOB"] {
				t.Fatalf("%s without its part %s", name, text)
			}
		}
	}
	return steps
}

func tree(t *testing.T, dir string) (out []string) {
	t.Helper()
	all, err := store.Folder(dir).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range all {
		if remote.KindOf(o.Name) == remote.KindNone {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, o.Name))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, fmt.Sprintf("%s %d %x", o.Name, len(text), text[:min(len(text), 8)]))
	}
	slices.Sort(out)
	return out
}

// Whatever fails, a store has whole checkpoints at any moment, and in the end all that the folder has, and no more. It holds
// invariant[whole-or-absent] and invariant[parts-first].
func TestMirror(t *testing.T) {
	for seed := range uint64(6) {
		far, near := t.TempDir(), t.TempDir()
		f := &failing{Store: store.Folder(far), rand: rand.New(rand.NewPCG(seed, 0)), share: 0.3}
		m := &remote.Mirror{Dir: near, Store: f, Patience: remote.Patience{Tries: 2, Pause: time.Nanosecond}}
		for n := 1; n <= 5; n++ {
			save(t, near, n)
			if n > 2 { // only the last two are kept
				old := n - 2
				if err := errors.Join(os.Remove(filepath.Join(near, fmt.Sprintf("step-%09d.ringo", old))), os.RemoveAll(filepath.Join(near, fmt.Sprintf("start-1/server-0/checkpoints/checkpoint-%012d", old)))); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				if err := m.Sync(t.Context()); err != nil && (!errors.Is(err, errCut) || !strings.Contains(err.Error(), "file://")) {
					t.Fatal(err)
				}
				whole(t, far)
			}
		}
		f.share = 0
		if err := m.Sync(t.Context()); err != nil || whole(t, far) != 2 {
			t.Fatal(err)
		}
		if got, want := tree(t, far), tree(t, near); !slices.Equal(got, want) {
			t.Fatalf("seed %d: the store has\n%s\nnot\n%s", seed, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		calls := f.calls
		if err := m.Sync(t.Context()); err != nil || f.calls != calls {
			t.Errorf("%d calls for nothing, %v", f.calls-calls, err)
		}
	}
}

// A host that takes up what is there has all of it, without what is of no checkpoint, and then carries what is new alone.
func TestFetch(t *testing.T) {
	far, near := t.TempDir(), t.TempDir()
	save(t, far, 1)
	save(t, far, 2)
	if err := os.Remove(filepath.Join(far, "start-1/server-0/checkpoints/checkpoint-000000000001/MANIFEST")); err != nil {
		t.Fatal(err) // as one that was not carried to its end
	}
	f := &failing{Store: store.Folder(far), rand: rand.New(rand.NewPCG(1, 1)), share: 0.4}
	m := &remote.Mirror{Dir: near, Store: f, Patience: remote.Patience{Tries: 20, Pause: time.Nanosecond}}
	all, torn, err := m.List(t.Context())
	if err != nil || len(torn) != 2 {
		t.Fatal(torn, err)
	}
	if err := m.Fetch(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	want := slices.DeleteFunc(tree(t, far), func(s string) bool { return strings.Contains(s, "checkpoint-000000000001/") })
	if got := tree(t, near); !slices.Equal(got, want) {
		t.Fatalf("it has\n%s\nnot\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if latest := remote.Checkpoints(all); len(latest) != 2 || latest[0].Name != "step-000000002.ringo" {
		t.Errorf("%v", latest)
	}
	f.share, f.calls = 0, 0
	if err := m.Sync(t.Context()); err != nil || f.calls != 0 {
		t.Errorf("%d calls, %v", f.calls, err)
	}
}

// The header of a file is enough to look: its length is that of the whole.
func TestHead(t *testing.T) {
	far, near := t.TempDir(), t.TempDir()
	put(t, far, "step-000000001.ringo", "head and the rest")
	m := &remote.Mirror{Dir: near, Store: store.Folder(far)}
	o, err := m.Store.Stat(t.Context(), "step-000000001.ringo")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int64{4, 100} {
		if err := m.Head(t.Context(), o, n); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(near, "step-000000001.ringo"))
		if err != nil || len(b) != 17 || !bytes.HasPrefix(b, []byte("head")) || (n > 17) != bytes.HasSuffix(b, []byte("rest")) {
			t.Errorf("%q, %v", b, err)
		}
	}
}

// A store that is cut off holds up nobody, is told of once, and gets all when it is back.
func TestCutOff(t *testing.T) {
	leakcheck.Check(t)
	far, near := t.TempDir(), t.TempDir()
	f := &failing{Store: store.Folder(far), rand: rand.New(rand.NewPCG(1, 1)), cut: true}
	lines := make(chan string, 100)
	m := &remote.Mirror{Dir: near, Store: f, Every: time.Millisecond, Patience: remote.Patience{Tries: 1}, Report: func(line string) { lines <- line }}
	m.Start(t.Context())
	save(t, near, 1)
	if line := <-lines; !strings.Contains(line, "cut off") || !strings.Contains(line, "the job goes on") {
		t.Error(line)
	}
	f.mu.Lock()
	f.cut = false
	f.mu.Unlock()
	save(t, near, 2)
	if err := m.End(t.Context()); err != nil || whole(t, far) != 2 {
		t.Error(err)
	}
	close(lines)
	for line := range lines {
		if !strings.HasSuffix(line, "has all that was saved again") {
			t.Errorf("told again: %s", line)
		}
	}
}

// An object that is written anew while it is read is refused: its first bytes would be of one, its last of another. What was there stays.
func TestWrittenAnew(t *testing.T) {
	far, near := t.TempDir(), t.TempDir()
	put(t, far, "step-000000001.ringo", "one")
	put(t, near, "step-000000001.ringo", "before")
	m := &remote.Mirror{Dir: near, Store: store.Folder(far), Patience: remote.Patience{Tries: 3, Pause: time.Nanosecond}}
	all, _, err := m.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	put(t, far, "step-000000001.ringo", "another")
	if err := m.Fetch(t.Context(), all); err == nil || !strings.Contains(err.Error(), "step-000000001.ringo: it was written anew") {
		t.Error(err)
	}
	if b, err := os.ReadFile(filepath.Join(near, "step-000000001.ringo")); err != nil || string(b) != "before" {
		t.Errorf("%q, %v", b, err)
	}
}

// Two that mirror to one store, each below names of its own, leave alone what is the other's; parts that are of no checkpoint go once they
// are disowned.
func TestBelow(t *testing.T) {
	far := t.TempDir()
	for i := range 2 {
		near, below := t.TempDir(), fmt.Sprintf("start-1/server-%d/", i)
		for _, name := range []string{"start-1/server-0/JOB", "start-1/server-1/JOB"} {
			put(t, near, name, below)
		}
		part := below + "checkpoints/checkpoint-000000000001/"
		put(t, far, part+"dense-0", "of a mirror that was killed")
		m := &remote.Mirror{Dir: near, Store: store.Folder(far), Prefix: below}
		whole, torn, err := m.List(t.Context())
		if err != nil || len(whole) != 0 || len(torn) != 1 || torn[0].Name != part+"dense-0" {
			t.Fatal(whole, torn, err)
		}
		m.Disown(torn)
		if err := m.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(far, below, "JOB"))
		if _, left := os.Stat(filepath.Join(far, part, "dense-0")); err != nil || string(b) != below || !errors.Is(left, fs.ErrNotExist) {
			t.Errorf("%q, %v, %v", b, err, left)
		}
	}
	if got := tree(t, far); len(got) != 2 {
		t.Errorf("%q", got)
	}
}

// Nothing is tried again that cannot succeed, and all else is, within bounds.
func TestPatience(t *testing.T) {
	near := t.TempDir()
	save(t, near, 1)
	for _, c := range []struct {
		err   error
		tries int
	}{{errCut, 3}, {&store.RefusedError{Err: errCut}, 1}} {
		s := &refusing{err: c.err, tries: map[string]int{}}
		m := &remote.Mirror{Dir: near, Store: s, Patience: remote.Patience{Tries: 3, Pause: time.Nanosecond}}
		if err := m.Sync(t.Context()); !errors.Is(err, errCut) {
			t.Error(err)
		}
		for name, n := range s.tries {
			if n != c.tries || strings.HasPrefix(name, "step-") {
				t.Errorf("%v: %s was tried %d times", c.err, name, n)
			}
		}
	}
}

type refusing struct {
	store.Store
	mu    sync.Mutex
	err   error
	tries map[string]int
}

func (r *refusing) String() string { return "s3://b" }

func (r *refusing) Write(_ context.Context, name string, _ io.Reader, _ int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tries[name]++
	return r.err
}

func TestDownload(t *testing.T) {
	far, near := t.TempDir(), filepath.Join(t.TempDir(), "here")
	put(t, far, "a.csv", "1,2,3")
	put(t, far, "mnist/train/x", "xx")
	put(t, far, "mnist/y", "yyy")
	for _, c := range []struct {
		what string
		came int64
	}{{"/a.csv", 5}, {"/a.csv", 0}, {"/mnist", 5}, {"/mnist", 0}} {
		n, err := remote.Download(t.Context(), "file://"+far+c.what, near+c.what, remote.Patience{})
		if err != nil || n != c.came {
			t.Errorf("%s: %d bytes, %v, want %d", c.what, n, err, c.came)
		}
	}
	put(t, far, "mnist/y", "yyyy")
	if n, err := remote.Download(t.Context(), "file://"+far+"/mnist/", near+"/mnist", remote.Patience{}); err != nil || n != 4 {
		t.Errorf("%d bytes, %v", n, err)
	}
	for _, none := range []string{"/none", "/mnist/z", "/a.csv/b"} {
		if _, err := remote.Download(t.Context(), "file://"+far+none, near+"/none", remote.Patience{}); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", none, err)
		}
	}
	text, err := os.ReadFile(near + "/mnist/y")
	if err != nil || string(text) != "yyyy" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestURLs(t *testing.T) {
	for text, want := range map[string]string{
		"file:///a/b":     "",
		"file://host/a":   "with a whole path",
		"file:///a?x=y":   "with a whole path",
		"s3://b/run":      "this binary reaches no buckets; in ringo's repository, build one that does: go build -C modules/cloud",
		"s3://b?secret=x": "s3://b: this binary",
		"s3:///run":       "names no bucket",
		"azblob://c/run":  "reaches no buckets",
		"gs://b/run":      "mount the bucket (gcsfuse)",
		"http://h/a":      "http://h/a: want file:///FOLDER",
		"S3://b/run":      "want file:///FOLDER",
		"s3:/b/run":       "want file:///FOLDER",
		"file:/a":         "want file:///FOLDER",
		"/a/b":            "want file:///FOLDER",
		"file:///a/%zz":   "want file:///FOLDER",

		"s3://me:secret@b/run": "it must have no credentials",
		"s3://b/run#1":         "write %23 for #",
		"s3://b/../run":        "no name . or .. among them",
		"s3://b//run":          "between single slashes",
	} {
		s, err := remote.Open(t.Context(), text)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v, want %q", text, s, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%v shows what is for the client", err)
		}
	}
	for text, want := range map[string][2]string{
		"s3://b/a/c?x=y/z": {"s3://b/a?x=y/z", "c"}, "s3://b": {"s3://b", ""}, "s3://b/": {"s3://b/", ""}, "file:///a/b/": {"file:///a", "b"}, "s3://b/x": {"s3://b", "x"},
	} {
		if parent, name := remote.Split(text); parent != want[0] || name != want[1] {
			t.Errorf("%s: %q, %q", text, parent, name)
		}
	}
	for text, want := range map[string]bool{"s3://b": true, "gs://b": true, "file:///a": true, "s4://b": true, "S3://b": true, "s3:/b": true, "file:/a": true, "no scheme://b": false, "etcd:/h": false, "/a": false, "synthetic": false, "C:/x": false} {
		if remote.IsURL(text) != want {
			t.Errorf("%s: %v", text, !want)
		}
	}
}

// A store that takes nothing is found before anything is saved, and of a look nothing stays.
func TestTry(t *testing.T) {
	dir := t.TempDir()
	seen := &watched{Store: store.Folder(dir)}
	m := &remote.Mirror{Store: seen}
	if err := m.Try(t.Context()); err != nil {
		t.Error(err)
	}
	if want := []string{"write ringo-probe of 0 bytes", "remove ringo-probe"}; !slices.Equal(seen.calls, want) {
		t.Errorf("the look does %q, want %q", seen.calls, want)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
	if err := os.WriteFile(dir+"/file", nil, 0o666); err != nil {
		t.Fatal(err)
	}
	m = &remote.Mirror{Store: store.Folder(dir + "/file"), Patience: remote.Patience{Tries: 1}}
	if err := m.Try(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "file://"+dir+"/file: nothing can be saved there: ") {
		t.Errorf("%v", err)
	}
}

// noting is a store that notes what is written and removed.
type noting struct {
	store.Store
	mu    sync.Mutex
	notes []string
}

func (n *noting) note(what, name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.notes = append(n.notes, what+" "+name)
}

func (n *noting) Write(ctx context.Context, name string, r io.Reader, size int64) error {
	n.note("write", name)
	return n.Store.Write(ctx, name, r, size)
}

func (n *noting) Remove(ctx context.Context, name string) error {
	n.note("remove", name)
	return n.Store.Remove(ctx, name)
}

// A checkpoint of servers that adds to an earlier one comes after it and goes before it; of ranks' files the last one comes first, since it
// counts where there is no time for all.
func TestOrder(t *testing.T) {
	near := t.TempDir()
	n := &noting{Store: store.Folder(t.TempDir())}
	m := &remote.Mirror{Dir: near, Store: n}
	save(t, near, 1)
	save(t, near, 2)
	if err := m.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(near); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Mkdir(near, 0o777), m.Sync(t.Context())); err != nil {
		t.Fatal(err)
	}
	order := slices.DeleteFunc(n.notes, func(s string) bool { return kindOf(s) == remote.KindPart || strings.HasSuffix(s, "JOB") })
	manifest := "start-1/server-0/checkpoints/checkpoint-00000000000%d/MANIFEST"
	want := []string{
		"write " + fmt.Sprintf(manifest, 1), "write " + fmt.Sprintf(manifest, 2), "write step-000000002.ringo", "write step-000000001.ringo",
		"remove step-000000002.ringo", "remove step-000000001.ringo", "remove " + fmt.Sprintf(manifest, 2), "remove " + fmt.Sprintf(manifest, 1),
	}
	if !slices.Equal(order, want) {
		t.Errorf("the order is\n%s\nnot\n%s", strings.Join(order, "\n"), strings.Join(want, "\n"))
	}
}

// kindOf is remote.KindOf of what a note names.
func kindOf(note string) remote.Kind {
	_, name, _ := strings.Cut(note, " ")
	return remote.KindOf(name)
}

// watched is a store that notes what is written and removed.
type watched struct {
	store.Store
	calls []string
}

func (w *watched) Write(ctx context.Context, name string, r io.Reader, size int64) error {
	w.calls = append(w.calls, fmt.Sprintf("write %s of %d bytes", name, size))
	return w.Store.Write(ctx, name, r, size)
}

func (w *watched) Remove(ctx context.Context, name string) error {
	w.calls = append(w.calls, "remove "+name)
	return w.Store.Remove(ctx, name)
}
