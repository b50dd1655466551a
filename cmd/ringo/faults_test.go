package main

import (
	"bytes"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/freeport"
)

var update = flag.Bool("update", false, "write testdata/faults.txt anew, to be read in review")

// withSums and withTables start the servers of each kind.
const (
	withSums   = "--sync aggregate --servers 1 "
	withTables = "--sync async --servers 1 "
)

// faultKinds are the kinds of faults that a person sees, each with what brings it about in a folder of its own.
var faultKinds = []struct {
	kind string
	run  func(t *testing.T, dir string) *program
}{
	{"a setting that cannot be, and one that is no setting", func(t *testing.T, dir string) *program {
		return start(t, "train mlp --data synthetic --batch 0 --lr -1 --strategy dlsg")
	}},
	{"data that is not there", func(t *testing.T, dir string) *program {
		return start(t, "train mlp --np 2 --data "+dir+"/none")
	}},
	{"a rank is killed", func(t *testing.T, dir string) *program { return struck(t, "--np 2", 1, syscall.SIGKILL) }},
	{"a rank is stopped", func(t *testing.T, dir string) *program {
		return struck(t, "--np 2 "+lostSoon, 1, syscall.SIGSTOP)
	}},
	{"a server that sums is killed", func(t *testing.T, dir string) *program { return struck(t, "--np 2 "+withSums, 2, syscall.SIGKILL) }},
	{"a server of tables is killed", func(t *testing.T, dir string) *program {
		p := start(t, endless+"--np 1 "+withTables)
		p.await(&p.out, "epoch       2/")
		hit(t, p.keeper(0), syscall.SIGKILL)
		return p
	}},
	{"a rank ends by itself", func(t *testing.T, dir string) *program {
		return scripted(t, dir, "[ $RINGO_RANK = 1 ] && { echo it gives up; exit 3; }\nsleep 600", "")
	}},
	{"a rank does not come", func(t *testing.T, dir string) *program {
		return scripted(t, dir, "[ $RINGO_RANK = 1 ] && exec sleep 600\nexec "+os.Args[0]+" train mlp "+small+"--np 2 --join-timeout 3s", "--join-timeout 3s ")
	}},
	{"ranks that were told different things", func(t *testing.T, dir string) *program {
		return scripted(t, dir, "exec "+os.Args[0]+" train mlp "+small+"--np 2 --lr 0.00$((1 + RINGO_RANK))", "")
	}},
	{"ranks that do different things", func(t *testing.T, dir string) *program {
		return scripted(t, dir, "export ODD_RANK=\"$(env | grep ^RINGO_)\"\nunset "+actVar+"\nexec "+os.Args[0]+" -test.run '^TestOddRank$'", "")
	}},
	{"a rank with another ticket", func(t *testing.T, dir string) *program {
		address, right := freeport.Address(t), ticket()
		zero := byHand(t, "train mlp "+small, "0", address, right)
		stranger := byHand(t, "train mlp "+small, "1", address, ticket())
		zero.await(&zero.errs, "refused a connection")
		byHand(t, "train mlp "+small, "1", address, right).checkEnd(0)
		zero.checkEnd(0)
		_, _ = stranger.errs.Write([]byte("rank 0 says: " + zero.errs.String()))
		return stranger
	}},
	{"a port that is taken", func(t *testing.T, dir string) *program {
		address, right := freeport.Address(t), ticket()
		one := byHand(t, "train mlp "+small+"--join-timeout 2s", "0", address, right)
		eventually(t, "rank 0 to listen", func() bool {
			conn, err := net.DialTimeout("tcp", address, time.Second)
			if err == nil {
				conn.Close()
			}
			return err == nil
		})
		other := byHand(t, "train mlp "+small, "0", address, right)
		one.wait()
		return other
	}},
	{"a loss that blows up", func(t *testing.T, dir string) *program {
		return start(t, "train mlp "+small+"--np 2 --lr 1e30")
	}},
	{"no room for what is written", func(t *testing.T, dir string) *program {
		return start(t, "train mlp "+small+"--json /dev/full")
	}},
	{"a checkpoint that is damaged", func(t *testing.T, dir string) *program {
		line := "train mlp " + small + "--np 2 --checkpoint " + dir
		start(t, line).checkEnd(0)
		names, _ := filepath.Glob(dir + "/step-*")
		for _, name := range names {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			b[len(b)/2] ^= 1
			if err := os.WriteFile(name, b, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		return start(t, line+" --resume --epochs 2")
	}},
	{"a checkpoint of another run", func(t *testing.T, dir string) *program {
		line := "train mlp " + small + "--checkpoint " + dir
		start(t, line+" --np 2").checkEnd(0)
		return start(t, line+" --resume --np 2 --seed 7 --optimizer adam")
	}},
	{"it is told to end", func(t *testing.T, dir string) *program {
		p := start(t, endless+"--np 2 --checkpoint "+dir)
		p.await(&p.out, "epoch       2/")
		hit(t, p.cmd.Process.Pid, syscall.SIGTERM)
		return p
	}},
	{"servers that cannot begin", func(t *testing.T, dir string) *program {
		return start(t, "train ctr-dnn --data synthetic --train-limit 64 --eval-limit 16 --batch 16 --threads 1 --progress none --np 2 "+withTables+"--ps-memory 64KiB --ps-dir "+dir)
	}},
}

// struck hits a member of a run in the middle of training.
func struck(t *testing.T, flags string, member int, sig syscall.Signal) *program {
	p := start(t, endless+flags)
	p.await(&p.out, "epoch       2/")
	hit(t, p.worker(member), sig)
	return p
}

func hit(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatal(err)
	}
}

// scripted is two ranks of a shell's.
func scripted(t *testing.T, dir, text, flags string) *program {
	path := filepath.Join(dir, "program")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o777); err != nil {
		t.Fatal(err)
	}
	return start(t, "run --np 2 "+flags+"-- "+path)
}

