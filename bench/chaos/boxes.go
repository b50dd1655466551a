package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/internal/pathname"
)

// The faults of jobs whose black box is judged.
const (
	killFault     = "kill"
	stopFault     = "stop"
	cutFault      = "cut"      // its connections, all of them
	mismatchFault = "mismatch" // it exchanges another length
	hangFault     = "hang"     // it never begins what the others wait for
)

const (
	boxTable = "tastes"
	boxWait  = 6 * time.Second // that the others wait for
	// At servers they wait for longer: a rank may begin later, and is not to be taken for the victim.
	boxTableWait = 15 * time.Second
	// By then a job has ended: `ringo run` finds a rank that was stopped after 10 s, and servers wait 30 s for one to come back.
	boxLimit = 100 * time.Second
)

// boxCase is a job of this program's own ranks, of which one fails at a place that is known: what the black box says is compared with that.
type boxCase struct {
	Fault   string
	Way     string // shm, tcp; sum; bsp, ssp, async, geo
	ByHand  bool   // its ranks are started without a launcher
	Sparse  bool   // few entries of each bucket travel
	Ranks   int
	Servers int
	Victim  int
	Buckets []int // values of each
	Step    int   // before whose exchange of Bucket it fails; with tables before its push
	Bucket  int
	// Log is the file in which each rank counts the exchanges that it has ended, by itself: what black boxes are held against.
	Log string `json:",omitempty"`
}

func (c *boxCase) tables() bool {
	return slices.Contains([]string{"bsp", "ssp", "async", "geo"}, c.Way)
}

// boxWays are drawn in turn, so that all of them come in a campaign of any seed.
var boxWays = []string{"shm", "tcp", "sum", "hand shm", "bsp", "shm sparse", "hand tcp", "ssp", "tcp sparse", "async", "sum sparse", "geo"}

// drawBox draws a case.
func drawBox(rng *rand.Rand, number int) *boxCase {
	way := strings.Fields(boxWays[number%len(boxWays)])
	c := &boxCase{Fault: pick(rng, killFault, stopFault, cutFault, mismatchFault, hangFault), Ranks: 2 + rng.IntN(3), Step: 1 + rng.IntN(40)}
	if c.ByHand = way[0] == "hand"; c.ByHand {
		way = way[1:]
	}
	c.Way, c.Sparse = way[0], len(way) > 1
	switch {
	case c.Way == "async" || c.Way == "geo": // nobody waits for anybody
		c.Fault = pick(rng, killFault, stopFault)
	case c.tables(): // connections are made anew, and all tables are the servers'
		c.Fault = pick(rng, killFault, stopFault, hangFault)
	}
	if c.tables() || c.Way == "sum" {
		c.Servers = 1 + rng.IntN(2)
	}
	c.Victim = rng.IntN(c.Ranks)
	for range 1 + rng.IntN(5) {
		c.Buckets = append(c.Buckets, pick(rng, 1, 100, 4096, 100_000))
	}
	if c.Sparse {
		for b := range c.Buckets {
			c.Buckets[b] += 100
		}
	}
	c.Bucket = rng.IntN(len(c.Buckets))
	return c
}

func (c *boxCase) text() string {
	b, _ := json.Marshal(c) // has only numbers and texts
	return string(b)
}

func (c *boxCase) String() string { return "a program of exchanges: " + c.text() }

func (c *boxCase) run(s *setup, dir string) verdict {
	self, err := os.Executable()
	if err != nil {
		return broken(err)
	}
	var v verdict
	job := *c // a case may be done again
	job.Log = filepath.Join(dir, "ended")
	box, err := job.fail(s, dir, self, &v)
	if err != nil {
		return broken(err)
	}
	if box != nil {
		ended, err := job.ended()
		if err != nil {
			return broken(err)
		}
		job.judge(&v, box, ended)
	}
	return v
}

var boxFile = regexp.MustCompile(`ringo blackbox (\S+)`)

