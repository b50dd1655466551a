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
	"encoding/json"
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
	flag.Parse()
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

	bodies  []string            // a row each
	want    map[string][]string // predictions of all rows, by version
	address string
	client  http.Client

	answered, wrong, lost, rejected atomic.Int64
	first                           atomic.Pointer[string] // first problem
	mu                              sync.Mutex
	times                           []time.Duration
	versions                        map[string]int
}

func (b *bench) run() error {
	if b.ringo == "" {
		b.ringo = filepath.Join(b.dir, "ringo")
		if text, err := exec.Command("go", "build", "-o", b.ringo, "./cmd/ringo").CombinedOutput(); err != nil {
			return fmt.Errorf("go build: %w: %s", err, text)
		}
	}
	b.client = http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: b.clients}, Timeout: 30 * time.Second}
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
	return errors.Join(err, cmd.Wait())
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
	start := time.Now()
	b.each(busy, 10*time.Second, 0)
	capacity := float64(b.answered.Load()) / time.Since(start).Seconds()
	rows, batches, forward := b.scrape()
	fmt.Printf("capacity: %.0f requests of a row a second by %d clients, %.1f rows a forward pass\n", capacity, busy, rows/batches)
	fmt.Printf("model: %.3f ms a forward pass\n", 1e3*forward/batches)
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
	fmt.Printf("load: %d clients for %v, %d of them slow and %d broken: %d answers, %.0f a second, %.1f rows a forward pass of %.3f ms\n", b.clients, b.duration, b.clients/20, b.clients/20, b.answered.Load(),
		float64(b.answered.Load())/b.duration.Seconds(), (rows2-rows)/(batches2-batches), 1e3*(forward2-forward)/(batches2-batches))
	fmt.Printf("answers by version: %v; wrong: %d, lost: %d, rejected with 429 or 503: %d\n", b.versions, b.wrong.Load(), b.lost.Load(), b.rejected.Load())
	fmt.Printf("latency: median %v, p99 %v (3 forward passes and the wait for a batch: %v), p99.9 %v\n", at(0.5), at(0.99), limit.Round(10*time.Microsecond), at(0.999))
	fmt.Printf("memory: at most %d MiB resident\n", peak.Load()>>20)
	if p := b.first.Load(); p != nil {
		return errors.New(*p)
	}
	if len(b.versions) < 2 {
		return fmt.Errorf("answers by versions %v: want both", b.versions)
	}
	return nil
}

// each runs clients for a time, each with a request per interval (0: one after another).
func (b *bench) each(clients int, d, every time.Duration) {
	var all sync.WaitGroup
	end := time.Now().Add(d)
	for c := range clients {
		all.Go(func() {
			r := rand.New(rand.NewPCG(2, uint64(c)))
			next := time.Now().Add(time.Duration(r.Float64() * float64(every)))
			warm := next.Add(time.Second)
			for time.Now().Before(end) {
				if every > 0 {
					time.Sleep(time.Until(next))
					next = next.Add(every)
				}
				b.ask(r.IntN(len(b.bodies)), time.Now().After(warm))
			}
		})
	}
	all.Wait()
}

// ask sends a row and checks the answer.
func (b *bench) ask(row int, timed bool) {
	start := time.Now()
	res, err := b.client.Post(b.address+"/predict", "application/json", strings.NewReader(b.bodies[row]))
	var text []byte
	if err == nil {
		text, err = io.ReadAll(res.Body)
		_ = res.Body.Close()
	}
	took := time.Since(start)
	if err != nil {
		b.lost.Add(1)
		b.problem("lost: row %d: %v", row, err)
		return
	}
	if res.StatusCode == 429 || res.StatusCode == 503 {
		b.rejected.Add(1)
		return
	}
	var got struct{ Version string }
	if err := json.Unmarshal(text, &got); err != nil || b.want[got.Version] == nil || !bytes.Contains(text, []byte(`{"row":0,`+b.want[got.Version][row]+`}`)) {
		b.wrong.Add(1)
		b.problem("wrong: row %d: %d %s, want %s", row, res.StatusCode, text, b.want[got.Version])
		return
	}
	b.answered.Add(1)
	b.mu.Lock()
	defer b.mu.Unlock()
	if timed {
		b.times = append(b.times, took)
	}
	if b.versions != nil {
		b.versions[got.Version]++
	}
}

func (b *bench) problem(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	text = text[:min(len(text), 500)]
	b.first.CompareAndSwap(nil, &text)
}

// slow sends a request byte by byte.
func (b *bench) slow(stop <-chan struct{}) {
	for {
		conn, err := net.Dial("tcp", strings.TrimPrefix(b.address, "http://"))
		if err != nil {
			return
		}
		text := fmt.Sprintf("POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", len(b.bodies[0]), b.bodies[0])
		for i := range len(text) {
			select {
			case <-stop:
				_ = conn.Close()
				return
			case <-time.After(100 * time.Millisecond):
			}
			if _, err := conn.Write([]byte{text[i]}); err != nil {
				break
			}
		}
		_ = conn.Close()
	}
}

// broken sends requests that are cut, too large, no HTTP or no JSON, and reads no answer.
func (b *bench) broken(stop <-chan struct{}) {
	texts := []string{
		"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\n\r\n{\"a\":",
		"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n[[[[",
		"POST /predict HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
		"\x16\x03\x01\x02\x00", "GET / HTTP/9\r\n\r\n", "POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 6\r\n\r\n{\"a\":1",
		"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10000000\r\n\r\n" + strings.Repeat("[", 1<<20),
	}
	for i := rand.IntN(len(texts)); ; i++ {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(2 * rand.Float64() * float64(time.Second))):
		}
		conn, err := net.Dial("tcp", strings.TrimPrefix(b.address, "http://"))
		if err != nil {
			continue
		}
		_ = conn.SetDeadline(time.Now().Add(time.Second))
		_, _ = io.WriteString(conn, texts[i%len(texts)])
		_ = conn.Close()
	}
}

// scrape returns the rows, forward passes and their seconds until now.
func (b *bench) scrape() (rows, batches, seconds float64) {
	res, err := b.client.Get(b.address + "/metrics")
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
