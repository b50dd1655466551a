package dashboard

import (
	"crypto/rand"
	"fmt"
	"io"
	"math"
	"net/http"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/httpguard"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/randbatch"
	"github.com/ringo-ml/ringo/internal/usage"
	"github.com/ringo-ml/ringo/internal/watch/metrics"
	"github.com/ringo-ml/ringo/internal/watch/metrics/scrape"
	"github.com/ringo-ml/ringo/internal/watch/record"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/models"
	"github.com/ringo-ml/ringo/train"
)

const (
	turn   = 50 // steps
	asleep = 8  // turns of each kind in which ranks sleep
	// settle is what passes before each turn, of both kinds: who comes to look is sent the whole page first.
	settle = 250 * time.Millisecond
)

// BenchmarkWatched measures what it costs to be watched: recorder and black box (the memory in which it records), page with its looks
// and a stream to who watches it, and metrics that are scraped every second, all on or all off, in turns of 50 steps within
// one run. Who is first in a pair of turns changes.
//
//   - more-% is by how much longer the mean step of a turn is with all of it: the median over the pairs, and more-error-% its standard error.
//   - more-cpu-% is the same of the processor time of ranks and watchers together, which other work on the machine changes less.
//   - watchers-% is what all of it but the records takes of the processors, beside ranks that sleep where they would compute: what such turns
//     take more with it than without.
//   - box-% is records a step, times what a record costs, of a step.
//
// It takes 20 minutes, and wants a machine with nothing else to do:
//
//	go test ./cmd/ringo/internal/dashboard -run - -bench Watched -benchtime 1x -timeout 1h
func BenchmarkWatched(b *testing.B) {
	for _, c := range []struct {
		model     string
		np, pairs int // of turns with and without
	}{{"mnist-cnn", 2, 150}, {"mnist-cnn", 4, 80}, {"cifar-resnet20", 2, 30}, {"cifar-resnet20", 4, 15}} {
		b.Run(fmt.Sprintf("%s/np=%d", c.model, c.np), func(b *testing.B) {
			for b.Loop() {
				watched(b, c.model, c.np, c.pairs)
			}
		})
	}
}

func watched(b *testing.B, name string, np, pairs int) {
	spec, err := models.Lookup(name)
	must(b, err)
	board, err := metrics.Open(filepath.Join(b.TempDir(), "board"))
	must(b, err)
	defer board.Leave()
	all := &audience{board: board, np: np, ranks: make([]*record.Recorder, np)}
	var ranks [16]watchedRank
	err = ringo.Local(b.Context(), np, ringo.Config{}, func(job *ringo.Job) error {
		cfg := train.Config{Model: spec, Batch: spec.Defaults.Batch, LR: 0.01, Optimizer: "sgd", Threads: 1}
		r, err := train.NewReplica(job, cfg, model.Options{})
		if err != nil {
			return err
		}
		defer r.Close()
		w := &ranks[job.Rank()]
		*w = watchedRank{job: job, replica: r, all: all, batch: randbatch.Batch(r.Spec, r.Params, cfg.Batch, job.Rank())}
		return w.run(pairs)
	})
	must(b, err)
	w := ranks[0]
	step := middle(slices.Sorted(slices.Values(w.ms[0])))
	reportMore(b, "more", w.ms)
	reportMore(b, "more-cpu", w.cpu)
	b.ReportMetric(w.watchers, "watchers-%")
	b.ReportMetric(step, "ms/step")
	b.ReportMetric(w.records, "records/step")
	b.ReportMetric(100*w.records*recordNS()/1e6/step, "box-%")
	b.ReportMetric(0, "ns/op")
}

// reportMore reports a median over pairs of turns and its standard error, by the quartiles of a normal distribution.
func reportMore(b *testing.B, name string, turns [2][]float64) {
	more := longer(turns)
	n := len(more)
	b.ReportMetric(middle(more), name+"-%")
	b.ReportMetric(1.253*(more[3*n/4]-more[n/4])/1.349/math.Sqrt(float64(n)), name+"-error-%")
}

// longer are by how many % the turns with are longer than those without, sorted.
func longer(turns [2][]float64) (more []float64) {
	for i, off := range turns[0] {
		more = append(more, 100*(turns[1][i]/off-1))
	}
	slices.Sort(more)
	return more
}

// spent is the processor time that this process has taken, in ms.
func spent() float64 { return 1e3 * usage.Read().CPUSeconds }

// middle is the median of what is sorted.
func middle(x []float64) float64 { return (x[(len(x)-1)/2] + x[len(x)/2]) / 2 }

// recordNS is what an event costs from its beginning to its end, with two looks at the clock, in ns.
func recordNS() float64 {
	r, n := record.New(record.Config{}), 200_000
	begun := time.Now()
	for range n {
		r.Begin(&record.Event{Kind: record.Operation, Bucket: -1, Other: -1, Peer: -1, Begun: r.Now()}).End(r.Now(), -1, false)
	}
	return float64(time.Since(begun).Nanoseconds()) / float64(n)
}

// audience is all that watches a job.
type audience struct {
	board *metrics.Dir
	np    int
	ranks []*record.Recorder
	hub   *Collector
	leave []func()
}

