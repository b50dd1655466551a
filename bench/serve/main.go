// Command serve loads `ringo serve` with many clients, slow and broken ones among them, swaps the
// checkpoint in the middle, and checks every answer against `ringo predict`.
//
//	go run ./bench/serve --model mlp --clients 1000 --duration 60s
//
// The capacity is measured first, with a fixed number of clients. The clients then send half of it.
package main

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"image"
	"image/png"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

func main() {
	b := bench{}
	debug.SetGCPercent(800) // what is measured is the server's latency, not this program's
	flag.StringVar(&b.ringo, "ringo", "", "the program; empty: built from this module")
	flag.StringVar(&b.model, "model", "mlp", "mlp (a table of 12 columns), or mnist or cifar-resnet20 (images)")
	flag.IntVar(&b.clients, "clients", 1000, "clients, a twentieth of them slow, and as many broken")
	flag.DurationVar(&b.duration, "duration", time.Minute, "duration of the load")
	flag.DurationVar(&b.wait, "batch-wait", 2*time.Millisecond, "--batch-wait of ringo serve")
	flag.Float64Var(&b.load, "load", 0.5, "part of the capacity")
	flag.BoolVar(&b.bare, "bare", false, "a server without a model instead of ringo: the cost of the clients and of net/http")
	flag.Parse()
	if flag.Arg(0) == "serve" {
		answerOnly()
	}
	dir, err := os.MkdirTemp("", "bench-serve-")
	if err == nil {
		b.dir = dir
		err = errors.Join(b.run(), os.RemoveAll(dir))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench/serve:", err)
		os.Exit(1)
	}
}

type bench struct {
	ringo, model, dir string
	clients           int
	duration, wait    time.Duration
	load              float64
	bare              bool

	bodies  []string            // a row each
	want    map[string][]string // predictions of all rows, by version
	address string

	answered, wrong, lost, rejected atomic.Int64
	first                           atomic.Pointer[string] // first problem
	mu                              sync.Mutex
	times                           []time.Duration
	versions                        map[string]int
}

func (b *bench) run() error {
	if b.bare {
		b.ringo = os.Args[0]
	} else if b.ringo == "" {
		b.ringo = filepath.Join(b.dir, "ringo")
		if text, err := exec.Command("go", "build", "-o", b.ringo, "./cmd/ringo").CombinedOutput(); err != nil {
			return fmt.Errorf("go build: %w: %s", err, text)
		}
	}
	input, args, err := b.generate()
	if err != nil {
		return err
	}
	newer, err := b.train(input, args)
	if err != nil {
		return err
	}
	cmd, err := b.serve()
	if err != nil {
		return err
	}
	err = b.measure(cmd.Process.Pid, newer)
	_ = cmd.Process.Signal(syscall.SIGTERM)
	if ended := cmd.Wait(); !b.bare {
		err = errors.Join(err, ended)
	}
	return err
}

// generate writes the rows to predict, and returns the input of `ringo predict` and the words of
// `ringo train`.
func (b *bench) generate() (input string, train []string, err error) {
	r := rand.New(rand.NewPCG(1, 1))
	switch b.model {
	case "mnist":
		return b.images(r, 28, 1)
	case "cifar-resnet20":
		return b.images(r, 32, 3)
	}
	var text strings.Builder
	text.WriteString("a,b,c,d,e,f,g,h,city,job,plan,device,bought\n")
	for i := range 40000 {
		var x [8]float64
		row, sum := "{", 0.0
		for k := range x {
			x[k] = float64(r.IntN(20000)-10000) / 100
			sum += x[k] * float64(k%3-1)
			fmt.Fprintf(&text, "%v,", x[k])
			row += fmt.Sprintf("%q:%v,", "abcdefgh"[k:k+1], x[k])
		}
		var words [4]string
		for k, name := range []string{"city", "job", "plan", "device"} {
			words[k] = fmt.Sprintf("%s%d", name, r.IntN(5+10*k))
			row += fmt.Sprintf("%q:%q,", name, words[k])
		}
		label := "no"
		if sum+50*r.NormFloat64() > 0 == (words[0] != "city1") {
			label = "yes"
		}
		fmt.Fprintf(&text, "%s,%s\n", strings.Join(words[:], ","), label)
		if i < 1000 {
			b.bodies = append(b.bodies, strings.TrimSuffix(row, ",")+"}")
		}
	}
	all := filepath.Join(b.dir, "all.csv")
	input = filepath.Join(b.dir, "rows.csv")
	lines := strings.SplitAfterN(text.String(), "\n", 1002)
	err = errors.Join(os.WriteFile(all, []byte(text.String()), 0o644), os.WriteFile(input, []byte(strings.Join(lines[:1001], "")), 0o644))
	return input, []string{"mlp", "--data", all}, err
}

