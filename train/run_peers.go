package train

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/modeltext"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim/schedule"
	"github.com/ringo-ml/ringo/ps/client"
	"github.com/ringo-ml/ringo/transport"
)

// communicator connects all ranks of a run, which make the same calls in the same order.
type communicator interface {
	// gather sends own to all ranks and returns the bytes of each, by rank, nil for a lost rank.
	gather(own []byte) ([][]byte, error)
	// mean makes x the mean over all ranks.
	mean(x []float32) error
	// barrier waits for all ranks.
	barrier() error
	// liveRanks returns the ranks that took part in the last call, in order.
	liveRanks() []int

	// validate returns an error for a configuration that ranks with this connection cannot run.
	validate(c Config) error
	// whenConnected calls do immediately, or as soon as the ranks are connected.
	whenConnected(do func() error) error
	// setServers sets the connections to parameter servers, and makes the calls that waited.
	setServers(c *client.Client) error
}

func peersOf(job *ringo.Job) communicator {
	if job.ServersOnly() {
		return &serverComm{ranks: collective.Ranks(job.Size())}
	}
	return meshComm{job.Group()}
}

// meshComm connects the ranks of a group. Its calls fail after the loss of a rank.
type meshComm struct{ group *collective.Group }

func (m meshComm) liveRanks() []int                    { return collective.Ranks(m.group.Size()) }
func (m meshComm) barrier() error                      { return collective.Barrier(m.group) }
func (m meshComm) mean(x []float32) error              { return collective.AllReduce(m.group, x, collective.Mean) }
func (m meshComm) validate(Config) error               { return nil }
func (m meshComm) whenConnected(do func() error) error { return do() }
func (m meshComm) setServers(*client.Client) error     { return nil }

func (m meshComm) gather(own []byte) ([][]byte, error) {
	all, counts, err := gatherV(m.group, own)
	if err != nil {
		return nil, err
	}
	out, at := make([][]byte, len(counts)), 0
	for r, n := range counts {
		out[r] = all[at : at+n : at+n]
		at += n
	}
	return out, nil
}

// gatherV is AllGatherV of slices with lengths that other ranks do not have yet.
func gatherV[T collective.Number](g *collective.Group, own []T) (all []T, lengths []int, err error) {
	counts, total := make([]int64, g.Size()), 0
	if err := collective.AllGather(g, counts, []int64{int64(len(own))}); err != nil {
		return nil, nil, err
	}
	for _, n := range counts {
		lengths = append(lengths, int(n))
		total += int(n)
	}
	all = make([]T, total)
	return all, lengths, collective.AllGatherV(g, all, own, lengths)
}

// serverComm connects ranks at a parameter server, and continues without lost ranks.
type serverComm struct {
	// client is nil until the servers are connected; waiting are the calls to make then.
	client  *client.Client
	waiting []func() error
	ranks   []int // ranks of the last meeting
}

func (a *serverComm) validate(c Config) error {
	switch {
	case c.Servers.Consistency == "":
		return errors.New("the job's ranks have no mesh to exchange gradients: use parameter servers")
	case c.Checkpoint.Dir != "":
		return setting.Errorf("checkpoint.dir", "%s: ranks that continue without a lost rank have no common step for a checkpoint: use --ps-failure-policy fail, or no checkpoints", c.Checkpoint.Dir)
	case c.Stream && c.Warmup != (schedule.Warmup{}):
		return setting.Errorf("training.warmup", "%v with %v: ranks that continue without a lost rank send their servers the first rate before the number of steps is known: remove it", c.Warmup, setting.Path("data.stream"))
	}
	return nil
}

func (a *serverComm) whenConnected(do func() error) error {
	if a.client != nil {
		return do()
	}
	a.waiting = append(a.waiting, do)
	return nil
}

func (a *serverComm) setServers(c *client.Client) error {
	a.client = c
	for _, do := range a.waiting {
		if err := do(); err != nil {
			return err
		}
	}
	a.waiting = nil
	return nil
}

// errLostTeller is the error after the loss of rank 0, which reports the results of the run.
var errLostTeller error = &transport.LostError{Reason: "the servers treat it as lost, and the run cannot continue without rank 0, which reports its progress and has its results"}

func (a *serverComm) liveRanks() []int { return a.ranks }