// come begins to watch.
func (a *audience) come() error {
	a.hub = NewHub()
	a.hub.Identify("x", "x", func() (out []launch.ProcessInfo) {
		for i, rec := range a.ranks {
			out = append(out, launch.ProcessInfo{Name: fmt.Sprintf("rank %d", i), Role: "rank", Index: i, Glance: func(phases int) (*record.Snapshot, error) { return rec.Glance(phases), nil }})
		}
		return out
	})
	at, err := httpguard.NewSite("127.0.0.1:0", rand.Text(), nil)
	if err != nil {
		return err
	}
	a.hub.Serve(at)
	by, err := scrape.Start(scrape.Config{Site: at, Board: a.board, Version: "x"})
	if err != nil {
		return err
	}
	stream, err := http.Get(a.hub.url() + "events")
	if err != nil {
		return err
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(io.Discard, stream.Body) // until the hub ends
	}()
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			if r, err := http.Get("http://" + at.At() + scrape.Path); err == nil {
				_, _ = io.Copy(io.Discard, r.Body)
				_ = r.Body.Close()
			}
			select {
			case <-tick.C:
			case <-stop:
				return
			}
		}
	}()
	a.leave = []func(){func() { close(stop); <-ended }, func() { a.hub.Close(nil); by.Close(); _ = stream.Body.Close(); <-read }}
	return nil
}

// go away.
func (a *audience) goAway() {
	for _, f := range a.leave {
		f()
	}
	a.leave = nil
}

// watchedRank is a rank whose steps are watched in turns.
type watchedRank struct {
	job     *ringo.Job
	replica *train.Replica
	all     *audience
	batch   *data.Batch
	done    int64
	ms      [2][]float64  // the mean step of each turn, without and with
	cpu     [2][]float64  // the processor time of a step, of all ranks and watchers
	records float64       // a step
	asleep  time.Duration // what a step takes that computes nothing; 0: it computes
	// watchers is what those who watch take of the processors, in %.
	watchers float64
}

// run trains in turns, of which the first is for the machine to get warm.
func (w *watchedRank) run(pairs int) error {
	w.all.ranks[w.job.Rank()] = w.job.Recorder() // who looks comes after a barrier
	if _, _, err := w.turn(false); err != nil {
		return err
	}
	for pair := range pairs {
		for i := range 2 {
			on := (pair+i)%2 == 1
			ms, cpu, err := w.turn(on)
			if err != nil {
				return err
			}
			at := 0
			if on {
				at = 1
			}
			w.ms[at], w.cpu[at] = append(w.ms[at], ms), append(w.cpu[at], cpu)
		}
	}
	return w.sleep()
}

// sleep has ranks sleep where they would compute, in turns without watchers and with them: these take what is more, as nothing else does
// anything.
func (w *watchedRank) sleep() error {
	w.asleep = time.Duration(middle(slices.Sorted(slices.Values(w.ms[0]))) * 1e6)
	for i := range 2 * asleep {
		ms, cpu, err := w.turn(i%2 == 1)
		if err != nil {
			return err
		}
		if i%2 == 0 {
			cpu = -cpu
		}
		w.watchers += 100 * cpu / ms / float64(runtime.NumCPU()) / asleep
	}
	return nil
}

// turn is the mean step of one, and its processor time, in ms.
func (w *watchedRank) turn(on bool) (ms, cpu float64, err error) {
	rec, rank := w.job.Recorder(), w.job.Rank()
	rec.SetPaused(!on)
	tell := func(train.Step) {}
	var figures *metrics.RankMetrics
	if on {
		if rank == 0 {
			if err := w.all.come(); err != nil {
				return 0, 0, err
			}
		}
		if err := collective.Barrier(w.job.Group()); err != nil {
			return 0, 0, err
		}
		feed := w.all.hub.Feed()
		defer feed.Close()
		tell = feed.Steps(rank, false)
		if figures, err = w.all.board.Rank(rank, w.all.np); err != nil {
			return 0, 0, err
		}
		defer figures.Close()
		defer figures.Follow(metrics.Source{Sent: func() int64 { return w.job.Traffic().WireSent }, Queued: func() int { return len(rec.Open(nil)) }})()
	}
	time.Sleep(settle)
	before := rec.Snapshot()
	begun, took := time.Now(), spent()
	for range turn {
		if err := w.step(tell, figures); err != nil {
			return 0, 0, err
		}
	}
	ms, cpu = time.Since(begun).Seconds()*1e3/turn, (spent()-took)/turn
	if after := rec.Snapshot(); on && w.asleep == 0 {
		w.records = float64(after.PhasesEnded+after.OperationsEnded-before.PhasesEnded-before.OperationsEnded) / turn
	}
	if err := collective.Barrier(w.job.Group()); err != nil {
		return 0, 0, err
	}
	if on && rank == 0 {
		w.all.goAway()
	}
	return ms, cpu, nil
}

// step trains, and tells of it as the loop does.
func (w *watchedRank) step(tell func(train.Step), figures *metrics.RankMetrics) error {
	w.job.Recorder().BeginStep(w.done)
	var watch train.StepTimer
	watch.Begin(time.Now())
	if err := w.train(&watch); err != nil {
		return err
	}
	t := watch.End(time.Now(), w.replica.Opt.Times())
	w.done++
	ms := func(d time.Duration) float64 { return d.Seconds() * 1e3 }
	tell(train.Step{Done: w.done, Loss: 1, StepMS: ms(t.Whole), DataWaitMS: 0, BreakDown: train.BreakDown{ComputeMS: ms(t.Compute), CompressMS: ms(t.Compress), ExposedCommMS: ms(t.Exposed), UpdateMS: ms(t.Update)}})
	figures.Step(metrics.Step{Whole: t.Whole, Samples: 64, Epoch: 1, Loss: 1, Density: t.Density, Overlap: 1})
	return nil
}

// train computes and exchanges, or sleeps as long.
func (w *watchedRank) train(watch *train.StepTimer) error {
	if w.asleep > 0 {
		time.Sleep(w.asleep)
		watch.Ready(time.Now())
		return nil
	}
	if _, err := w.replica.Backward(w.replica.Batch(w.batch), true); err != nil {
		return err
	}
	watch.Ready(time.Now())
	return w.replica.Step()
}