// images writes square images of random pixels.
func (b *bench) images(r *rand.Rand, side, channels int) (input string, train []string, err error) {
	input = filepath.Join(b.dir, "images")
	err = os.Mkdir(input, 0o755)
	for i := 0; i < 100 && err == nil; i++ {
		pixels := make([]byte, side*side*channels)
		for k := range pixels {
			pixels[k] = byte(r.IntN(256) * (r.IntN(4) / 3))
		}
		err = os.WriteFile(filepath.Join(input, fmt.Sprintf("%03d.png", i)), encode(pixels, side, channels), 0o644)
		b.bodies = append(b.bodies, `{"pixels":`+strings.Join(strings.Fields(fmt.Sprint(pixels)), ",")+`}`)
	}
	return input, []string{b.model, "--data", "synthetic", "--train-limit", "640", "--eval-limit", "100"}, err
}

// train trains two checkpoints, and leaves the older one in the folder to serve.
func (b *bench) train(input string, args []string) (newer string, err error) {
	b.want = map[string][]string{}
	if b.bare {
		b.want["bare"] = slices.Repeat([]string{`"prediction":0`}, len(b.bodies))
		return "", nil
	}
	for epochs := 1; epochs <= 2; epochs++ {
		run := filepath.Join(b.dir, fmt.Sprintf("run%d", epochs))
		out, err := exec.Command(b.ringo, append(append([]string{"train"}, args...), "--epochs", strconv.Itoa(epochs), "--checkpoint", run, "--progress", "none")...).CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("ringo train: %w: %s", err, out)
		}
		files, _ := filepath.Glob(filepath.Join(run, "step-*.ringo"))
		slices.Sort(files)
		for _, old := range files[:len(files)-1] {
			_ = os.Remove(old)
		}
		newer = files[len(files)-1]
		lines, err := exec.Command(b.ringo, "predict", newer, "--data", input, "--progress", "none").Output()
		if err != nil {
			return "", fmt.Errorf("ringo predict: %w", err)
		}
		version := strings.TrimLeft(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(newer), "step-"), ".ringo"), "0")
		for line := range strings.Lines(string(lines)) {
			b.want[version] = append(b.want[version], line[strings.Index(line, `"prediction"`):len(line)-2])
		}
	}
	return newer, nil
}

// answerOnly reads requests and answers all alike.
func answerOnly() {
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		fmt.Fprintf(os.Stderr, "form: http://%s/\n", at.Addr())
		err = http.Serve(at, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = io.WriteString(w, `{"version":"bare","rows":[{"row":0,"prediction":0}]}`)
		}))
	}
	fmt.Fprintln(os.Stderr, "bench/serve:", err)
	os.Exit(1)
}

// serve starts `ringo serve` and waits for the address.
func (b *bench) serve() (*exec.Cmd, error) {
	cmd := exec.Command(b.ringo, "serve", filepath.Join(b.dir, "run1"), "--http", "127.0.0.1:0", "--batch-wait", b.wait.String())
	errs, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewReader(errs)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return nil, errors.Join(fmt.Errorf("ringo serve: %s", line), cmd.Wait())
		}
		if m := regexp.MustCompile(`form: (http://127\.0\.0\.1:\d+)/`).FindStringSubmatch(line); m != nil {
			b.address = m[1]
			go func() { _, _ = io.Copy(os.Stderr, lines) }()
			return cmd, nil
		}
	}
}

