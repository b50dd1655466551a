package cloud_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/remote"
	"github.com/ringo-ml/ringo/internal/remote/store"
	"github.com/ringo-ml/ringo/internal/remote/store/storetest"
)

// unsteady answers a share of requests with an error of the server, as clouds do when they are busy.
func unsteady(share float64) func(http.Handler) http.Handler {
	var mu sync.Mutex
	r := rand.New(rand.NewPCG(1, 1))
	return func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			mu.Lock()
			fails := r.Float64() < share
			mu.Unlock()
			if fails {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			h.ServeHTTP(w, req)
		})
	}
}

// A mirror to a bucket that fails now and then has all in the end; one that is not there, or may not be used, is refused at once.
func TestUnsteady(t *testing.T) {
	s := open(t, "s3://jobs/run"+serveS3(t, unsteady(0.2)))
	dir := t.TempDir()
	part := filepath.Join(dir, "start-1/server-0/checkpoints/checkpoint-000000000001")
	if err := errors.Join(os.MkdirAll(part, 0o777), os.WriteFile(part+"/dense-0", make([]byte, 6<<20), 0o666), os.WriteFile(part+"/MANIFEST", nil, 0o666), os.WriteFile(dir+"/step-000000001.ringo", []byte("x"), 0o666)); err != nil {
		t.Fatal(err)
	}
	m := &remote.Mirror{Dir: dir, Store: s, Patience: remote.Patience{Tries: 20, Pause: time.Millisecond}}
	if err := m.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if all, torn, err := m.List(t.Context()); err != nil || len(all) != 3 || len(torn) != 0 {
		t.Errorf("%v, %v", all, err)
	}
	none := &remote.Mirror{Dir: dir, Store: open(t, "s3://none/run"+serveS3(t, nil))}
	begun := time.Now()
	var refused *store.RefusedError
	if err := none.Sync(t.Context()); !errors.As(err, &refused) || time.Since(begun) > 10*time.Second {
		t.Errorf("after %v: %v", time.Since(begun), err)
	}
}

var parameters = regexp.MustCompile(`params sha256 (\w+)`)

// A job of processes, built with buckets, reads its data from one and saves to one; told to end, it goes on from there.
func TestJob(t *testing.T) {
	ringo := filepath.Join(t.TempDir(), "ringo")
	build := exec.Command("go", "build", "-overlay", "overlay.json", "-o", ringo, "../../cmd/ringo")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	info, err := os.Stat(ringo)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../docs/cluster.md")
	said := regexp.MustCompile(`with the clients of buckets has (\d+) MB`).FindSubmatch(text)
	if err != nil || said == nil {
		t.Fatalf("docs/cluster.md does not say how large that binary is: %v", err)
	}
	if mb, _ := strconv.ParseFloat(string(said[1]), 64); math.Abs(float64(info.Size())/1e6-mb) > mb/20 {
		t.Errorf("docs/cluster.md says %v MB, the binary has %d bytes", mb, info.Size())
	}
	t.Run("S3", func(t *testing.T) { trains(t, ringo, "s3://jobs", serveS3(t, unsteady(0.05))) })
	t.Run("Azure", func(t *testing.T) { trains(t, ringo, "azblob://jobs", serveAzure(t)) })
}

// trains trains with a bucket's data, and saves there, in one go and in two.
func trains(t *testing.T, ringo, at, query string) {
	bucket := open(t, at+query)
	rows := "kind,size,town\n" + strings.Repeat("0,1.5,a\n1,-1.5,b\n0,1.2,b\n", 2000)
	if err := bucket.Write(t.Context(), "x.csv", strings.NewReader(rows), int64(len(rows))); err != nil {
		t.Fatal(err)
	}
	words := []string{"train", "mlp", "--data", at + "/x.csv" + query, "--set", "data.target=kind", "--batch", "8", "--epochs", "20", "--np", "2", "--threads", "1", "--progress", "none"}
	run := func(ctx context.Context, more ...string) (string, error) {
		cmd := exec.CommandContext(ctx, ringo, append(words, more...)...)
		cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir()) // each is on a host that has nothing
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		err := cmd.Run()
		return out.String(), err
	}
	out, err := run(t.Context())
	want := parameters.FindString(out)
	if err != nil || want == "" {
		t.Fatalf("%v\n%s", err, out)
	}
	saves := []string{"--checkpoint", at + "/run" + query, "--checkpoint-every", "100", "--resume=auto"}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { // once it has saved something
		for ctx.Err() == nil {
			time.Sleep(20 * time.Millisecond)
			all, _ := bucket.List(ctx)
			for _, o := range all {
				if strings.HasPrefix(o.Name, "run/step-") {
					cancel()
				}
			}
		}
	}()
	out, err = run(ctx, saves...)
	var ended *exec.ExitError
	if errors.As(err, &ended) && ended.ExitCode() != 143 || err != nil && ended == nil && !errors.Is(err, context.Canceled) { // canceled: it had ended before the signal
		t.Fatalf("%v\n%s", err, out)
	}
	out, err = run(t.Context(), saves...)
	if err != nil || parameters.FindString(out) != want || !strings.Contains(out, "resumed after ") {
		t.Errorf("%v\n%s\nwant %s", err, out, want)
	}
	cmd := exec.Command(ringo, "eval", at+"/run"+query, "--progress", "none")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "accuracy") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestAzure(t *testing.T) {
	query := serveAzure(t)
	storetest.Run(t, open(t, "azblob://jobs/mnist/run"+query))
	other := open(t, "azblob://jobs/mnist/run2"+query) // a prefix ends with its folder
	if err := other.Write(t.Context(), "a", strings.NewReader("b"), 1); err != nil {
		t.Fatal(err)
	}
	if all, err := other.List(t.Context()); err != nil || len(all) != 1 || other.String() != "azblob://jobs/mnist/run2" {
		t.Errorf("%v, %v, %v", all, err, other)
	}
	if got, want := looked(t, "azblob://missing/run"+query), "azblob://missing/run: looking what is there: there is no such bucket or container: make it, or mend its name (ContainerNotFound, status 404)"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
