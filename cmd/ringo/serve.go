package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/serve"
	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/httpguard"
	"github.com/ringo-ml/ringo/internal/job"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/simd"
	"github.com/ringo-ml/ringo/internal/watch/metrics/scrape"
	"github.com/ringo-ml/ringo/ps/client"
	"github.com/ringo-ml/ringo/ps/schema"
	"github.com/ringo-ml/ringo/train"
	"github.com/ringo-ml/ringo/transport"
)

// serveCommand is `ringo serve RUN`. Settings of the model come from the checkpoint, as in `ringo
// predict`; the flags are limits of the server.
type serveCommand struct {
	serve.Config
	path    string // file or folder
	address string
	threads int
	live    bool
	watch   time.Duration
	grace   time.Duration
}

func newServe() *cobra.Command {
	c := &serveCommand{}
	cmd := &cobra.Command{
		Use:   "serve CHECKPOINT",
		Short: "Serve predictions of a checkpoint over HTTP",
		Long: "Serve the predictions of a saved model over HTTP: JSON rows at /predict, tensors of the\n" +
			"Open Inference Protocol at /v2, metrics at /metrics, and a form at /. CHECKPOINT is a\n" +
			"file, or a run's folder, where a newer checkpoint replaces the model.",
		Example: "  ringo serve RUN\n  ringo serve RUN --http 0.0.0.0:8080 --batch 128 --batch-wait 5ms",
		Args:    oneCheckpoint,
		RunE:    c.execute,
	}
	fs := cmd.Flags()
	fs.StringVar(&c.address, "http", "127.0.0.1:8080", "`HOST:PORT` to listen at; other hosts need the token in "+launch.AdminTokenVar)
	fs.StringVar(&c.Name, "name", "", "`NAME` of the model in /v2; default: the model's own")
	fs.IntVar(&c.Batch.Rows, "batch", 64, "maximum `ROWS` of a forward pass")
	fs.DurationVar(&c.Batch.Wait, "batch-wait", 2*time.Millisecond, "maximum wait of a request for others, a `TIME`")
	fs.IntVar(&c.Batch.Queue, "queue", 4096, "maximum `ROWS` that wait; more get status 429")
	fs.IntVar(&c.Requests, "requests", 2048, "maximum `NUMBER` of requests at a time")
	fs.IntVar(&c.Rows, "max-rows", 1024, "maximum `ROWS` of a request")
	fs.Int64Var(&c.Body, "max-body", 16<<20, "maximum `BYTES` of a request")
	fs.Int64Var(&c.Memory, "max-memory", 64<<20, "maximum `BYTES` of all requests at a time")
	fs.DurationVar(&c.Timeout, "timeout", 10*time.Second, "maximum `TIME` of a request after its arrival")
	fs.DurationVar(&c.watch, "watch", time.Second, "`TIME` between checks for a newer checkpoint; 0: never")
	fs.DurationVar(&c.grace, "grace", 20*time.Second, "maximum `TIME` to finish requests after SIGTERM")
	fs.BoolVar(&c.live, "live", false, "read the rows of a click model from the parameter servers of the running job in CHECKPOINT's folder")
	fs.IntVar(&c.threads, "threads", 0, "`NUMBER` of threads of the model; default: the cores")
	return cmd
}

// validate returns all errors of flags.
func (c *serveCommand) validate() error {
	var faults cli.Faults
	atLeast := func(name string, n, least int64) {
		if n < least {
			faults.Add("--%s %d: want at least %d", name, n, least)
		}
	}
	atLeast("batch", int64(c.Batch.Rows), 1)
	atLeast("requests", int64(c.Requests), 1)
	atLeast("max-rows", int64(c.Rows), 1)
	atLeast("max-body", c.Body, 1)
	atLeast("threads", int64(c.threads), 0)
	if c.Batch.Queue < c.Rows {
		faults.Add("--queue %d: want at least the rows of a request, --max-rows %d", c.Batch.Queue, c.Rows)
	}
	if c.Memory < c.Body {
		faults.Add("--max-memory %d: want at least the bytes of a request, --max-body %d", c.Memory, c.Body)
	}
	within := func(name string, d, least, most time.Duration) {
		if d < least || d > most {
			faults.Add("--%s %v: want %v to %v", name, d, least, most)
		}
	}
	within("batch-wait", c.Batch.Wait, 0, time.Second)
	within("timeout", c.Timeout, time.Millisecond, httpguard.AnswerTime-5*time.Second)
	within("watch", c.watch, 0, 24*time.Hour)
	within("grace", c.grace, 0, time.Hour)
	return errors.Join(faults...)
}

// token returns the token of the site, and requires one for addresses of other hosts.
func (c *serveCommand) token() (string, error) {
	token, err := launch.AdminTokenFromEnv(os.LookupEnv)
	if token != "" || err != nil {
		return token, err
	}
	host, _, err := net.SplitHostPort(c.address)
	if err != nil {
		return "", nil // the site reports the address
	}
	if a, err := netip.ParseAddr(host); host == "" || host == "localhost" || err == nil && a.IsLoopback() {
		return "", nil
	}
	return "", fmt.Errorf("--http %s: other hosts can reach this address: set %s to a token, such as `openssl rand -hex 16` makes", c.address, launch.AdminTokenVar)
}

