package aggregate

import (
	"fmt"
	"testing"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/exchange"
	"github.com/ringo-ml/ringo/transport"
)

// BenchmarkPushPull is a bucket's way to the servers and back, over loopback TCP
// and among goroutines of this process, beside the ring among the same ranks.
// Bytes are those of the bucket as float32.
func BenchmarkPushPull(b *testing.B) {
	const trainers = 2
	for _, n := range []int{16 << 10, 2 << 20} {
		for _, servers := range []int{1, 2} {
			b.Run(fmt.Sprintf("%dKiB/servers=%d", n>>8, servers), func(b *testing.B) { benchPush(b, trainers, servers, n, nil, 0) })
		}
		b.Run(fmt.Sprintf("%dKiB/ring", n>>8), func(b *testing.B) { benchRing(b, trainers, n) })
	}
	for _, q := range []compress.Quantiser{compress.FP16{}, compress.Int8{}} {
		b.Run(fmt.Sprintf("8192KiB/servers=1/%s", q.Name()), func(b *testing.B) { benchPush(b, trainers, 1, 2<<20, q, 0) })
	}
	b.Run("8192KiB/servers=1/sparse0.01", func(b *testing.B) { benchPush(b, trainers, 1, 2<<20, nil, 0.01) })
}

func benchPush(b *testing.B, trainers, servers, n int, q compress.Quantiser, share float64) {
	meshes := tcpMeshes(b, trainers+servers)
	for _, err := range onMeshes(b, meshes, Config{Trainers: trainers}, func(c *Client) error {
		op := &exchange.Request{X: make([]float32, n), Code: q}
		if share > 0 {
			op.Sparse = entries(b, n, c.rank(), 1, share, compress.FP32{})
		}
		return benchRank(b, c.rank(), n, func() error { return reduce(c, op) })
	}) {
		if err != nil {
			b.Error(err)
		}
	}
}

// benchRank runs fn b.N times after a first one; rank 0 keeps the time.
func benchRank(b *testing.B, rank, n int, fn func() error) error {
	if err := fn(); err != nil {
		return err
	}
	if rank == 0 {
		b.SetBytes(int64(4 * n))
		b.ReportAllocs()
		b.ResetTimer()
	}
	for range b.N {
		if err := fn(); err != nil {
			return err
		}
	}
	if rank == 0 {
		b.StopTimer()
	}
	return nil
}

func benchRing(b *testing.B, ranks, n int) {
	meshes := tcpMeshes(b, ranks)
	defer closeAll(meshes)
	end := make(chan error, ranks)
	for _, m := range meshes {
		go func(m transport.Mesh) {
			g, err := collective.New(m, collective.Config{Algorithm: collective.Ring})
			if err != nil {
				end <- err
				return
			}
			defer g.Close()
			x := make([]float32, n)
			end <- benchRank(b, g.Rank(), n, func() error { return collective.AllReduce(g, x, collective.Sum) })
		}(m)
	}
	for range meshes {
		if err := <-end; err != nil {
			b.Error(err)
		}
	}
}
