package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/quantity"
)

var nan = math.NaN()

// served is the state of one parameter server.
type served struct {
	fault  string // reason for missing tables, or ""
	tables []servedTable
}

// servedTable is a table of a server, as in its /stats.
type servedTable struct {
	Name        string `json:"name"`
	Rows        int64  `json:"rows"`
	StoredRows  int64  `json:"stored_rows"`
	Bytes       int64  `json:"bytes"`
	StoredBytes int64  `json:"stored_bytes"`
	Pulled      int64  `json:"pulled_keys"`
	Pushed      int64  `json:"pushed_keys"`
	Missed      int64  `json:"missed_keys"`
	Found       int64  `json:"found_keys"`
}

// hits returns the share of requested keys found in memory, for tables with rows on SSD.
func (t servedTable) hits() float64 {
	if asked := t.Pulled + t.Pushed; asked > 0 && t.StoredRows > 0 {
		return 1 - float64(t.Missed)/float64(asked)
	}
	return nan
}

// askEvery is the interval of requests to servers while the page has viewers.
const askEvery = 2 * time.Second

// AskServers makes the Collector poll the tables of this host's parameter servers while the page
// has viewers or a program asks. AskServers returns immediately; ctx ends the polling.
func (h *Collector) AskServers(ctx context.Context, count int) {
	if count == 0 {
		return
	}
	go func() {
		for tick := time.NewTicker(askEvery); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
			}
			if !h.watched() {
				continue
			}
			all := make([]served, count)
			var asked sync.WaitGroup
			for i := range all {
				asked.Go(func() { all[i] = h.ask(ctx, i) })
			}
			asked.Wait()
			h.mu.Lock()
			h.servers = all
			h.mu.Unlock()
		}
	}()
}

// watched reports whether the page has viewers, or a recent request.
func (h *Collector) watched() bool {
	h.mu.Lock()
	asked := h.asked
	h.mu.Unlock()
	return h.site != nil && h.site.watched() || h.clock().Sub(asked) < 2*askEvery
}

func (h *Collector) ask(ctx context.Context, server int) (out served) {
	ctx, cancel := context.WithTimeout(ctx, askEvery)
	defer cancel()
	to := hubAt(socketOf(h.socket, "server", server))
	defer to.CloseIdleConnections()
	var said struct {
		Tables struct {
			Tables []servedTable `json:"tables"`
		} `json:"tables"`
	}
	req, err := http.NewRequestWithContext(ctx, "GET", "http://localhost/stats", nil)
	if err == nil {
		h.site.web.Authorize(req)
		var res *http.Response
		if res, err = to.RoundTrip(req); err == nil {
			if err = json.NewDecoder(io.LimitReader(res.Body, 1<<20)).Decode(&said); res.StatusCode != http.StatusOK {
				err = errors.New(res.Status)
			}
			_ = res.Body.Close()
		}
	}
	if err != nil {
		return served{fault: "it does not answer: " + strings.TrimPrefix(err.Error(), "Get ")}
	}
	return served{tables: said.Tables.Tables}
}

func readServers(h *Collector, f *panelData) {
	f.Note = "Rows in memory and in the tier below. Hits are keys that were asked for and in memory."
	f.Head = []string{"server", "table", "rows", "bytes", "rows below", "bytes below", "keys pulled", "keys pushed", "hits"}
	for i, s := range h.servers {
		if s.fault != "" {
			f.Rows = append(f.Rows, []string{fmt.Sprint(i), s.fault})
		}
		for _, t := range s.tables {
			hits := "–"
			if share := t.hits(); finite(share) {
				hits = quantity.Percent(share)
			}
			f.Rows = append(f.Rows, []string{
				fmt.Sprint(i), t.Name, cli.Grouped(int(t.Rows)), quantity.Bytes(float64(t.Bytes)), cli.Grouped(int(t.StoredRows)), quantity.Bytes(float64(t.StoredBytes)),
				cli.Grouped(int(t.Pulled)), cli.Grouped(int(t.Pushed)), hits,
			})
		}
	}
}

// choice adds a choice, or the measured steps after a choice.
func (h *Collector) choice(line []byte) {
	var c struct {
		Event     string `json:"event"`
		Strategy  string `json:"strategy"`
		Plan      string `json:"plan"`
		Buckets   int    `json:"buckets"`
		Why       string `json:"why"`
		Predicted number `json:"predicted_ms"`
		Step      number `json:"step_ms"`

		Timeline *planned `json:"predicted_timeline"`
	}
	if json.Unmarshal(line, &c) != nil {
		return
	}
	if c.Event == "choice" {
		h.planned = c.Timeline
	}
	if len(h.choices) == mostFaults {
		return
	}
	ms := func(v number) string {
		if v == 0 {
			return "–"
		}
		return cli.Milliseconds(float64(v)) + " ms"
	}
	plan := fmt.Sprintf("%s (%s)", c.Plan, cli.Counted(c.Buckets, "bucket"))
	h.choices = append(h.choices, strings.Join([]string{c.Strategy, plan, ms(c.Predicted), ms(c.Step), c.Why}, "\x00"))
}