func (c *serveCommand) execute(cmd *cobra.Command, words []string) error {
	token, err := c.token()
	if err := errors.Join(c.validate(), err); err != nil {
		return cli.Usage(err)
	}
	path, end, err := checkpointHere(cmd.Context(), words[0])
	if err != nil {
		return err
	}
	c.path = path
	return errors.Join(c.serve(cmd, token), end())
}

func (c *serveCommand) serve(cmd *cobra.Command, token string) error {
	debug.SetGCPercent(400) // requests allocate: the small heap of training would be collected often
	c.Version, c.Report = ringo.Version, tells(cmd)
	c.Find = func() (string, error) {
		file, _, err := checkpoint.Choose(c.path)
		return file, err
	}
	c.Open = func(ctx context.Context, file string, use func(*train.Predictor) error) error {
		return c.open(cmd, ctx, file, use)
	}
	site, err := httpguard.NewSite(c.address, token, c.Report)
	if err != nil {
		return cli.Usage(setting.Errorf("output.http", "%w", err))
	}
	site.Connections = 2 * c.Requests
	s, err := serve.New(cmd.Context(), c.Config)
	if err != nil {
		return err
	}
	s.Register(site, token != "")
	if err := site.Listen(); err != nil {
		return errors.Join(setting.Errorf("output.http", "%w", err), s.Close())
	}
	at := "http://" + site.At() + "/"
	if token != "" {
		at = site.URL("$" + launch.AdminTokenVar)
	}
	c.Report("serves " + s.Describe())
	c.Report(fmt.Sprintf("form: %s, rows: %spredict, protocol: %sv2, metrics: http://%s%s", at, at, at, site.At(), scrape.Path))
	return c.until(cmd, s, site)
}

// until serves until the first signal, and then finishes the accepted requests.
func (c *serveCommand) until(cmd *cobra.Command, s *serve.Server, site *httpguard.Site) error {
	ctx, stop := context.WithCancel(cmd.Context())
	defer stop()
	signalsOf(cmd.Context()).onFirst(func(name string) bool {
		c.Report(fmt.Sprintf("%s: finishing the accepted requests, within %v", name, c.grace))
		stop()
		return true
	})
	err := s.Watch(ctx, c.watch)
	s.End()
	last, cancel := context.WithTimeout(cmd.Context(), c.grace)
	defer cancel()
	if late := site.Shutdown(last); late != nil {
		err = errors.Join(err, fmt.Errorf("--grace %v: requests without a response remain: %w", c.grace, context.Cause(last)))
		site.Close()
		return err // the model may still compute
	}
	return errors.Join(err, s.Close())
}

// open resolves the settings of a checkpoint as `ringo predict` does, and loads the model in this
// process.
func (c *serveCommand) open(cmd *cobra.Command, ctx context.Context, file string, use func(*train.Predictor) error) error {
	g := commandSettings{command: setting.Predict, checkpointPath: file, predicts: true, serves: true}
	if err := g.resolve(cmd, ""); err != nil {
		return err
	}
	cfg := g.Training(0)
	if cfg.Precision == "bf16" {
		if _, err := simd.BF16(); err != nil {
			c.Report(fmt.Sprintf("the model was trained in bf16, and is served in fp32: %v", err))
			cfg.Precision = "fp32"
		}
	}
	if cfg.Checkpoint.Dir = file; c.threads > 0 {
		cfg.Threads = c.threads
	}
	if cfg.Threads == 0 {
		cfg.Threads = runtime.GOMAXPROCS(0)
	}
	if c.live {
		cfg.Servers.Live = c.dialer(filepath.Dir(file), g.Network.TLS)
	}
	run := g.Run(g.table)
	run.Threads = cfg.Threads
	return ringo.Local(ctx, 1, run, func(job *ringo.Job) error {
		p, err := train.NewPredictor(ctx, job, cfg.Model, cfg)
		if err != nil {
			return err
		}
		return p.End(use(p))
	})
}

// dialer connects a reader to the servers of the job that runs in a folder. A lost server is an
// error within half of the request timeout.
func (c *serveCommand) dialer(dir string, tls transport.TLS) func(context.Context, schema.Schema) (*client.Client, error) {
	return func(ctx context.Context, sc schema.Schema) (*client.Client, error) {
		addresses, ticket, err := job.FindLiveServers(dir)
		if err != nil {
			return nil, serve.ServersError{Err: err}
		}
		limit := max(c.Timeout/2, 10*time.Millisecond)
		return client.Dial(ctx, client.Config{
			Servers: addresses, Ticket: ticket, TLS: tls, Version: ringo.Version, Schema: sc, Reader: true, Timeout: limit, Reconnect: limit / 4,
		})
	}
}