func (b *bench) measure(pid int, newer string) error {
	const busy = 64
	b.versions = map[string]int{}
	start := time.Now()
	b.each(busy, 10*time.Second, 0)
	capacity := float64(b.answered.Load()) / time.Since(start).Seconds()
	rows, batches, forward := b.scrape()
	fmt.Printf("capacity: %.0f requests of a row a second by %d clients\n", capacity, busy)
	if !b.bare {
		fmt.Printf("model: %.1f rows a forward pass of %.3f ms\n", rows/batches, 1e3*forward/batches)
	}
	limit := 3*time.Duration(forward/batches*float64(time.Second)) + b.wait
	b.answered.Store(0)
	b.times, b.versions = nil, map[string]int{}
	stop := make(chan struct{})
	var peak atomic.Int64
	go watch(pid, &peak, stop)
	good := b.clients - 2*(b.clients/20)
	for range b.clients / 20 {
		go b.slow(stop)
		go b.broken(stop)
	}
	time.AfterFunc(b.duration/2, func() {
		if b.bare {
			return
		}
		if err := os.Rename(newer, filepath.Join(b.dir, "run1", filepath.Base(newer))); err != nil {
			b.problem("swap: %v", err)
		}
	})
	b.each(good, b.duration, time.Duration(float64(good)/(b.load*capacity)*float64(time.Second)))
	close(stop)
	rows2, batches2, forward2 := b.scrape()
	slices.Sort(b.times)
	at := func(p float64) time.Duration {
		return b.times[int(p*float64(len(b.times)-1))].Round(10 * time.Microsecond)
	}
	fmt.Printf("load: %d clients for %v, %d of them slow and %d broken: %d answers, %.0f a second\n", b.clients, b.duration, b.clients/20, b.clients/20, b.answered.Load(), float64(b.answered.Load())/b.duration.Seconds())
	fmt.Printf("answers by version: %v; wrong: %d, lost: %d, rejected with 429 or 503: %d\n", b.versions, b.wrong.Load(), b.lost.Load(), b.rejected.Load())
	fmt.Printf("latency: median %v, p99 %v, p99.9 %v\n", at(0.5), at(0.99), at(0.999))
	if !b.bare {
		fmt.Printf("limit of p99: %v, 3 forward passes and the wait for a batch; %.1f rows a pass of %.3f ms under this load\n", limit.Round(10*time.Microsecond), (rows2-rows)/(batches2-batches), 1e3*(forward2-forward)/(batches2-batches))
	}
	fmt.Printf("memory: at most %d MiB resident\n", peak.Load()>>20)
	if p := b.first.Load(); p != nil {
		return errors.New(*p)
	}
	if len(b.versions) < 2 && !b.bare {
		return fmt.Errorf("answers by versions %v: want both", b.versions)
	}
	return nil
}

// scrape returns the rows, forward passes and their seconds until now.
func (b *bench) scrape() (rows, batches, seconds float64) {
	res, err := (&http.Client{Timeout: 30 * time.Second}).Get(b.address + "/metrics")
	if err != nil {
		b.problem("metrics: %v", err)
		return 0, 1, 0
	}
	defer res.Body.Close()
	in := bufio.NewScanner(res.Body)
	for in.Scan() {
		name, value, _ := strings.Cut(in.Text(), " ")
		x, _ := strconv.ParseFloat(value, 64)
		switch {
		case name == "ringo_serve_rows_total":
			rows = x
		case name == "ringo_serve_forward_seconds_total":
			seconds = x
		case strings.HasPrefix(name, "ringo_serve_batches_total{"):
			batches += x
		}
	}
	return rows, batches, seconds
}

// watch notes the largest resident memory of a process.
func watch(pid int, peak *atomic.Int64, stop <-chan struct{}) {
	for {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
		if f := strings.Fields(string(text)); len(f) > 1 {
			pages, _ := strconv.ParseInt(f[1], 10, 64)
			peak.Store(max(peak.Load(), pages*int64(os.Getpagesize())))
		}
		select {
		case <-stop:
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// encode returns a square image, grey or with three channels, as PNG.
func encode(pixels []byte, side, channels int) []byte {
	of := image.NewNRGBA(image.Rect(0, 0, side, side))
	for i := range side * side {
		p := pixels[i*channels:]
		copy(of.Pix[4*i:], []byte{p[0], p[channels/2], p[channels-1], 255})
	}
	var out bytes.Buffer
	_ = png.Encode(&out, of) // memory never fails
	return out.Bytes()
}
