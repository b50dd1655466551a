package check

import (
	"archive/tar"
	"compress/gzip"
	"flag"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// recipe asks for the very command of the recipe, whose -trimpath builds all packages anew; without, the build cache has most.
var recipe = flag.Bool("recipe", false, "build the image's binary with -trimpath, as the recipe does")

// mostImage is how many bytes the image may have, as it lies on a node's disk.
const mostImage = 60_000_000

// authorities is about as much as the certificates of a system take.
const authorities = 250_000

// The image that deploy/Containerfile describes has a layer with the binary and one with certificates, and is small. No daemon is needed to know
// that: the binary is built by the recipe's command, and put into a layer as tar. It trains with nothing else there.
func TestImage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "Containerfile"))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^RUN CGO_ENABLED=0 go build (.*) -o /out/ringo \./cmd/ringo && `).FindSubmatch(text)
	if found == nil {
		t.Fatal("the recipe does not say how ringo is built")
	}
	flags := strings.Fields(strings.ReplaceAll(string(found[1]), `"-s -w"`, "-s,-w"))
	out := filepath.Join(t.TempDir(), "ringo")
	args := []string{"build", "-o", out}
	for _, f := range flags {
		if f != "-trimpath" || *recipe {
			args = append(args, strings.ReplaceAll(f, "-s,-w", "-s -w"))
		}
	}
	build := exec.Command("go", append(args, "./cmd/ringo")...)
	build.Dir, build.Env = filepath.Join("..", ".."), append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go %v: %v\n%s", build.Args, err, said)
	}
	plain, packed := layer(t, out)
	t.Logf("the layer has %.1f MB, %.1f MB as it travels", float64(plain)/1e6, float64(packed)/1e6)
	page, err := os.ReadFile(filepath.Join("..", "README.md"))
	said := regexp.MustCompile(`one static binary of (\d+) MB and nothing else, (\d+) MB as it travels`).FindSubmatch(page)
	if err != nil || said == nil {
		t.Fatalf("deploy/README.md does not say how large the image is: %v", err)
	}
	for i, have := range []int64{plain, packed} {
		if mb, _ := strconv.ParseFloat(string(said[1+i]), 64); math.Abs(float64(have)/1e6-mb) > mb/20 {
			t.Errorf("deploy/README.md says %v MB, there are %d bytes", mb, have)
		}
	}
	if plain += authorities; plain > mostImage {
		t.Errorf("the image has %d bytes, want %d at most", plain, mostImage)
	}
	if os.Geteuid() != 0 {
		return // who is not root has no other root folder
	}
	root := filepath.Dir(out)
	if err := os.Mkdir(filepath.Join(root, "tmp"), 0o777); err != nil {
		t.Fatal(err)
	}
	alone := exec.Command("/ringo", "train", "mlp", "--data", "synthetic", "--np", "1", "--train-limit", "64", "--eval-limit", "64", "--epochs", "1")
	alone.Path, alone.Err, alone.Dir, alone.Env = "/ringo", nil, "/", []string{"HOME=/"}
	alone.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	if said, err := alone.CombinedOutput(); err != nil || !strings.Contains(string(said), "params sha256 ") {
		t.Errorf("in an empty image: %v\n%s", err, said)
	}
}

// layer puts the binary, and a folder for temporary files, into a layer, and returns its bytes on disk and as they travel.
func layer(t *testing.T, binary string) (plain, packed int64) {
	t.Helper()
	var onDisk, travelling counter
	zip := gzip.NewWriter(&travelling)
	w := tar.NewWriter(io.MultiWriter(&onDisk, zip))
	f, err := os.Open(binary)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range []*tar.Header{{Name: "tmp/", Mode: 0o1777, Typeflag: tar.TypeDir}, {Name: "ringo", Mode: 0o755, Size: info.Size()}} {
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.Copy(w, f); err != nil {
		t.Fatal(err)
	}
	for _, c := range []io.Closer{w, zip} {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return int64(onDisk), int64(travelling)
}

type counter int64

func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }
