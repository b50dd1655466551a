package client

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/server/message"
	"github.com/ringo-ml/ringo/internal/server/service/fake"
)

// blobOf is what a trainer brings to a meeting: of any length, also none.
func blobOf(trainer, meeting int) []byte {
	r := rand.New(rand.NewPCG(uint64(trainer), uint64(meeting)))
	sizes := []int{0, 1, r.IntN(1000), message.MaxBlob - 8, message.MaxBlob - 7, 3 * message.MaxBlob}
	n := sizes[r.IntN(len(sizes))]
	return bytes.Repeat([]byte{byte(trainer), byte(meeting), 7}, n/3+1)[:n]
}

// meets brings a blob and wants those of some trainers.
func meets(c *Client, n, meeting int, there ...int) error {
	got, err := c.AllGather(blobOf(c.cfg.Trainer, meeting))
	if err != nil {
		return err
	}
	want := make([][]byte, n)
	for _, t := range there {
		want[t] = blobOf(t, meeting)
	}
	for t := range want {
		if !bytes.Equal(got[t], want[t]) || (got[t] == nil) != (want[t] == nil) || len(got) != n {
			return fmt.Errorf("meeting %d: trainer %d has %d bytes of trainer %d (there: %v), want %d (there: %v)",
				meeting, c.cfg.Trainer, len(got[t]), t, got[t] != nil, len(want[t]), want[t] != nil)
		}
	}
	return nil
}

// All get what each has brought, whatever its length, while they push and pull.
func TestMeet(t *testing.T) {
	leakcheck.Check(t)
	const n = 3
	j := newJob(t, 2, n, 1, nil, nil)
	var all sync.WaitGroup
	for rank := range n {
		c := j.dial(rank, nil)
		all.Go(func() {
			for meeting := range 10 {
				if err := errors.Join(c.Session(0).PushRows(0, 1, []uint64{1, 2}, make([]float32, 6)), meets(c, n, meeting, 0, 1, 2)); err != nil {
					t.Error(err)
					return
				}
				pull(t, c.Session(0), 0, 1, []uint64{1, 2})
			}
			if _, err := c.AllGather(make([]byte, maxMeeting+1)); err == nil {
				t.Error("it takes anything")
			}
			if err := c.Leave(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// Who has left, and who is lost, is not waited for; the others learn that it is not there.
func TestMeetWithoutOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 4
		j := newJob(t, 1, n, 1, nil, nil)
		var c [n]*Client
		for rank := range n {
			c[rank] = j.dial(rank, nil)
		}
		both := func(meeting int, there ...int) {
			t.Helper()
			var all sync.WaitGroup
			for _, rank := range there {
				all.Go(func() {
					if err := meets(c[rank], n, meeting, there...); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
		}
		both(1, 0, 1, 2, 3)
		must(t, c[3].Leave(context.Background()))
		both(2, 0, 1, 2)
		// One is lost after it has come, and before the others have.
		come := make(chan error, 1)
		go func() { _, err := c[1].AllGather(blobOf(1, 3)); come <- err }()
		synctest.Wait()
		must(t, c[1].Close())
		if err := <-come; !errors.Is(err, ErrClosed) {
			t.Errorf("got %v", err)
		}
		start := time.Now()
		both(3, 0, 2)
		if waited := time.Since(start); waited < time.Minute || waited > time.Minute+2*time.Second {
			t.Errorf("the others waited %v", waited)
		}
		both(4, 0, 2)
		must(t, c[0].Leave(context.Background()))
		both(5, 2)
		must(t, c[2].Leave(context.Background()))
		<-j.running[0].ended
		must(t, j.running[0].err)
	})
}

// A connection that is cut after any number of bytes changes nothing of a meeting.
func TestMeetCutAtAnyByte(t *testing.T) {
	every := 23
	if testing.Short() {
		every = 97
	}
	for _, direction := range []string{"read", "write"} {
		for n, survived := 0, false; !survived; n += every {
			synctest.Test(t, func(t *testing.T) {
				j := newJob(t, 1, 2, 1, nil, nil)
				var made atomic.Int32
				j.net.Wrap(func(_ string, c net.Conn) net.Conn {
					if made.Add(1) > 1 {
						return c
					}
					if direction == "read" {
						return fake.NewCut(c, n, -1)
					}
					return fake.NewCut(c, -1, n)
				})
				a := j.dial(0, nil)
				b := j.dial(1, nil)
				var all sync.WaitGroup
				for _, c := range []*Client{a, b} {
					all.Go(func() {
						for meeting := range byte(4) {
							got, err := c.AllGather([]byte{byte(c.cfg.Trainer), meeting})
							if err != nil || !bytes.Equal(got[0], []byte{0, meeting}) || !bytes.Equal(got[1], []byte{1, meeting}) {
								t.Errorf("meeting %d: %v, %v", meeting, got, err)
							}
						}
					})
				}
				all.Wait()
				survived = made.Load() == 2
			})
			if t.Failed() {
				t.Fatalf("%s: cut after %d bytes", direction, n)
			}
		}
	}
}

// A server that is started again goes on with the meeting that was under way, and lets
// those who do not know it know how the last one ended.
func TestMeetServerRestarts(t *testing.T) {
	leakcheck.Check(t)
	const n = 3
	j := newJob(t, 1, n, 1, nil, nil)
	var c [n]*Client
	errs := make(chan error, n)
	come := func(rank, meeting int) {
		go func() { errs <- meets(c[rank], n, meeting, 0, 1, 2) }()
	}
	wait := func(some int) {
		t.Helper()
		for range some {
			must(t, <-errs)
		}
	}
	for rank := range n {
		c[rank] = j.dial(rank, nil)
	}
	for meeting := 0; meeting < 12; meeting += 2 {
		for rank := range n {
			come(rank, meeting)
		}
		wait(n)
		come(0, meeting+1)
		come(1, meeting+1)
		pull(t, c[0].Session(0), 0, 1, []uint64{1}) // the message before it may have arrived
		j.replace(0, j.engines[0].Restart())
		come(2, meeting+1)
		wait(n)
		j.replace(0, j.engines[0].Restart())
	}
	// One has not heard how the meeting ended that the others know of.
	const small = 12 // one round, as blobs are here
	k := c[2].Session(0).links[0]
	before := k.lastGather
	for rank := range n {
		if len(blobOf(rank, small)) > message.MaxBlob-lengthSize {
			t.Fatal("it takes several rounds")
		}
		come(rank, small)
	}
	wait(n)
	k.mu.Lock()
	k.lastGather = before
	k.mu.Unlock()
	c[2].meeting.number--
	j.replace(0, j.engines[0].Restart())
	come(2, small)
	wait(1)
}

// What does not begin with its length ends the meeting with an error that names who
// brought it.
func TestMeetMalformed(t *testing.T) {
	big := binary.LittleEndian.AppendUint64(nil, maxMeeting+1)
	for _, b := range [][]byte{{1, 2, 3}, {}, big} {
		_, err := roundsOf([][]byte{nil, big[:0:0], b})
		says(t, err, "trainer 1 begins with")
		_, err = roundsOf([][]byte{nil, nil, b})
		says(t, err, "trainer 2 begins with", "want its length")
	}
	c := &Client{}
	_, err := c.whole([][]byte{nil, {3, 0, 0, 0, 0, 0, 0, 0, 1, 2}})
	says(t, err, "trainer 1 has said 3 bytes and brought 2")
}