func (a *serverComm) gather(own []byte) ([][]byte, error) {
	all, err := a.client.AllGather(own)
	if err != nil {
		return nil, err
	}
	a.ranks = nil
	for r, b := range all {
		if b != nil {
			a.ranks = append(a.ranks, r)
		}
	}
	if all[0] == nil {
		return nil, errLostTeller
	}
	return all, nil
}

func (a *serverComm) barrier() error {
	_, err := a.gather(nil)
	return err
}

// mean adds values in rank order, in float64. If x is empty, it does not wait for other ranks.
func (a *serverComm) mean(x []float32) error {
	if len(x) == 0 {
		return nil
	}
	sums := make([]float64, len(x))
	for i, v := range x {
		sums[i] = float64(v)
	}
	fields := make([]*float64, len(x))
	for i := range sums {
		fields[i] = &sums[i]
	}
	_, err := addUp(a, fields, nil)
	for i, v := range sums {
		x[i] = float32(v / float64(len(a.ranks)))
	}
	return err
}

// addends are the numbers and words that a rank or a virtual worker contributes to addUp.
type addends struct {
	sums  []*float64
	words [][]uint64
}

func (r addends) appendTo(b []byte) []byte {
	for _, v := range r.sums {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(*v))
	}
	for _, w := range r.words {
		b = binary.LittleEndian.AppendUint64(b, uint64(len(w)))
		for _, v := range w {
			b = binary.LittleEndian.AppendUint64(b, v)
		}
	}
	return b
}

// addUp replaces each number of x by its sum over all ranks, in rank order: all ranks get the same
// bits. own are slices of words, such as those for AUC; addUp returns them joined over the ranks,
// which pass the same number of slices. One gather carries both, so that sums and words are of the
// same ranks. others are further addends of this rank, with as many numbers and slices.
func addUp(p communicator, x []*float64, own [][]uint64, others ...addends) (words [][]uint64, err error) {
	b := addends{x, own}.appendTo(nil)
	for _, r := range others {
		b = r.appendTo(b)
	}
	all, err := p.gather(b)
	if err != nil {
		return nil, err
	}
	for _, v := range x {
		*v = 0
	}
	words = make([][]uint64, len(own))
	for rank, b := range all {
		for rest, ok := b, true; b != nil; {
			if rest, ok = nextAddends(rest, x, words); !ok {
				return nil, fmt.Errorf("rank %d has sent %d bytes for %d numbers", rank, len(b), len(x))
			}
			if len(rest) == 0 {
				break
			}
		}
	}
	return words, nil
}

// nextAddends adds the first addends of b, and returns the bytes after it.
func nextAddends(b []byte, x []*float64, words [][]uint64) (rest []byte, ok bool) {
	next := func() (v uint64) {
		v, b = binary.LittleEndian.Uint64(b), b[8:]
		return v
	}
	if len(b) < 8*(len(x)+len(words)) {
		return nil, false
	}
	for _, v := range x {
		*v += math.Float64frombits(next())
	}
	for i := range words {
		if len(b) < 8 {
			return nil, false
		}
		n := next()
		if n > uint64(len(b)/8) {
			return nil, false
		}
		for range n {
			words[i] = append(words[i], next())
		}
	}
	return b, true
}