// fail runs the job to its end and returns what its black box shows; nil: there is none, or it shows nothing.
func (c *boxCase) fail(s *setup, dir, self string, v *verdict) (*finding, error) {
	play := c.launched
	if c.ByHand {
		play = c.unlaunched
	}
	said, done, err := play(s, dir, self, v)
	defer done()
	if err != nil {
		return nil, err
	}
	file := boxFile.FindStringSubmatch(said)
	if file == nil {
		v.wrong("no black box: %s", lastLine(said))
		return nil, nil
	}
	paths, err := filepath.Glob(file[1])
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("%s: %v", file[1], err)
	}
	e, err := s.run(dir, append([]string{"blackbox", "--json", "-"}, paths...), baselineLimit)
	if err != nil {
		return nil, err
	}
	var told struct{ Finding *finding }
	if err := json.Unmarshal([]byte(strings.SplitN(e.Out, "\n", 2)[0]), &told); err != nil {
		return nil, fmt.Errorf("ringo blackbox: %w: %s", err, lastLine(e.Errs))
	}
	if told.Finding == nil {
		v.wrong("its black box shows nothing")
	}
	return told.Finding, nil
}

// launched has `ringo run` run the job, and returns what it says.
func (c *boxCase) launched(s *setup, dir, self string, v *verdict) (said string, done func(), err error) {
	args := []string{"run", "--np", strconv.Itoa(c.Ranks)}
	if c.tables() {
		args = append(args, "--heartbeat-timeout", deadAfter.String(), "--join-timeout", "30s")
	}
	if c.Servers > 0 {
		args = append(args, "--servers", strconv.Itoa(c.Servers), "--sync", c.Way)
	} else {
		args = append(args, "--transport", c.Way)
	}
	if c.Way == "ssp" {
		args = append(args, "--staleness", "2")
	}
	j, err := s.start(dir, append(args, "--", self, workerWord, c.text()))
	if err != nil {
		return "", func() {}, err
	}
	e := j.finish(boxLimit)
	judgeClean(v, e)
	return e.Errs, j.end, nil
}

// unlaunched starts the ranks of the job, and returns what those say that end by themselves. The others are left to done: what they were
// doing is seen before.
func (c *boxCase) unlaunched(_ *setup, dir, self string, v *verdict) (said string, done func(), err error) {
	ranks, err := c.byHand(dir, self)
	done = func() {
		for _, j := range ranks {
			j.end()
		}
	}
	for n, j := range ranks {
		if n == c.Victim && c.Fault != killFault || err != nil {
			continue
		}
		e := j.finish(boxLimit)
		if said += e.Errs; e.Overran {
			v.wrong("rank %d did not end in its time", n)
		}
	}
	return said, done, err
}

// byHand starts the ranks of a job that nobody launches.
func (c *boxCase) byHand(dir, self string) ([]*job, error) {
	at, err := freeAddress()
	if err != nil {
		return nil, err
	}
	var out []*job
	for rank := range c.Ranks {
		j, err := (&setup{Ringo: self}).start(dir, []string{workerWord, c.text(), strconv.Itoa(rank), at, dir}, "RINGO_TICKET="+strings.Repeat("5a", 32))
		if err != nil {
			return out, err
		}
		out = append(out, j)
	}
	return out, nil
}

// finding is blackbox.Finding as this program reads it.
type finding struct {
	Request bool
	Fault   bool
	Group   uint32
	Seq     uint32
	What    string
	Bucket  string
	Step    int
	Differ  []struct{ Ranks []string }
	Missing []struct{ Rank string }
	Within  []struct{ Rank string }
	Waited  []struct{ Rank, For string }
	Ended   []string
	Lost    []struct{ Rank string }
}