// TestOddRank is no test, but a rank that starts another operation than rank 0.
func TestOddRank(t *testing.T) {
	place := os.Getenv("ODD_RANK") // TestMain takes the variables away
	if place == "" {
		t.Skip("only for another test")
	}
	for line := range strings.Lines(place) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		os.Setenv(name, value)
	}
	err := ringo.Run(t.Context(), ringo.Config{}, func(job *ringo.Job) error {
		return collective.AllReduce(job.Group(), make([]float32, 1000+job.Rank()), collective.Sum)
	})
	if !ringo.Reported(err) {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(1)
}

// What differs from run to run, and what stands in its place.
var varies = []struct{ what, stands string }{
	{`/tmp/[^ ,;:"]*/00\d|/[^ ,;:"]*/Test[^ ,;:"]*/\d+`, "DIR"},
	{`127\.0\.0\.1:\d+`, "HOST:PORT"},
	{`(?m)^ringo: ranks are (not )?bound.*\n`, ""}, // which is the machine's affair
	{`in step \d+ of epoch \d+(, bucket \d+ \([^)]*\))?|while [a-z ]+ after step \d+( of epoch \d+)?`, "in step 12 of epoch 2, bucket 0 (first … last)"},
	{`(SIGKILL\))[^;]*; ranks 0 and 1 ended because of it[^;]*;`, "$1, in step 12 of epoch 2, bucket 0 (first … last); ranks 0 and 1 ended because of it;"},
	// Who hears of the other's fault before its own has ended because of it.
	{`rank [01] failed: ((?:start all|collective: operation|in step .*: the loss)[^;]*)(; .*)?; rank [01] ended because of it.*`, "ranks 0 and 1 failed: $1$2"},
	{`(?m)^(\[[^]]*\] )?(trainer|server|parameter server) .* is up.*\n|^ringo: rank \d+ is slow.*\n`, ""},
	{`(?m)^\[ps \d\] ringo: server \d: a connection from .*\n`, ""}, // one or both ranks have come
	{`(?m)^  black box: .*\n`, ""}, // which tells of the moment
	{`(checksum|says) [0-9a-f]{8}`, "$1 89abcdef"},
	{`after step \d+`, "after step 34"},
	{`step-\d+\.ringo`, "step-34.ringo"},
	{`job "[0-9a-f]+"`, `job "1234"`},
	{`offset \d+`, "offset 5678"},
}

// What the terminal shows of each kind of fault, and the exit status: the text to read where a sentence is to become better.
func TestFaultsAreToldInWords(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("other systems have other words")
	}
	if testing.Short() {
		t.Skip("each fault has tests of its own")
	}
	texts := make([]string, len(faultKinds))
	t.Run("kinds", func(t *testing.T) {
		for i, k := range faultKinds {
			t.Run(k.kind, func(t *testing.T) {
				t.Parallel()
				p := k.run(t, t.TempDir())
				status, said := p.wait(), p.errs.String()
				for _, v := range varies {
					said = regexp.MustCompile(v.what).ReplaceAllString(said, v.stands)
				}
				texts[i] = fmt.Sprintf("# %s\n\n%s$? is %d\n\n", k.kind, said, status)
			})
		}
	})
	got := []byte(strings.Join(texts, ""))
	const golden = "testdata/faults.txt"
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("faults are told otherwise now; if that is better, go test -run FaultsAreTold -update ./cmd/ringo and read the difference:\n%s", got)
	}
}
