package etcd_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/cluster/rendezvous"
	"github.com/ringo-ml/ringo/modules/etcd"
)

var (
	faults = flag.Int("faults", 2, "how often etcd fails while a job trains: killed and started again, or cut off, in turn")
	apart  = flag.Duration("apart", 500*time.Millisecond, "how long each time")
)

// Ranks meet in etcd and exchange on while it is killed, started again, and cut off: nobody is taken for dead, and afterwards the
// notice is there again.
func TestJobOutlivesEtcd(t *testing.T) {
	s := etcd.NewServer(t, "http")
	location := "etcd://" + s.Address() + "/jobs/1"
	dir := t.TempDir()
	ticket := filepath.Join(dir, "ticket")
	if err := rendezvous.NewTicket(ticket); err != nil {
		t.Fatal(err)
	}
	const size = 3
	var stop atomic.Bool
	var steps atomic.Int64
	ended := make(chan error, size)
	for rank := range size {
		cfg := ringo.Config{Size: size, Rank: rank, Rendezvous: location, TicketFile: ticket, OpenBackend: etcd.Open, Transport: ringo.TransportTCP}
		go func() {
			ended <- ringo.Run(context.Background(), cfg, func(job *ringo.Job) error {
				for {
					x := []float32{1, 0} // a step, and whether rank 0 wants to stop
					if job.Rank() == 0 && stop.Load() {
						x[1] = 1
					}
					if err := collective.AllReduce(job.Group(), x, collective.Sum); err != nil || x[1] > 0 {
						return err
					}
					if x[0] != size {
						return fmt.Errorf("a sum of %v", x[0])
					}
					steps.Add(1)
				}
			})
		}()
	}
	goesOn := func(when string) {
		t.Helper()
		for end, from := time.Now().Add(30*time.Second), steps.Load(); steps.Load() < from+100; time.Sleep(time.Millisecond) {
			select {
			case err := <-ended:
				t.Fatalf("%s: a rank has ended: %v", when, err)
			default:
			}
			if time.Now().After(end) {
				t.Fatalf("%s: no step", when)
			}
		}
	}
	goesOn("at first")
	for i := range *faults {
		if i%2 == 0 {
			s.Kill()
			goesOn("with etcd killed")
			time.Sleep(*apart)
			s.Start()
		} else {
			s.Freeze()
			goesOn("with etcd cut off")
			time.Sleep(*apart)
			s.Thaw()
		}
		goesOn("with etcd back")
		found(t, location)
	}
	stop.Store(true)
	for range size {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	place, _ := etcd.Open(location)
	if n, err := place.Lookup(t.Context(), ""); err == nil {
		t.Errorf("%+v is left", n)
	}
}

// found waits until rank 0's notice is there.
func found(t *testing.T, location string) {
	t.Helper()
	place, err := etcd.Open(location)
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if _, err = place.Lookup(t.Context(), ""); err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// documented is the command line of docs/cluster.md that builds a ringo which knows etcd.
var documented = regexp.MustCompile(`(?m)^    go (build -C modules/etcd .*) -o ../../ringo (.*)$`)

// The command that is built as docs/cluster.md says has its ranks meet in etcd.
func TestCommand(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the command")
	}
	s := etcd.NewServer(t, "http")
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "docs", "cluster.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := documented.FindSubmatch(text)
	if found == nil {
		t.Fatal("docs/cluster.md does not say how to build")
	}
	dir := t.TempDir()
	program, ticket := filepath.Join(dir, "ringo"), filepath.Join(dir, "ticket")
	args := append(strings.Fields(string(found[1])), "-o", program)
	build := exec.Command("go", append(args, strings.Fields(string(found[2]))...)...)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	info, err := os.Stat(program)
	if err != nil {
		t.Fatal(err)
	}
	said := regexp.MustCompile(`with etcd's client has (\d+) MB`).FindSubmatch(text)
	if said == nil {
		t.Fatal("docs/cluster.md does not say how large that binary is")
	}
	if mb, _ := strconv.ParseFloat(string(said[1]), 64); math.Abs(float64(info.Size())/1e6-mb) > mb/20 {
		t.Errorf("docs/cluster.md says %v MB, the binary has %d bytes", mb, info.Size())
	}
	run := func(line ...string) error {
		out, err := exec.Command(program, line...).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("ringo %s: %w\n%s", strings.Join(line, " "), err, out)
		}
		return err
	}
	if err := run("ticket", ticket); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 2)
	for _, rank := range []string{"1", "0"} {
		go func() {
			ended <- run("train", "mlp", "--data", "synthetic", "--train-limit", "640", "--eval-limit", "64", "--epochs", "1", "--np", "2", "--rank", rank,
				"--rendezvous", "etcd://"+s.Address()+"/jobs/mlp", "--ticket-file", ticket)
		}()
	}
	if err := errors.Join(<-ended, <-ended); err != nil {
		t.Error(err)
	}
}
