package servers

import (
	"context"
	"fmt"

	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/median"
	"github.com/ringo-ml/ringo/internal/server/loadgen"
)

// serverCost is the resources of the server's process.
type serverCost struct {
	// ResidentBytes is the growth of the process's memory since before the first row, and PeakBytes
	// the maximum growth; BytesPerRow is ResidentBytes per row in memory. 0 means unknown.
	ResidentBytes int64   `json:"server_resident_bytes"`
	PeakBytes     int64   `json:"server_peak_bytes"`
	BytesPerRow   float64 `json:"server_bytes_per_row"`
	Rows          int64   `json:"server_rows"`        // rows in memory
	StoredRows    int64   `json:"server_stored_rows"` // rows on SSD only
	StoredBytes   int64   `json:"server_stored_bytes"`
	GCShare       float64 `json:"server_gc_share"`            // share of the CPU time
	GCPauseUS     float64 `json:"server_gc_longest_pause_us"` // longest pause since the start
}

// growth is the JSON line of filling.
type growth struct {
	Bench     string  `json:"bench"` // "ps"
	Op        string  `json:"op"`    // "fill": a push to each key
	Keys      int64   `json:"keys"`
	Dim       int     `json:"dim"`
	Optimizer string  `json:"optimizer"`
	Clients   int     `json:"clients"`
	RowsPerS  float64 `json:"rows_s"`
	serverCost
	// MaxBytesPerRow is the maximum of BytesPerRow over the points with an eighth of the keys or
	// more: with fewer rows, the fixed memory dominates.
	MaxBytesPerRow float64       `json:"server_max_bytes_per_row"`
	Points         []growthPoint `json:"growth"`
}

// growthPoint is the server's memory during filling.
type growthPoint struct {
	Rows          int64   `json:"rows"` // rows in memory
	ResidentBytes int64   `json:"resident_bytes"`
	BytesPerRow   float64 `json:"bytes_per_row"`
}

// result is the JSON line of an operation.
type result struct {
	Bench     string  `json:"bench"` // "ps"
	Op        string  `json:"op"`
	Dist      string  `json:"dist"`
	Batch     int     `json:"batch"`
	Keys      uint64  `json:"keys"` // number of keys afterwards
	Dim       int     `json:"dim"`
	Optimizer string  `json:"optimizer"`
	Clients   int     `json:"clients"`
	InFlight  int     `json:"ahead"`
	Insert    float64 `json:"insert"`
	// RowsPerS is the median over the repetitions (Turns), with several batches in flight.
	RowsPerS    float64 `json:"rows_s"`
	MinRowsPerS float64 `json:"min_rows_s"`
	MaxRowsPerS float64 `json:"max_rows_s"`
	// P50US to P999US are percentiles over single batches; P999US is 0 below 1000 batches.
	P50US           float64 `json:"p50_us"`
	P99US           float64 `json:"p99_us"`
	P999US          float64 `json:"p999_us"`
	SingleBatches   int     `json:"single_batches"`
	BytesPerS       float64 `json:"bytes_s"` // bytes in both directions
	SentBytesPerRow float64 `json:"sent_bytes_per_row"`
	ReadBytesPerRow float64 `json:"read_bytes_per_row"`
	MemoryHitRate   float64 `json:"memory_hit_rate"`
	AllocsPerBatch  float64 `json:"server_allocs_per_batch"`
	LimitRowsPerS   float64 `json:"limit_rows_s"`   // one thread, known locations
	LatencyRowsPerS float64 `json:"latency_rows_s"` // one thread, sequential rows
	ShareOfLimit    float64 `json:"share_of_limit"`
	ShareOfLatency  float64 `json:"share_of_latency"`
	CheckedRows     int     `json:"checked_rows"` // rows found correct
	Turns           int     `json:"turns"`
	serverCost
}

// cost returns the server's resources, with the garbage collector's share of the CPU time.
func (m *measurement) cost(f serverFigures, cpu, gc float64) serverCost {
	t := f.table()
	c := serverCost{
		Rows: t.Rows, StoredRows: t.StoredRows, StoredBytes: t.StoredBytes, GCPauseUS: f.Process.GCPauseUS,
		ResidentBytes: f.Process.ResidentBytes - m.empty.Process.ResidentBytes,
		PeakBytes:     f.Process.ResidentPeakBytes - m.empty.Process.ResidentBytes,
	}
	if c.Rows > 0 {
		c.BytesPerRow = float64(c.ResidentBytes) / float64(c.Rows)
	}
	if cpu > 0 {
		c.GCShare = min(1, gc/cpu) // the runtime adds a collection's time at its end, so a short interval may exceed its total
	}
	return c
}

