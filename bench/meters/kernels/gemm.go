package kernels

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/median"
	"github.com/ringo-ml/ringo/internal/simd"
	"github.com/ringo-ml/ringo/train"
)

// gemm is `meters gemm`.
type gemm struct {
	n              []int
	m, k           int // 0: as n
	transA, transB bool
	threads        int
	time           time.Duration // per size
	level          string
	json           string
}

// maxSide bounds a matrix's rows and columns: 4 GiB each at the most.
const maxSide = 1 << 15

// gemmResult is its line of JSON.
type gemmResult struct {
	Bench      string  `json:"bench"` // "gemm"
	M          int     `json:"m"`
	N          int     `json:"n"`
	K          int     `json:"k"`
	TransA     bool    `json:"trans_a"`
	TransB     bool    `json:"trans_b"`
	Threads    int     `json:"threads"`
	Kernels    string  `json:"kernels"`
	MedianUS   float64 `json:"median_us"`
	MinUS      float64 `json:"min_us"`
	GFlops     float64 `json:"gflop_s"`      // at the median
	PeakGFlops float64 `json:"peak_gflop_s"` // of multiply-adds on registers alone; 0: not known
	Share      float64 `json:"share_of_peak"`
	Iterations int     `json:"iterations"`
}

// Gemm is `meters gemm`.
func Gemm() *cobra.Command {
	c := &gemm{}
	cmd := &cobra.Command{
		Use:   "gemm",
		Short: "Benchmark matrix products against the processor's peak",
		Long: `Times C[m,n] = A[m,k] B[k,n] in float32. The peak is measured in turns with
the products: fused multiply-adds on registers alone, on as many threads.`,
		Example: "  go run ./bench/meters gemm --n 1024,2048 --threads 1 --json -\n  go run ./bench/meters gemm --m 64 --k 800 --n 500 --trans-b",
		Args:    cli.NoArguments,
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.execute(cmd) },
	}
	fs := cmd.Flags()
	fs.IntSliceVar(&c.n, "n", []int{1024}, "columns of C, a `list`")
	fs.IntVar(&c.m, "m", 0, "rows of C; 0: as --n")
	fs.IntVar(&c.k, "k", 0, "products per element of C; 0: as --n")
	fs.BoolVar(&c.transA, "trans-a", false, "A is stored as [k,m]")
	fs.BoolVar(&c.transB, "trans-b", false, "B is stored as [n,k]")
	fs.IntVar(&c.threads, "threads", 1, "`threads` that share the rows or columns of C; 0: all cores")
	fs.DurationVar(&c.time, "time", 500*time.Millisecond, "how long to measure each size")
	levelFlag(cmd, &c.level)
	cli.JSON(cmd, &c.json, "size")
	return cmd
}

func (c *gemm) execute(cmd *cobra.Command) error {
	kernels, err := c.check()
	if err != nil {
		return err
	}
	return cli.WithOutput(cmd, c.json, func(out *cli.Output) error {
		for _, n := range c.n {
			r, err := c.product(kernels, n).measure(cmd.Context(), c.time)
			if err != nil {
				return err
			}
			if err := out.Result(r, "gemm %d x %d x %d  median %.1f us  min %.1f us  %.1f GFLOP/s  %.0f%% of %.1f",
				r.M, r.K, r.N, r.MedianUS, r.MinUS, r.GFlops, 100*r.Share, r.PeakGFlops); err != nil {
				return err
			}
		}
		return nil
	})
}

func (c *gemm) check() (*simd.Kernels, error) {
	var faults cli.Faults
	kernels, err := simd.Lookup(c.level)
	if err != nil {
		faults.Add("--kernels: %w", err)
	}
	for _, n := range c.n {
		faults.Range("n", n, 1, maxSide)
	}
	faults.Range("m", c.m, 0, maxSide)
	faults.Range("k", c.k, 0, maxSide)
	if len(c.n) == 0 {
		faults.Add("--n: want at least one size")
	}
	faults.Range("threads", c.threads, 0, train.MaxThreads)
	faults.Budget("time", c.time)
	return kernels, faults.Usage()
}

