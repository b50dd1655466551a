package tables

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"
)

// The test binary is also the server that is killed: TABLES_CHILD is its directory.
func TestMain(m *testing.M) {
	if dir := os.Getenv("TABLES_CHILD"); dir != "" {
		if err := serveForever(dir, Mode(os.Getenv("TABLES_MODE"))); err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const killedLanes = 3

func killedConfig(dir string, mode Mode) Config {
	return Config{Job: "killed", Trainers: killedLanes, Mode: mode, Durability: WAL, Dir: dir, LogBuffer: 64 << 10, MaxRows: 1 << 16}
}

// serveForever answers requests on standard input: for each lane changes in the format of
// the log behind their length; it says lane and number when a change is durable. All the while it saves.
func serveForever(dir string, mode Mode) error {
	e, err := Open(killedConfig(dir, mode), whole(2))
	if err != nil {
		return err
	}
	out := make(chan string)
	go func() {
		for line := range out {
			_, _ = os.Stdout.WriteString(line)
		}
	}()
	for lane := range killedLanes {
		out <- fmt.Sprintf("join %d %d\n", lane, e.Last(lane))
	}
	var inputs [killedLanes]chan change
	fail := make(chan error, killedLanes+2)
	for lane := range killedLanes {
		inputs[lane] = make(chan change, 100)
		go func() {
			for c := range inputs[lane] {
				if err := serveOne(e, &c); err != nil {
					fail <- err
					return
				}
				out <- fmt.Sprintf("ack %d %d\n", c.lane, c.seq) // a write of its own
			}
		}()
	}
	go func() {
		for {
			if _, err := e.Save(context.Background(), false); err != nil {
				fail <- err
				return
			}
			out <- "saved\n"
		}
	}()
	go func() { fail <- readChanges(inputs[:]) }()
	return <-fail
}

func readChanges(inputs []chan change) error {
	in := bufio.NewReader(os.Stdin)
	for {
		var size [4]byte
		if _, err := io.ReadFull(in, size[:]); err != nil {
			return err
		}
		b := make([]byte, binary.LittleEndian.Uint32(size[:]))
		if _, err := io.ReadFull(in, b); err != nil {
			return err
		}
		var c change
		if err := c.decode(b); err != nil {
			return err
		}
		inputs[c.lane] <- c
	}
}

func serveOne(e *Engine, c *change) error {
	var t Ticket
	var err error
	switch c.kind {
	case kindRows:
		t, err = e.PushRows(c.lane, c.seq, c.table, c.step, c.keys, c.values)
	case kindDense:
		if err := e.Await(context.Background(), c.lane, 1); err != nil { // initial values
			return err
		}
		t, err = e.PushDense(c.lane, c.seq, c.table, c.step, int(c.at), c.values)
	case kindSet:
		t, err = e.SetDense(c.lane, c.seq, c.table, int(c.at), c.values)
	case kindClock:
		t, err = e.Clock(c.lane, c.seq, c.step, -1)
	}
	if err != nil {
		return err
	}
	return e.Durable(t)
}

// A server that is killed 50 times, while it saves, has every push that it acknowledged and
// none twice: the clients, who send again what was not acknowledged, know the sums. In bsp
// too, where a push waits for the others of its step.
// It holds invariant[every-push-once].
func TestKill(t *testing.T) {
	for _, mode := range []Mode{Async, BSP} {
		kills := 25
		if testing.Short() {
			kills = 4
		}
		dir := t.TempDir()
		k := killer{t: t, dir: dir, mode: mode, want: newSums(whole(2)), rng: rand.New(rand.NewPCG(6, 6))}
		k.make(0, change{kind: kindSet, values: make([]float32, 40)})
		for i := range kills {
			k.round(20+k.rng.IntN(150), i%3) // every third time within the first checkpoint
		}
		k.round(-1, 0)
		e := open(t, killedConfig(dir, mode), whole(2))
		k.want.compare(t, []*Engine{e})
		if e.Stats().Saved == 0 {
			t.Errorf("%s: no checkpoint was completed", mode)
		}
		must(t, e.Close())
	}
}

// killer is all clients of a server that is killed.
type killer struct {
	t    *testing.T
	dir  string
	mode Mode
	rng  *rand.Rand
	want *sums

	made  [killedLanes][]change // not acknowledged
	seq   [killedLanes]uint64
	acked [killedLanes]uint64
	clock [killedLanes]uint64
}

// make makes a lane's next change.
func (k *killer) make(lane int, c change) {
	k.seq[lane]++
	c.lane, c.seq = lane, k.seq[lane]
	k.made[lane] = append(k.made[lane], c)
}

// more makes a step's changes of each lane.
func (k *killer) more() {
	for lane := range killedLanes {
		k.clock[lane]++
		g := integers(whole(2), k.rng, 40)
		if k.mode == BSP { // the mean of 3
			for _, g := range g {
				for i := range g.values {
					g.values[i] *= 3
				}
			}
		}
		third := []grads{{g[0].keys, nil}, {nil, nil}}
		for i := range third {
			for _, v := range g[i].values {
				if k.mode == BSP {
					v /= 3
				}
				third[i].values = append(third[i].values, v)
			}
		}
		k.want.add(third, false)
		k.make(lane, change{kind: kindRows, step: k.clock[lane], keys: g[0].keys, values: g[0].values})
		k.make(lane, change{kind: kindDense, step: k.clock[lane], at: 5, values: g[1].values[5:]})
		k.make(lane, change{kind: kindDense, step: k.clock[lane], values: g[1].values[:5]})
		k.make(lane, change{kind: kindClock, step: k.clock[lane]})
	}
}

// round starts the server, sends it what it does not have, and kills it after so many
// acknowledgements, below 0 when all have come, and after so many checkpoints.
func (k *killer) round(kill, saves int) {
	t := k.t
	t.Helper()
	for range 5 {
		k.more()
	}
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), "TABLES_CHILD="+k.dir, "TABLES_MODE="+string(k.mode))
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	must(t, err)
	out, err := c.StdoutPipe()
	must(t, err)
	must(t, c.Start())
	watch := time.AfterFunc(5*time.Minute, func() { _ = c.Process.Kill() })
	defer watch.Stop()
	lines := bufio.NewScanner(out)
	var todo []change
	for range killedLanes {
		var lane int
		var last uint64
		if !lines.Scan() {
			t.Fatalf("the server did not start: %v", lines.Err())
		}
		if _, err := fmt.Sscanf(lines.Text(), "join %d %d", &lane, &last); err != nil {
			t.Fatalf("the server says %q", lines.Text())
		}
		if last < k.acked[lane] || last > k.seq[lane] {
			t.Fatalf("lane %d: the server has %d changes, acknowledged were %d of %d", lane, last, k.acked[lane], k.seq[lane])
		}
		for _, c := range k.made[lane] {
			if c.seq+2 > last { // one that it has, too
				todo = append(todo, c)
			}
		}
	}
	sent := make(chan error, 1)
	go func() { sent <- send(in, todo, k.rng.Uint64()) }()
	left := len(todo)
	for left > 0 && kill != 0 || saves > 0 {
		if !lines.Scan() {
			t.Fatalf("the server ended by itself before it had acknowledged %d changes", left)
		}
		if k.hear(lines.Text()) {
			left--
			kill--
		} else {
			saves--
		}
	}
	must(t, c.Process.Kill())
	for lines.Scan() { // what is in the pipe counts
		k.hear(lines.Text())
	}
	_ = c.Wait() // killed
	<-sent
	for lane := range killedLanes {
		for len(k.made[lane]) > 0 && k.made[lane][0].seq <= k.acked[lane] {
			k.made[lane] = k.made[lane][1:]
		}
	}
}

// hear takes a line of the server, and tells whether it acknowledges a change; else a
// checkpoint is done.
func (k *killer) hear(line string) bool {
	if line == "saved" {
		return false
	}
	var lane int
	var seq uint64
	if _, err := fmt.Sscanf(line, "ack %d %d", &lane, &seq); err != nil {
		k.t.Fatalf("the server says %q", line)
	}
	k.acked[lane] = max(k.acked[lane], seq)
	return true
}

// send sends the lanes' changes, each lane's in order and the lanes mixed.
func send(in io.WriteCloser, todo []change, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 0))
	byLane := map[int][]change{}
	var order []int
	for _, c := range todo {
		byLane[c.lane] = append(byLane[c.lane], c)
		order = append(order, c.lane)
	}
	rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	w := bufio.NewWriterSize(in, 4096)
	for _, lane := range order {
		b := record(byLane[lane][0])
		byLane[lane] = byLane[lane][1:]
		if _, err := w.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(b)))); err != nil {
			return err
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return w.Flush()
}
