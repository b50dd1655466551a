// Package trainjob tells Kubeflow Trainer how far a job is, which shows it in the status of its
// TrainJob: share, time left, and the newest figures. It is one more reader of what rank 0 tells
// (package dashboard), asks it now and then, and never holds up who trains.
//
// The contract is that of Kubeflow Trainer 2.2 (KEP-2779): one HTTPS POST of an UpdateTrainJobStatusRequest with the pod's token, at most once
// in five seconds, of at most 256 metrics whose names and values have 1 to 64 characters, in at most 64 KiB.
// The last request alone, of how the job has ended, does not wait for the five seconds to be over: who was told to end has few.
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
	// farewell bounds the last request: a pod that was told to end has seconds.
	farewell = 2 * time.Second
	// longest is how long after a failure nothing is tried at most, in units of Config.Every: who is down is not pressed.
	longest = 32
)

// Config is what a Reporter needs.
type Config struct {
	// Server is who is told.
	Server extenv.StatusServer
	// Read is how far the job is. It is called from another goroutine.
	Read func() dashboard.Progress
	// Report gets one line about the first failure: training goes on without.
	Report func(line string)
	// Every is how often the server is told; 0: 10 s.
	Every time.Duration
	// Timeout bounds a request, from name to answer; 0: 5 s.
	Timeout time.Duration
}

// Reporter tells a status server until it is closed. Its methods do nothing on nil.
type Reporter struct {
	cfg        Config
	clock      func() time.Time
	send       func(context.Context, status) error
	cancel     context.CancelFunc
	ended      chan struct{}
	reportOnce sync.Once // of a failure
}

// End is how a job has ended.
type End int

// How jobs end.
const (
	Done    End = iota + 1 // with all that it was to do
	Failed                 // with an error
	Stopped                // because it was told to, by a signal: it may go on later
)

// Start tells the server how far the job is, from when rank 0 tells of a run until Close. It
// returns at once.
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

// start tells from now on.
func (t *Reporter) start() {
	ctx, cancel := context.WithCancel(context.Background())
	t.cancel, t.ended = cancel, make(chan struct{})
	go t.work(ctx)
}

// work tells until ctx ends.
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
		case !p.Known: // soon, perhaps
		case t.post(ctx, p, 0, t.cfg.Timeout) == nil:
			wait = t.cfg.Every
		default:
			wait = min(2*max(wait, t.cfg.Every), longest*t.cfg.Every)
		}
	}
}

// Close tells the server how the job has ended, for which it takes 2 s at most. Of a job that was stopped before rank 0 told of a run it tells
// nothing: the server keeps what it knows of an earlier part.
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
	_ = t.post(context.Background(), p, how, min(farewell, t.cfg.Timeout)) // it was reported
}

// post tells the server once, and reports the first time that it cannot be told.
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

// deliver posts a status. Files are read anew each time: the system renews token and authority, and there is one request in ten seconds.
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
	res, err := by.RoundTrip(req) // which follows no redirection: the token is for this server alone
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

// reason is what a refusal says, as Kubernetes' Status.
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

// metric is a Metric.
type metric struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// statusOf is how far a job is, which has ended as how says, or goes on where it is 0. The contract has no field for how a job has ended: one that has
// done all is at 100 %, and one that has failed has a metric "failed".
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