// gatherNumbers gathers equally many numbers of each rank; nil for a lost rank.
func gatherNumbers(p communicator, own ...int64) ([][]int64, error) {
	var b []byte
	for _, v := range own {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	all, err := p.gather(b)
	if err != nil {
		return nil, err
	}
	out := make([][]int64, len(all))
	for r, b := range all {
		if b == nil {
			continue
		}
		if len(b) != 8*len(own) {
			return nil, fmt.Errorf("rank %d has brought %d bytes for %d numbers", r, len(b), len(own))
		}
		for k := range own {
			out[r] = append(out[r], int64(binary.LittleEndian.Uint64(b[8*k:])))
		}
	}
	return out, nil
}

// values returns the run's settings for a checkpoint, with those of the job.
func (e *runEnv) values(scopes ...setting.Scope) (setting.Values, error) {
	t, err := setting.New(e.cfg.Settings()...)
	if err != nil {
		return nil, err
	}
	v := t.Values(scopes...)
	if scopes[0] != setting.JobFixed {
		return v, nil
	}
	if e.cfg.Workers > 0 { // absent from checkpoints of earlier versions
		v[settingWorkers] = strconv.Itoa(e.cfg.Workers)
	}
	v["model"], v["job.ranks"], v["job.collective-algorithm"] = e.spec.Name, strconv.Itoa(e.job.Size()), cmp.Or(e.job.Group().Algorithm(), "auto")
	if !e.cfg.Tuning.Measure { // measurements differ each time
		v["tuning.algorithms"] = e.job.Group().Rules().String()
	}
	v["sync"] = cmp.Or(e.cfg.Servers.Consistency, "allreduce")
	if e.job.Servers() > 0 {
		v["sync"] = "aggregate"
	}
	if c := e.cfg.Exchange.Chain; c != nil {
		v[chainOfOnesOwn] = c.String()
	}
	return v, nil
}

// chainOfOnesOwn is the name under which a custom chain of compression is compared like a setting.
const chainOfOnesOwn = "chain"

// agreeConfig returns an error if ranks have different settings, because sums would be wrong or
// operations would not match. Settings that may differ, such as folders, must be set on all ranks
// or on none.
func (e *runEnv) agreeConfig() error {
	v, err := e.values(setting.JobFixed, setting.JobMutable)
	if err != nil {
		return err
	}
	v["checkpoint.resume"], v["tuning.tune"] = strconv.FormatBool(e.cfg.Checkpoint.Resume), strconv.FormatBool(e.cfg.Tuning.Measure)
	v["--worst"], v["--importance"], v["training.folds"] = strconv.Itoa(e.cfg.Worst), strconv.Itoa(e.cfg.Importance), strconv.Itoa(e.cfg.folds)
	v["--by"] = strconv.Quote(e.cfg.By)
	v["training.seeds"] = strconv.Itoa(max(1, e.cfg.seeds))
	if e.cfg.Checkpoint.Dir != "" {
		v["checkpoint.dir"] = "a folder"
	}
	if e.cfg.Start.From != "" {
		v["training.init-from"] = "a file"
	}
	v["callbacks"] = e.cfg.names()
	if e.cfg.Traced {
		v["output.trace"] = "a file"
	}
	if p := e.cfg.Tuning.Profile; p != nil {
		text, err := json.Marshal(p)
		if err != nil {
			return fmt.Errorf("the profile cannot be compared: %w", err)
		}
		v["tuning.profile"] = fmt.Sprintf("of sha256 %.4x…", sha256.Sum256(text))
	}
	own, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("the settings cannot be compared: %w", err)
	}
	all, err := e.peers.gather(own)
	if err != nil {
		return fmt.Errorf("comparing the ranks' settings: %w", err)
	}
	for rank, text := range all {
		if text == nil {
			continue // lost
		}
		if err := sameSettings(rank, text, all[0]); err != nil {
			return err
		}
	}
	return nil
}

// agreeModel returns an error with the first parameter or table that differs from rank 0's in name
// or shape. It is for ranks that exchange no gradients; for other ranks package distopt compares
// replicas.
func agreeModel(ranks communicator, ps *nn.Params) error {
	var text modeltext.Text
	for _, p := range ps.List() {
		text.Parameter(p.Name, p.Shape...)
	}
	for _, t := range ps.Tables() {
		text.Table(t.Name, fmt.Sprintf("rows of %d values", t.Dim))
	}
	sum := sha256.Sum256(text)
	hashes, err := ranks.gather(sum[:])
	if err != nil {
		return fmt.Errorf("comparing the models: %w", err)
	}
	if !slices.ContainsFunc(hashes, func(h []byte) bool { return h != nil && !bytes.Equal(h, hashes[0]) }) {
		return nil
	}
	texts, err := ranks.gather(text)
	if err != nil {
		return fmt.Errorf("comparing the models: %w", err)
	}
	all := make([]modeltext.Text, len(texts))
	for rank, t := range texts {
		all[rank] = t
	}
	return modeltext.Compare(all)
}

func sameSettings(rank int, text, first []byte) error {
	var theirs, zeros setting.Values
	if err := errors.Join(json.Unmarshal(text, &theirs), json.Unmarshal(first, &zeros)); err != nil {
		return fmt.Errorf("the settings of ranks 0 and %d cannot be read: %w", rank, err)
	}
	var faults setting.ErrorList
	for _, d := range theirs.Differences(zeros) {
		faults = append(faults, setting.Errorf(d.Path, "%s on rank %d and %s on rank 0", shown(d.Mine), rank, shown(d.Theirs)))
	}
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("start all ranks with the same settings: %w", faults.Err())
}

func shown(value string) string {
	if value == "" {
		return "none"
	}
	return value
}
