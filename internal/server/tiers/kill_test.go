package tiers

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/ringo-ml/ringo/internal/server/engine"
)

// The test binary is also the server that is killed: TIERS_CHILD is its directory.
func TestMain(m *testing.M) {
	if dir := os.Getenv("TIERS_CHILD"); dir != "" {
		fmt.Fprintln(os.Stderr, "child:", pushForever(dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

const (
	killedSessions = 3
	killedKeys     = 30_000
	killedBatch    = 300
	killedDim      = 4
)

// openKilled opens the engine that is killed, with a fraction of its rows in memory.
func openKilled(dir string) (*engine.Engine, *Tiers, error) {
	s := counting(killedDim)
	ti, err := Open(Config{Dir: filepath.Join(dir, "ssd"), MemoryBytes: 480 << 10, Deltas: true}, s)
	if err != nil {
		return nil, nil, err
	}
	e, err := engine.Open(engine.Config{
		Job: "killed", Trainers: killedSessions, Mode: engine.Async, Durability: engine.WAL, Dir: filepath.Join(dir, "server"), Make: ti.Make,
	}, s)
	return e, ti, err
}

// killedPush is what change number seq of a session pushes: whole numbers.
func killedPush(session int, seq uint64) (keys []uint64, grads []float32) {
	rng := rand.New(rand.NewPCG(uint64(session), seq))
	first, stride := rng.IntN(killedKeys), 1+rng.IntN(40)
	grads = make([]float32, killedBatch*killedDim)
	for i := range killedBatch {
		keys = append(keys, uint64((first+i*stride)%killedKeys)) // different: 300*40 are fewer than all
		for j := range killedDim {
			grads[i*killedDim+j] = float32(rng.IntN(7) - 3)
		}
	}
	return keys, grads
}

// pushForever pushes from all sessions, each from where it was, and says which changes are
// durable, while it saves.
func pushForever(dir string) error {
	e, _, err := openKilled(dir)
	if err != nil {
		return err
	}
	fail := make(chan error)
	for session := range killedSessions {
		go func() {
			for seq := e.Last(session) + 1; ; seq++ {
				keys, grads := killedPush(session, seq)
				t, err := e.PushRows(session, seq, 0, 1, keys, grads)
				if err == nil {
					err = e.Durable(t)
				}
				if err != nil {
					fail <- err
					return
				}
				_, _ = os.Stdout.WriteString(fmt.Sprintf("%d %d\n", session, seq)) // a write of its own
			}
		}()
	}
	go func() {
		for i := 0; ; i++ {
			if _, err := e.Save(context.Background(), i%3 > 0); err != nil {
				fail <- err
				return
			}
			_, _ = os.Stdout.WriteString("saved\n")
		}
	}()
	return <-fail
}

// A server most of whose rows are on SSD is killed again and again, while rows move and
// are saved: it has every push that it acknowledged, and none twice.
func TestKill(t *testing.T) {
	kills := 8
	if testing.Short() {
		kills = 3
	}
	dir := t.TempDir()
	var acked [killedSessions]uint64
	for round := range kills {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), "TIERS_CHILD="+dir)
		c.Stderr = os.Stderr
		out, err := c.StdoutPipe()
		must(t, err)
		must(t, c.Start())
		lines := bufio.NewScanner(out)
		killed, saves := false, 0
		for i := 0; lines.Scan(); i++ { // what is in the pipe when it is killed counts
			var session int
			var seq uint64
			if lines.Text() == "saved" {
				saves++
			} else if _, err := fmt.Sscanf(lines.Text(), "%d %d", &session, &seq); err != nil || session >= killedSessions {
				t.Fatalf("the server says %q", lines.Text())
			} else {
				acked[session] = max(acked[session], seq)
			}
			if !killed && i >= 20+37*round%100 && saves >= round%3 {
				must(t, c.Process.Kill())
				killed = true
			}
		}
		_ = c.Wait() // killed
		if !killed {
			t.Fatalf("round %d: the server ended by itself", round)
		}
	}
	e, ti, err := openKilled(dir)
	must(t, err)
	want := make([]float32, killedKeys*killedDim)
	for session := range killedSessions {
		if e.Last(session) < acked[session] {
			t.Errorf("session %d: %d changes were acknowledged, %d are there", session, acked[session], e.Last(session))
		}
		for seq := uint64(1); seq <= e.Last(session); seq++ {
			keys, grads := killedPush(session, seq)
			for i, key := range keys {
				for j := range killedDim {
					want[int(key)*killedDim+j] -= grads[i*killedDim+j]
				}
			}
		}
	}
	got, keys := make([]float32, 1000*killedDim), make([]uint64, 1000)
	for lo := 0; lo < killedKeys; lo += len(keys) {
		for i := range keys {
			keys[i] = uint64(lo + i)
		}
		must(t, e.PeekRows(0, keys, got))
		for i := range got {
			if got[i] != want[lo*killedDim+i] {
				t.Fatalf("key %d has %v, want %v", lo+i/killedDim, got[i], want[lo*killedDim+i])
			}
		}
	}
	if st := e.Stats(); st.Tables[0].StoredRows == 0 || st.Saved == 0 {
		t.Errorf("all rows are in memory, or nothing was saved: %+v", st.Tables[0])
	}
	must(t, e.Close())
	must(t, ti.Close())
}
