package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/data/datatest"
	"github.com/ringo-ml/ringo/internal/httpguard"
	"github.com/ringo-ml/ringo/internal/serving/batcher"
	"github.com/ringo-ml/ringo/models"
	"github.com/ringo-ml/ringo/predict"
	"github.com/ringo-ml/ringo/train"
)

// trained trains a model of the zoo a little, and returns the configuration with the folder.
func trained(t testing.TB, name, path string, change func(*train.Config)) train.Config {
	t.Helper()
	spec, err := models.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	cfg := train.Defaults(spec, path)
	cfg.Epochs, cfg.Checkpoint.Dir, cfg.Threads = 1, filepath.Join(t.TempDir(), "run"), 1
	if change != nil {
		change(&cfg)
	}
	err = ringo.Local(t.Context(), 1, ringo.Config{}, func(job *ringo.Job) error {
		_, err := train.Run(t.Context(), job, spec, nil, cfg)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// opener returns an Open for checkpoints of a run.
func opener(cfg train.Config) Open {
	return func(ctx context.Context, file string, use func(*train.Predictor) error) error {
		return ringo.Local(ctx, 1, ringo.Config{}, func(job *ringo.Job) error {
			own := cfg
			own.Checkpoint.Dir = file
			p, err := train.NewPredictor(ctx, job, own.Model, own)
			if err != nil {
				return err
			}
			return p.End(use(p))
		})
	}
}

// people writes a table of n people, and returns its path.
func people(t testing.TB, n int, columns string) string {
	t.Helper()
	r, text := rand.New(rand.NewPCG(1, 2)), columns+"\n"
	for range n {
		age, city := r.IntN(60)+20, []string{"Oslo", "Rome", "Bern"}[r.IntN(3)]
		bought := "no"
		if city == "Rome" != (age > 50) {
			bought = "yes"
		}
		text += fmt.Sprintf("%d,%s,%.2f,%s\n", age, city, r.Float64()*100, bought)
	}
	path := filepath.Join(t.TempDir(), "t.csv")
	datatest.Write(t, filepath.Dir(path), map[string][]byte{"t.csv": []byte(text)})
	return path
}

const columns = "age,city,income,bought"

// server is a Server at an address of this host.
type server struct {
	*Server
	t     testing.TB
	at    string
	lines []string
	mu    sync.Mutex
}

func limits() Config {
	return Config{
		Version: "test", Batch: batcher.Config{Rows: 16, Wait: time.Millisecond, Queue: 1 << 12}, Requests: 1 << 12, Rows: 64, Body: 1 << 16, Memory: 1 << 20, Timeout: time.Minute,
	}
}

// serve starts a server of a run's last checkpoint.
func serve(t testing.TB, run train.Config, change func(*Config)) *server {
	t.Helper()
	s, cfg := &server{t: t}, limits()
	cfg.Find, cfg.Open = func() (string, error) { return checkpoint.Locate(run.Checkpoint.Dir) }, opener(run)
	cfg.Report = func(line string) { s.mu.Lock(); defer s.mu.Unlock(); s.lines = append(s.lines, line) }
	if change != nil {
		change(&cfg)
	}
	var err error
	if s.Server, err = New(context.Background(), cfg); err != nil {
		t.Fatal(err)
	}
	site, err := httpguard.NewSite("127.0.0.1:0", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	site.Connections = 1 << 12
	s.Register(site, false)
	if err := site.Listen(); err != nil {
		t.Fatal(err)
	}
	s.at = "http://" + site.At()
	t.Cleanup(func() {
		site.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// webClient has a connection for each request at a time.
var webClient = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}, Timeout: time.Minute}

// ask sends a request and returns the status and the body.
func (s *server) ask(method, path, kind, body string) (int, string) {
	s.t.Helper()
	r, err := http.NewRequest(method, s.at+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	res, err := webClient.Do(r)
	if err != nil {
		s.t.Error(err)
		return 0, ""
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Error(err)
	}
	if res.StatusCode == http.StatusTooManyRequests && res.Header.Get("Retry-After") != "1" {
		s.t.Errorf("%s: status 429 without Retry-After", path)
	}
	return res.StatusCode, string(text)
}

func (s *server) post(path, body string) (int, string) {
	s.t.Helper()
	return s.ask(http.MethodPost, path, "application/json", body)
}

// answers returns the model's version and the objects of an answer, without the number of the row.
func answers(t testing.TB, text string) (version string, rows []string) {
	t.Helper()
	var got struct {
		Version     string
		Predictions []json.RawMessage
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Errorf("%.200q: %v", text, err)
	}
	for _, p := range got.Predictions {
		_, rest, _ := strings.Cut(string(p), ",")
		rows = append(rows, rest)
	}
	return got.Version, rows
}

// predicted returns the lines of `ringo predict` for a file, without the number of the row.
func predicted(t testing.TB, run train.Config, path string, top int) (rows []string) {
	t.Helper()
	file, err := checkpoint.Locate(run.Checkpoint.Dir)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err = opener(run)(t.Context(), file, func(p *train.Predictor) error {
		in, err := data.OpenInput(p.Description(), data.InputConfig{Path: path, Batch: 64, Seed: run.Seed})
		if err != nil {
			return err
		}
		defer in.Close()
		_, err = predict.Run(p, 0, in, &out, predict.Config{Top: top})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		_, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ",")
		rows = append(rows, rest)
	}
	return rows
}

// objects returns the rows of a table as JSON objects.
func objects(t testing.TB, path string) (rows []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Split(line, ",")
		rows = append(rows, fmt.Sprintf(`{"age":%s,"city":%q,"income":%s}`, f[0], f[1], f[2]))
	}
	return rows[1:]
}

// TestAnswersEqualPredict: whatever rows share a forward pass, an answer has the text of `ringo
// predict` for the same row.
func TestAnswersEqualPredict(t *testing.T) {
	path := people(t, 300, columns)
	run := trained(t, "mlp", path, nil)
	want, rows := predicted(t, run, path, 2), objects(t, path)
	s := serve(t, run, nil)
	var all sync.WaitGroup
	for w := range 24 {
		all.Go(func() {
			r := rand.New(rand.NewPCG(3, uint64(w)))
			for range 15 {
				lo := r.IntN(len(rows))
				hi := min(len(rows), lo+1+r.IntN(40)*r.IntN(2))
				status, text := s.post("/predict?top=2", "["+strings.Join(rows[lo:hi], ",")+"]")
				if _, got := answers(t, text); status != http.StatusOK || !slices.Equal(got, want[lo:hi]) {
					t.Errorf("rows %d to %d: status %d, %.300s, want %s", lo, hi, status, text, want[lo])
					return
				}
			}
		})
	}
	all.Wait()
	if _, text := s.ask("GET", "/metrics", "", ""); !strings.Contains(text, `ringo_serve_requests_total{code="200"} 360`) || strings.Contains(text, `ringo_serve_batches_total{rows="16"} 0`) {
		t.Errorf("metrics:\n%s", text)
	}
}

// TestRowsDoNotDependOnTheBatch: the bits of a row's outputs are equal in forward passes of any
// number of rows, for every kind of model that is served.
func TestRowsDoNotDependOnTheBatch(t *testing.T) {
	clicks := t.TempDir()
	datatest.Write(t, clicks, map[string][]byte{"train.txt": datatest.ClickText(400), "test.txt": datatest.ClickText(100)})
	for name, path := range map[string]string{"mlp": people(t, 200, columns), "mnist": data.Synthetic, "cifar-resnet20": data.Synthetic, "ctr-dnn": clicks, "deepfm": clicks, "dcn-v2": clicks} {
		if testing.Short() && name != "mlp" && name != "deepfm" {
			continue // kernels alone differ
		}
		run := trained(t, name, path, func(c *train.Config) { c.TrainLimit, c.EvalLimit, c.Batch = 64, 64, 32 })
		file, err := checkpoint.Locate(run.Checkpoint.Dir)
		if err != nil {
			t.Fatal(err)
		}
		err = opener(run)(t.Context(), file, func(p *train.Predictor) error {
			var whole []float32
			for _, n := range []int{64, 1, 2, 3, 5, 8, 13, 17, 33} {
				in, err := data.OpenInput(p.Description(), data.InputConfig{Path: path, Batch: n, Seed: run.Seed})
				if err != nil {
					return err
				}
				var got []float32
				for rows, ok, err := in.Next(); ok && len(got) < 1<<9; rows, ok, err = in.Next() {
					if err != nil {
						return err
					}
					out, err := p.Forward(&rows.Batch)
					if err != nil {
						return err
					}
					got = append(got, out[0].Data...)
				}
				in.Close()
				if whole == nil {
					whole = got
				}
				if n := min(len(got), len(whole)); n < 50 || !slices.Equal(got[:n], whole[:n]) {
					t.Errorf("%s: outputs differ in batches of %d rows", name, n)
				}
			}
			return nil
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRejections: a request outside the protocol or a limit has a status and a JSON error, and the
// server answers the next one.
func TestRejections(t *testing.T) {
	run := trained(t, "mlp", people(t, 200, columns), nil)
	s := serve(t, run, nil)
	good := `{"age":30,"city":"Rome","income":10}`
	many := "[" + strings.Repeat(good+",", 64) + good + "]"
	const kind = "application/json"
	for _, c := range []struct {
		method, path, kind, body string
		status                   int
		want                     string
	}{
		{"POST", "/predict", kind, good, 200, `"predictions":[{"row":0,"prediction":`},
		{"POST", "/predict", "application/json; charset=utf-8", good, 200, `"predictions"`},
		{"POST", "/predict", "", good, 200, `"predictions"`},
		{"POST", "/predict", kind, `{"age":30,"city":"Paris","income":10}`, 200, `"unknown_words":1,"unknown":["row 0: column \"city\": \"Paris\""]`},
		{"POST", "/predict", "text/csv", good, 415, `content type \"text/csv\": want application/json`},
		{"POST", "/predict", "application/x-www-form-urlencoded", good, 415, "curl --json"},
		{"GET", "/predict", "", "", 405, "want POST"},
		{"PUT", "/v2", "", "", 405, "want GET"},
		{"POST", "/predictions", kind, good, 404, "no such path"},
		{"POST", "/predict", kind, "", 400, "no body"},
		{"POST", "/predict", kind, `{"age":30}`, 400, `row 0: column \"city\": missing`},
		{"POST", "/predict?top=3", kind, good, 400, "the 3 most probable classes"},
		{"POST", "/predict?top=x", kind, good, 400, `top \"x\"`},
		{"POST", "/predict?tops=1", kind, good, 400, `parameter \"tops\"`},
		{"POST", "/predict", kind, many, 413, "more than 64 rows"},
		{"POST", "/predict", kind, strings.Repeat(" ", 1<<16) + good, 413, "at most 65536"},
		{"POST", "/predict", kind, strings.Repeat("[", 60000), 400, "no JSON"},
		{"POST", "/predict", kind, strings.Repeat("[", 100) + strings.Repeat("]", 100), 400, "more than 32 nested"},
		{"GET", "/v2/models/other", "", "", 404, `model \"other\": this server has \"mlp\"`},
		{"POST", "/v2/models/mlp/versions/7/infer", kind, good, 404, "version"},
	} {
		status, text := s.ask(c.method, c.path, c.kind, c.body)
		if status != c.status || !strings.Contains(text, c.want) || status != 200 && !strings.HasPrefix(text, `{"error":"`) {
			t.Errorf("%s %s %.60q: %d %.300s, want %d %s", c.method, c.path, c.body, status, text, c.status, c.want)
		}
	}
	// A body without a length is cut off at the limit.
	r, err := http.NewRequest("POST", s.at+"/predict", io.MultiReader(strings.NewReader(strings.Repeat(" ", 1<<16)), strings.NewReader(good)))
	if err != nil {
		t.Fatal(err)
	}
	if res, err := webClient.Do(r); err != nil || res.StatusCode != 413 {
		t.Errorf("a large body in pieces: %v %v", res, err)
	}
}

// TestFullQueueRejects: requests above the limits of waiting rows, of requests and of time have 429
// and 504, and those within get their answers.
func TestFullQueueRejects(t *testing.T) {
	run := trained(t, "mlp", people(t, 200, columns), nil)
	s := serve(t, run, func(c *Config) {
		c.Batch = batcher.Config{Rows: 8, Wait: 300 * time.Millisecond, Queue: 3}
		c.Requests, c.Rows = 3, 3
	})
	good := `{"age":30,"city":"Rome","income":10}`
	var all sync.WaitGroup
	all.Go(func() {
		if status, text := s.post("/predict", "["+good+","+good+"]"); status != 200 {
			t.Errorf("within the queue: %d %s", status, text)
		}
	})
	for s.current.Load().queue.Waiting() < 2 {
		time.Sleep(time.Millisecond)
	}
	if status, text := s.post("/predict", "["+good+","+good+"]"); status != 429 || !strings.Contains(text, "the queue is full: 2 rows wait, at most 3") {
		t.Errorf("above the queue: %d %s", status, text)
	}
	all.Wait()
	late := serve(t, run, func(c *Config) { c.Batch.Wait, c.Timeout = time.Minute, 20*time.Millisecond })
	if status, text := late.post("/predict", good); status != 504 || !strings.Contains(text, "no prediction within 20ms") {
		t.Errorf("late: %d %s", status, text)
	}
	if _, text := late.ask("GET", "/metrics", "", ""); !strings.Contains(text, `ringo_serve_rejections_total{reason="deadline"} 1`) {
		t.Errorf("metrics:\n%s", text)
	}
	// Bodies of slow clients count by their arrived bytes.
	small := serve(t, run, func(c *Config) { c.Memory = 4 << 10; c.Body = 4 << 10 })
	conn, err := net.Dial("tcp", strings.TrimPrefix(small.at, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000\r\n\r\n%s", strings.Repeat(" ", 3900))
	for small.bodies.Load() < 3900 {
		time.Sleep(time.Millisecond)
	}
	if status, text := small.post("/predict", good+strings.Repeat(" ", 300)); status != 429 || !strings.Contains(text, "bodies of 4096 bytes at a time") {
		t.Errorf("memory: %d %s", status, text)
	}
	if status, _ := small.post("/predict", good); status != 200 {
		t.Errorf("a small body: %d", status)
	}
}

// TestSwapLosesNoRequest: during the swap to a newer checkpoint, every request has the answer of
// one of the two models, and the version names which.
func TestSwapLosesNoRequest(t *testing.T) {
	path := people(t, 300, columns)
	old := trained(t, "mlp", path, nil)
	newer := trained(t, "mlp", path, func(c *train.Config) { c.Epochs = 2 })
	rows := objects(t, path)
	var to atomic.Pointer[string]
	set := func(run train.Config) (version string) {
		file, err := checkpoint.Locate(run.Checkpoint.Dir)
		if err != nil {
			t.Fatal(err)
		}
		to.Store(&file)
		return strings.TrimLeft(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "step-"), ".ringo"), "0")
	}
	first := set(old)
	s := serve(t, old, func(c *Config) { c.Find = func() (string, error) { return *to.Load(), nil } })
	second := set(newer)
	want := map[string][]string{first: predicted(t, old, path, 1), second: predicted(t, newer, path, 1)}
	if first == second || want[first][0] == want[second][0] {
		t.Fatal("the two models have equal answers")
	}
	var all sync.WaitGroup
	var seen sync.Map
	var swapped atomic.Bool
	for w := range 16 {
		all.Go(func() {
			for i := 0; !swapped.Load() || i%8 > 0; i++ {
				lo := (w*17 + i) % (len(rows) - 5)
				status, text := s.post("/predict", "["+strings.Join(rows[lo:lo+5], ",")+"]")
				version, got := answers(t, text)
				if status != 200 || !slices.Equal(got, want[version][lo:lo+5]) {
					t.Errorf("row %d by version %q: %d %.200s", lo, version, status, text)
					return
				}
				seen.Store(version, true)
			}
		})
	}
	for range 3 {
		for _, run := range []train.Config{newer, old} {
			set(run)
			s.Check(t.Context())
			time.Sleep(5 * time.Millisecond)
		}
	}
	swapped.Store(true)
	all.Wait()
	for version := range want {
		if _, ok := seen.Load(version); !ok {
			t.Errorf("no answer by version %s", version)
		}
	}
	if _, text := s.ask("GET", "/metrics", "", ""); !strings.Contains(text, `ringo_serve_swaps_total{result="swapped"} 6`) {
		t.Errorf("metrics:\n%s", text)
	}
}

// TestUnsuitableCheckpointLeavesTheModel: a damaged, foreign or absent newer checkpoint is reported
// once in the log, in the metrics and in the health, and the model before answers.
func TestUnsuitableCheckpointLeavesTheModel(t *testing.T) {
	path := people(t, 300, columns)
	run := trained(t, "mlp", path, nil)
	other := trained(t, "mlp", people(t, 300, "age,town,income,bought"), nil)
	image := trained(t, "mnist", data.Synthetic, func(c *train.Config) { c.TrainLimit, c.EvalLimit = 64, 64 })
	file := func(run train.Config) string {
		f, err := checkpoint.Locate(run.Checkpoint.Dir)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	text, err := os.ReadFile(file(run))
	if err != nil {
		t.Fatal(err)
	}
	damaged := filepath.Join(t.TempDir(), "step-000000999.ringo")
	version := filepath.Join(t.TempDir(), "step-000000998.ringo")
	flipped := bytes.Clone(text)
	flipped[len(flipped)/2] ^= 1
	old := bytes.Clone(text)
	old[4] ^= 0x55 // in the version, or the magic before it
	datatest.Write(t, filepath.Dir(damaged), map[string][]byte{filepath.Base(damaged): flipped})
	datatest.Write(t, filepath.Dir(version), map[string][]byte{filepath.Base(version): old})
	to := file(run)
	s := serve(t, run, func(c *Config) { c.Find = func() (string, error) { return to, nil } })
	want := predicted(t, run, path, 1)
	for i, c := range []struct{ path, want string }{
		{damaged, "step-000000999.ringo"}, {version, "step-000000998.ringo"}, {file(other), `column "city": missing in the newer model`}, {file(image), "is of model mnist"}, {filepath.Join(t.TempDir(), "none.ringo"), "no such file"},
	} {
		to = c.path
		s.Check(t.Context())
		s.Check(t.Context())
		if len(s.lines) != i+1 || !strings.Contains(s.lines[i], c.want) || !strings.Contains(s.lines[i], "continues") {
			t.Fatalf("%s: lines %q, want %q", c.path, s.lines, c.want)
		}
		if status, text := s.ask("GET", "/v2/health/ready", "", ""); status != 200 || !strings.Contains(text, `"swap_error":"`) {
			t.Errorf("health: %d %s", status, text)
		}
		status, text := s.post("/predict", objects(t, path)[0])
		if _, got := answers(t, text); status != 200 || got[0] != want[0] {
			t.Errorf("after %s: %d %s", c.path, status, text)
		}
	}
	if to = file(run); true {
		s.Check(t.Context())
	}
	if _, text := s.ask("GET", "/v2/health/ready", "", ""); strings.Contains(text, "swap_error") {
		t.Errorf("health: %s", text)
	}
	if _, text := s.ask("GET", "/metrics", "", ""); !strings.Contains(text, `ringo_serve_swaps_total{result="failed"} 5`) {
		t.Errorf("metrics:\n%s", text)
	}
}