// product is one product and its operands.
type product struct {
	kernels        *simd.Kernels
	m, n, k        int
	transA, transB bool
	a, b, c        []float32
	workers        []simd.Scratch
}

func (c *gemm) product(kernels *simd.Kernels, n int) *product {
	p := &product{kernels: kernels, m: c.m, n: n, k: c.k, transA: c.transA, transB: c.transB}
	if p.m == 0 {
		p.m = n
	}
	if p.k == 0 {
		p.k = n
	}
	threads := c.threads
	if threads == 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	p.workers = make([]simd.Scratch, threads)
	rnd := rand.New(rand.NewPCG(1, 2))
	p.a, p.b, p.c = make([]float32, p.m*p.k), make([]float32, p.k*n), make([]float32, p.m*n)
	for _, x := range [][]float32{p.a, p.b} {
		for i := range x {
			x[i] = rnd.Float32() - 0.5
		}
	}
	return p
}

// each runs f on every worker at once.
func (p *product) each(f func(i int)) {
	var wg sync.WaitGroup
	for i := 1; i < len(p.workers); i++ {
		wg.Go(func() { f(i) })
	}
	f(0)
	wg.Wait()
}

// part computes worker i's share: rows of C, or columns where there are more.
func (p *product) part(i int) {
	lda, ldb := p.k, p.n
	if p.transA {
		lda = p.m
	}
	if p.transB {
		ldb = p.k
	}
	m, n, a, b, c := p.m, p.n, p.a, p.b, p.c
	const panel = 32 // columns that kernels do at a time
	if panels := (n + panel - 1) / panel; n > m {
		lo, hi := panels*i/len(p.workers)*panel, min(n, panels*(i+1)/len(p.workers)*panel)
		n, c = hi-lo, c[lo:]
		b = b[lo*stride(p.transB, 1, ldb):]
	} else {
		lo, hi := m*i/len(p.workers), m*(i+1)/len(p.workers)
		m, c = hi-lo, c[lo*p.n:]
		a = a[lo*stride(p.transA, lda, 1):]
	}
	if m > 0 && n > 0 {
		p.kernels.Gemm(&p.workers[i], p.transA, p.transB, m, n, p.k, a, lda, b, ldb, false, c, p.n)
	}
}

func stride(trans bool, plain, transposed int) int {
	if trans {
		return transposed
	}
	return plain
}

// peakTime is about how long the peak is measured for each product.
const peakTime = time.Millisecond

// measure times products for about d, in turns with the peak.
func (p *product) measure(ctx context.Context, d time.Duration) (gemmResult, error) {
	p.each(p.part) // grows the packing buffers
	flops := 1 << 20
	var us, peaks []float64
	for start := time.Now(); len(us) < 5 || time.Since(start) < d; {
		if err := context.Cause(ctx); err != nil {
			return gemmResult{}, err
		}
		begin := time.Now()
		done := p.peak(flops)
		took := time.Since(begin)
		peaks = append(peaks, float64(done)/took.Seconds()/1e9)
		if took < peakTime {
			flops += flops / 2
		}
		begin = time.Now()
		p.each(p.part)
		us = append(us, 1e6*time.Since(begin).Seconds())
	}
	r := gemmResult{
		Bench: "gemm", M: p.m, N: p.n, K: p.k, TransA: p.transA, TransB: p.transB,
		Threads: len(p.workers), Kernels: p.kernels.Name(),
		MedianUS: median.Of(us), PeakGFlops: median.Of(peaks), Iterations: len(us),
	}
	r.MinUS = us[0] // sorted by median
	r.GFlops = 2 * float64(p.m) * float64(p.n) * float64(p.k) / r.MedianUS / 1e3
	if r.PeakGFlops > 0 {
		r.Share = r.GFlops / r.PeakGFlops
	}
	return r, nil
}

// peak does about flops operations on each worker and returns the sum.
func (p *product) peak(flops int) int {
	done := make([]int, len(p.workers))
	p.each(func(i int) { done[i] = p.kernels.Peak(flops) })
	sum := 0
	for _, n := range done {
		sum += n
	}
	return sum
}