// fill creates the rows and reports the server's resources during growth.
func (m *measurement) fill(ctx context.Context, bar *cli.Progress) error {
	c := m.c
	g := growth{Bench: "ps", Op: "fill", Keys: c.keys, Dim: c.dim, Optimizer: c.optimizer, Clients: c.clients}
	at := m.empty
	r, err := m.load.Fill(ctx, func(rows uint64) (err error) {
		bar.Update("filling", int64(rows), c.keys)
		if at, err = m.server.figures(ctx); err != nil {
			return err
		}
		cost := m.cost(at, 0, 0)
		g.Points = append(g.Points, growthPoint{cost.Rows, cost.ResidentBytes, cost.BytesPerRow})
		if rows >= uint64(c.keys)/8 {
			g.MaxBytesPerRow = max(g.MaxBytesPerRow, cost.BytesPerRow)
		}
		return nil
	})
	bar.Finish()
	if err != nil {
		return fmt.Errorf("filling the table: %w", err)
	}
	g.RowsPerS = float64(r.Rows) / r.Seconds
	g.serverCost = m.cost(at, at.Process.CPUSeconds-m.empty.Process.CPUSeconds, at.Process.GCSeconds-m.empty.Process.GCSeconds)
	has := fmt.Sprintf("%.1f bytes per row (%.1f at most while growing)", g.BytesPerRow, g.MaxBytesPerRow)
	if g.StoredRows > 0 {
		has = fmt.Sprintf("%s for %s in memory, and %s on SSD", cli.Memory(g.ResidentBytes), cli.Counted(int(g.Rows), "row"), cli.Counted(int(g.StoredRows), "row"))
	}
	if err := m.out.Result(g, "# filled %s of %d, %s: %s rows/s; the server takes %s, GC %.2f%% of its CPU",
		cli.Counted(int(c.keys), "row"), c.dim, c.optimizer, cli.Grouped(int(g.RowsPerS)), has, 100*g.GCShare); err != nil {
		return err
	}
	m.out.Line("# %s, %d batches under way; then one at a time", cli.Counted(c.clients, "client"), c.inFlight)
	for _, words := range header {
		m.out.Line(headerFormat, words...)
	}
	return nil
}

// Columns of the table of cases: each heading is as wide as the largest value below.
const (
	headerFormat = "#%4s %-9s %6s %11s %9s %9s %9s %7s %7s %5s %6s %7s %6s %8s"
	format       = "%5s %-9s %6d %11s %9.0f %9.0f %9s %7.0f %7.1f %4.0f%% %6.2f %7.2f %5.1f%% %8.2f"
)

var header = [][]any{
	{"", "", "", "", "p50", "p99", "p99.9", "", "bytes", "in", "of", "of", "GC", "allocs"},
	{"op", "keys", "batch", "rows/s", "us", "us", "us", "MB/s", "per row", "mem.", "memory", "latency", "", "/batch"},
}

func (m *measurement) report(k *work) error {
	r := m.result(k)
	return m.out.Result(r, format, r.columns()...)
}

func (r *result) columns() []any {
	p999 := "-"
	if r.P999US > 0 {
		p999 = fmt.Sprintf("%.0f", r.P999US)
	}
	return []any{
		r.Op, r.Dist, r.Batch, cli.Grouped(int(r.RowsPerS)), r.P50US, r.P99US, p999, r.BytesPerS / 1e6, r.SentBytesPerRow + r.ReadBytesPerRow,
		100 * r.MemoryHitRate, r.ShareOfLimit, r.ShareOfLatency, 100 * r.GCShare, r.AllocsPerBatch,
	}
}

func (m *measurement) result(k *work) result {
	w := k.work
	r := result{
		Bench: "ps", Op: string(w.Op), Dist: w.Dist.String(), Batch: w.Batch, Keys: k.keys, Dim: m.c.dim, Optimizer: m.c.optimizer,
		Clients: m.c.clients, InFlight: w.InFlight, Insert: w.Insert, CheckedRows: k.checked, Turns: len(k.rates),
		RowsPerS: median.Of(k.rates), SingleBatches: len(k.us), P50US: percentile(k.us, 0.5), P99US: percentile(k.us, 0.99),
		BytesPerS:       float64(k.sent+k.read) / k.seconds,
		SentBytesPerRow: float64(k.sent) / float64(k.rows), ReadBytesPerRow: float64(k.read) / float64(k.rows),
		MemoryHitRate: 1, AllocsPerBatch: float64(k.allocs) / float64(k.batches),
		serverCost: m.cost(k.after, k.cpu, k.gc),
	}
	r.MinRowsPerS, r.MaxRowsPerS = k.rates[0], k.rates[len(k.rates)-1] // sorted by median
	if len(k.us) >= 1000 {
		r.P999US = percentile(k.us, 0.999)
	}
	if k.pulled > 0 {
		r.MemoryHitRate = float64(k.found) / float64(k.pulled)
	}
	var limits, chases []float64
	for _, l := range k.limits {
		limits, chases = append(limits, limitOf(w.Op, l)), append(chases, l.Chase)
	}
	r.LimitRowsPerS, r.LatencyRowsPerS = median.Of(limits), median.Of(chases)
	r.ShareOfLimit, r.ShareOfLatency = r.RowsPerS/r.LimitRowsPerS, r.RowsPerS/r.LatencyRowsPerS
	return r
}

func limitOf(op loadgen.Op, r loadgen.Rates) float64 {
	switch op {
	case loadgen.Pull:
		return r.Gather
	case loadgen.Push:
		return r.Update
	}
	return 1 / (1/r.Gather + 1/r.Update) // both sequentially
}

// percentile returns the smallest of the sorted values that is at least the share's quantile.
func percentile(sorted []float64, share float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(share*float64(len(sorted))))]
}
