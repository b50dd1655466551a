package engine

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

const killedSessions = 3

func killedConfig(dir string, mode Mode) Config {
	return Config{Job: "killed", Trainers: killedSessions, Mode: mode, Durability: WAL, Dir: dir, LogBuffer: 64 << 10, MaxRows: 1 << 16}
}

// serveForever answers requests on standard input: for each session changes in the format of
// the log behind their length; it says session and number when a change is durable. All the while it saves.
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
	for session := range killedSessions {
		out <- fmt.Sprintf("join %d %d\n", session, e.Last(session))
	}
	var inputs [killedSessions]chan change
	fail := make(chan error, killedSessions+2)
	for session := range killedSessions {
		inputs[session] = make(chan change, 100)
		go func() {
			for c := range inputs[session] {
				if err := serveOne(e, &c); err != nil {
					fail <- err
					return
				}
				out <- fmt.Sprintf("ack %d %d\n", c.session, c.seq) // a write of its own
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
		inputs[c.session] <- c
	}
}

func serveOne(e *Engine, c *change) error {
	var t Ticket
	var err error
	switch c.kind {
	case kindRows:
		t, err = e.PushRows(c.session, c.seq, c.table, c.step, c.keys, c.values)
	case kindDense:
		if err := e.Await(context.Background(), c.session, 1); err != nil { // initial values
			return err
		}
		t, err = e.PushDense(c.session, c.seq, c.table, c.step, int(c.at), c.values)
	case kindSet:
		t, err = e.SetDense(c.session, c.seq, c.table, int(c.at), c.values)
	case kindClock:
		t, err = e.Clock(c.session, c.seq, c.step, -1)
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

	made  [killedSessions][]change // not acknowledged
	seq   [killedSessions]uint64
	acked [killedSessions]uint64
	clock [killedSessions]uint64
}

// make makes a session's next change.
func (k *killer) make(session int, c change) {
	k.seq[session]++
	c.session, c.seq = session, k.seq[session]
	k.made[session] = append(k.made[session], c)
}

// more makes a step's changes of each session.
func (k *killer) more() {
	for session := range killedSessions {
		k.clock[session]++
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
		k.make(session, change{kind: kindRows, step: k.clock[session], keys: g[0].keys, values: g[0].values})
		k.make(session, change{kind: kindDense, step: k.clock[session], at: 5, values: g[1].values[5:]})
		k.make(session, change{kind: kindDense, step: k.clock[session], values: g[1].values[:5]})
		k.make(session, change{kind: kindClock, step: k.clock[session]})
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
	for range killedSessions {
		var session int
		var last uint64
		if !lines.Scan() {
			t.Fatalf("the server did not start: %v", lines.Err())
		}
		if _, err := fmt.Sscanf(lines.Text(), "join %d %d", &session, &last); err != nil {
			t.Fatalf("the server says %q", lines.Text())
		}
		if last < k.acked[session] || last > k.seq[session] {
			t.Fatalf("session %d: the server has %d changes, acknowledged were %d of %d", session, last, k.acked[session], k.seq[session])
		}
		for _, c := range k.made[session] {
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
	for session := range killedSessions {
		for len(k.made[session]) > 0 && k.made[session][0].seq <= k.acked[session] {
			k.made[session] = k.made[session][1:]
		}
	}
}

// hear takes a line of the server, and tells whether it acknowledges a change; else a
// checkpoint is done.
func (k *killer) hear(line string) bool {
	if line == "saved" {
		return false
	}
	var session int
	var seq uint64
	if _, err := fmt.Sscanf(line, "ack %d %d", &session, &seq); err != nil {
		k.t.Fatalf("the server says %q", line)
	}
	k.acked[session] = max(k.acked[session], seq)
	return true
}

// send sends the sessions' changes, each session's in order and the sessions mixed.
func send(in io.WriteCloser, todo []change, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 0))
	bySession := map[int][]change{}
	var order []int
	for _, c := range todo {
		bySession[c.session] = append(bySession[c.session], c)
		order = append(order, c.session)
	}
	rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	w := bufio.NewWriterSize(in, 4096)
	for _, session := range order {
		b := record(bySession[session][0])
		bySession[session] = bySession[session][1:]
		if _, err := w.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(b)))); err != nil {
			return err
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return w.Flush()
}