// blames tells whether the finding is about a rank, and about no other that did what it should.
func (f *finding) blames(victim string) bool {
	for _, d := range f.Differ {
		if slices.Contains(d.Ranks, victim) && len(d.Ranks) == 1 {
			return true
		}
	}
	for _, m := range f.Missing {
		if m.Rank != victim {
			return false
		}
	}
	return len(f.Missing) == 1 || len(f.Within) == 1 && f.Within[0].Rank == victim
}

// mentions tells whether the finding says anything of a rank.
func (f *finding) mentions(victim string) bool {
	named := slices.Contains(f.Ended, victim)
	for _, w := range f.Waited {
		named = named || w.For == victim || w.Rank == victim
	}
	for _, d := range slices.Concat(f.Missing, f.Within) {
		named = named || d.Rank == victim
	}
	if len(f.Lost) > 0 { // names who is to blame in spite of the rest: nobody else may be
		return len(f.Lost) == 1 && f.Lost[0].Rank == victim
	}
	return named
}

// ended is how many exchanges all ranks have ended, by their own count: the next is the first that one has not.
func (c *boxCase) ended() (least int, err error) {
	if c.tables() {
		return 0, nil
	}
	b, err := pathname.Read(c.Log, 1<<10)
	if err != nil {
		return 0, err
	}
	b = append(b, make([]byte, max(0, 8*c.Ranks-len(b)))...) // of ranks that have ended none
	least = math.MaxInt
	for rank := range c.Ranks {
		least = min(least, int(binary.LittleEndian.Uint64(b[8*rank:])))
	}
	return least, nil
}

// judge compares what a black box shows with what was done. ended is how many exchanges all ranks had ended.
func (c *boxCase) judge(v *verdict, f *finding, ended int) {
	victim := fmt.Sprintf("rank %d", c.Victim)
	v.Boxed = true
	if c.Fault == cutFault {
		c.judgeCut(v, f, victim, ended)
		return
	}
	if !f.blames(victim) {
		v.wrong("it is not about %s: %+v", victim, *f)
	}
	if c.tables() {
		step := c.Step
		switch c.Way { // where the others wait for its step
		case "bsp":
			step++
		case "ssp":
			step += 3
		}
		if !f.Request || f.Bucket != "table "+boxTable || !strings.HasPrefix(f.What, "pull of rows") || f.Step != step {
			v.wrong("want a pull of %s for step %d: %+v", boxTable, step, *f)
		}
		return
	}
	want := c.Step*len(c.Buckets) + c.Bucket
	if ended != want {
		v.wrong("all ranks count %d exchanges, and the fault was before that of number %d", ended, want)
	}
	c.judgePlace(v, f, want)
}

// judgePlace wants the exchange of a number, from 0.
func (c *boxCase) judgePlace(v *verdict, f *finding, number int) {
	step, b := number/len(c.Buckets), number%len(c.Buckets)
	if want := fmt.Sprintf("bucket %d (%s)", b, bucketLayer(b)); f.Bucket != want || f.Step != step {
		v.wrong("want %s of step %d: %+v", want, step, *f)
	}
	if !c.Sparse && int(f.Seq) != number { // a sparse exchange is several operations
		v.wrong("want operation %d: %+v", number, *f)
	}
}

// judgeCut judges a job in which a rank's connections were cut before an exchange. What it had sent before may be lost with them: then that
// exchange ended nowhere else. The memory that ranks share is not cut: there the job goes on until somebody notices. Which exchange it was in
// truth, the ranks' own counts say: the first that one of them has not ended.
func (c *boxCase) judgeCut(v *verdict, f *finding, victim string, ended int) {
	if f.Ended = nil; !f.mentions(victim) { // that it had ended is no word about it
		v.wrong("it says nothing of %s: %+v", victim, *f)
	}
	c.judgePlace(v, f, ended)
	if cut := c.Step*len(c.Buckets) + c.Bucket; ended < cut-1 || ended > cut && c.Way != "shm" {
		v.wrong("the cut was before exchange %d, and all ranks count %d", cut, ended)
	}
}
