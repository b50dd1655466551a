// Package trainjob reports a job's progress to Kubeflow Trainer, for its TrainJob's status: share,
// remaining time and newest values. It polls the dashboard's data and never delays training.
//
// The protocol is that of Kubeflow Trainer 2.2 (KEP-2779): an HTTPS POST of an
// UpdateTrainJobStatusRequest with the pod's token, at most every five seconds, of at most 256
// metrics with names and values of 1 to 64 characters, in at most 64 KiB. Only the last request,
// with the job's end, ignores the five seconds, because a terminated process has little time.
package trainjob

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/cmd/ringo/internal/dashboard"
	"github.com/ringo-ml/ringo/internal/httpguard"
	"github.com/ringo-ml/ringo/internal/launch/extenv"
	"github.com/ringo-ml/ringo/internal/pathname"
)

const (
	mostMetrics = 256
	mostName    = 64 // characters of a metric's name, and of its value
	mostFile    = 64 << 10
	mostAnswer  = 8 << 10

	usualEvery   = 10 * time.Second
	usualTimeout = 5 * time.Second
	// farewell limits the last request: a terminated pod has seconds.
	farewell = 2 * time.Second
	// longest is the maximum pause after failures, in units of Config.Every, to spare the server.
	longest = 32
)

// Config configures a Reporter.
type Config struct {
	// Server is the status server.
	Server extenv.StatusServer
	// Read returns the job's progress, and is called from another goroutine.
	Read func() dashboard.Progress
	// Report gets one line about the first failure; training continues.
	Report func(line string)
	// Every is the interval of requests; 0 means 10 s.
	Every time.Duration
	// Timeout limits a request, including name resolution; 0 means 5 s.
	Timeout time.Duration
}

// Reporter sends status requests until Close. A nil Reporter does no work.
type Reporter struct {
	cfg        Config
	clock      func() time.Time
	send       func(context.Context, status) error
	cancel     context.CancelFunc
	ended      chan struct{}
	reportOnce sync.Once // first failure
}

// End is a job's kind of end.
type End int

// Values of End.
const (
	Done    End = iota + 1 // success
	Failed                 // error
	Stopped                // stopped by a signal: the job may be resumed
)

// Start sends the job's progress from rank 0's begin until Close, and returns immediately.
func Start(cfg Config) *Reporter {
	if cfg.Every == 0 {
		cfg.Every = usualEvery
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = usualTimeout
	}
	t := &Reporter{cfg: cfg, clock: time.Now}
	t.send = t.deliver
	t.start()
	return t
}

func (t *Reporter) start() {
	ctx, cancel := context.WithCancel(context.Background())
	t.cancel, t.ended = cancel, make(chan struct{})
	go t.work(ctx)
}

func (t *Reporter) work(ctx context.Context) {
	defer close(t.ended)
	wait := min(t.cfg.Every, time.Second)
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		p := t.cfg.Read()
		switch {
		case !p.Known: // soon, probably
		case t.post(ctx, p, 0, t.cfg.Timeout) == nil:
			wait = t.cfg.Every
		default:
			wait = min(2*max(wait, t.cfg.Every), longest*t.cfg.Every)
		}
	}
}

// Close sends the job's end, within at most 2 s. If a job is stopped before rank 0 has begun its
// run, Close sends no request, and the server keeps the status of an earlier attempt.
func (t *Reporter) Close(how End) {
	if t == nil {
		return
	}
	t.cancel()
	<-t.ended
	p := t.cfg.Read()
	if how == Stopped && !p.Known {
		return
	}
	_ = t.post(context.Background(), p, how, min(farewell, t.cfg.Timeout)) // already reported
}

func (t *Reporter) post(ctx context.Context, p dashboard.Progress, how End, patience time.Duration) error {
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := t.send(within, statusOf(p, how, t.clock()))
	if err != nil && ctx.Err() == nil {
		t.reportOnce.Do(func() {
			t.cfg.Report(fmt.Sprintf("Kubeflow Trainer is not told how far the job is, which goes on without, and it is tried again: %v", err))
		})
	}
	return err
}

// deliver sends a status. It reads token and authority each time: the system renews both.
func (t *Reporter) deliver(ctx context.Context, s status) error {
	body, err := json.Marshal(request{s})
	if err != nil {
		return err
	}
	authority, err := pathname.Read(t.cfg.Server.CACert, mostFile)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return fmt.Errorf("%s: no certificate of an authority, as PEM", t.cfg.Server.CACert)
	}
	token, err := pathname.Read(t.cfg.Server.Token, mostFile)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, "POST", t.cfg.Server.URL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	req.Header.Set("Content-Type", "application/json")
	by := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true, MaxResponseHeaderBytes: mostAnswer}
	res, err := by.RoundTrip(req) // follows no redirection: the token is for this server only
	if err != nil {
		return fmt.Errorf("POST %s: %w", t.cfg.Server.URL, err)
	}
	defer res.Body.Close()
	answer, _ := io.ReadAll(io.LimitReader(res.Body, mostAnswer))
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("POST %s: status %d%s", t.cfg.Server.URL, res.StatusCode, reason(answer))
	}
	return nil
}

// reason returns the message of a refusal, a Kubernetes Status.
func reason(answer []byte) string {
	var said struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(answer, &said) != nil || said.Message == "" {
		return ""
	}
	return " " + httpguard.Quote(said.Message)
}

// request is an UpdateTrainJobStatusRequest of trainer.kubeflow.org/v1alpha1.
type request struct {
	TrainerStatus status `json:"trainerStatus"`
}

// status is a TrainerStatus.
type status struct {
	ProgressPercentage        *int32    `json:"progressPercentage,omitempty"`
	EstimatedRemainingSeconds *int32    `json:"estimatedRemainingSeconds,omitempty"`
	Metrics                   []metric  `json:"metrics,omitempty"`
	LastUpdatedTime           time.Time `json:"lastUpdatedTime"`
}

type metric struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// statusOf returns the status of a job with the given end, or running for 0. The protocol has no
// field for the end: a finished job is at 100 %, and a failed job has a metric "failed".
func statusOf(p dashboard.Progress, how End, now time.Time) status {
	s := status{LastUpdatedTime: now.UTC().Truncate(time.Second)}
	percent, left := int32(min(99, max(0, 100*p.Share))), int32(min(math.MaxInt32, math.Ceil(p.TimeRemaining.Seconds())))
	if how == Done {
		percent, left = 100, 0
	}
	if p.Known || how == Done {
		s.ProgressPercentage = &percent
	}
	if how == Done || how == 0 && p.Known && p.TimeRemaining >= 0 {
		s.EstimatedRemainingSeconds = &left
	}
	if how == Failed {
		s.Metrics = append(s.Metrics, metric{"failed", "1"})
	}
	for _, f := range p.Figures {
		if name, value := f.Name, f.Text; len(s.Metrics) < mostMetrics && name != "" && len(name) <= mostName && value != "" && len(value) <= mostName {
			s.Metrics = append(s.Metrics, metric{name, value})
		}
	}
	return s
}
