package jobtest

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/watch/metrics"
)

// Ranks count, and servers that sum what they did, on the board of their host.
func TestFiguresOfAJob(t *testing.T) {
	leakcheck.Check(t)
	board, err := metrics.Open(filepath.Join(t.TempDir(), "board"))
	if err != nil {
		t.Fatal(err)
	}
	defer board.Leave()
	err = ringo.Local(t.Context(), 2, ringo.Config{Servers: 1, Metrics: board}, func(job *ringo.Job) error {
		if err := collective.AllReduce(job.Group(), make([]float32, 1000), collective.Sum); err != nil {
			return err
		}
		return sum(job)
	})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, r := range board.Read() {
		if r.Alive || r.Size != 2 {
			t.Errorf("%s %d of %d ranks, alive %v", r.Role, r.Rank, r.Size, r.Alive)
		}
		for _, v := range r.Values {
			got[fmt.Sprintf("%s %d %s %s", r.Role, r.Rank, v.ID.Row().Name, v.Label)] = v.Value
		}
	}
	for _, rank := range []string{"rank 0", "rank 1"} {
		if n, told := got[rank+" ringo_sent_bytes_total shm"]; !told || n != 0 {
			t.Errorf("ranks of one process share no windows: %v bytes of %s", n, rank)
		}
		if n, told := got[rank+" ringo_queue_depth operations"]; !told || n != 0 {
			t.Errorf("%v operations of %s are queued at the end", n, rank)
		}
	}
	server := "aggregator 0 ringo_aggregator_"
	if n, in, out := got[server+"exchanges_total "], got[server+"received_bytes_total "], got[server+"sent_bytes_total "]; n != 1 || in < 2*4*5000 || out < 2*4*5000 || !(got[server+"resident_memory_bytes "] > 0) {
		t.Errorf("the server has counted %v exchanges, %v bytes in and %v out", n, in, out)
	}
}
