package launch

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/leakcheck"
)

// What is queued is written, in the order of each goroutine, before close returns.
func TestOutboxWritesAll(t *testing.T) {
	leakcheck.Check(t)
	var out bytes.Buffer
	o := newOutbox(&out)
	const each = 3 * queuedOut
	var all sync.WaitGroup
	for number := range 3 {
		all.Go(func() {
			for i := range each {
				if err := o.send(frame{frameOut, number, []byte{byte(i)}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	o.close()
	next := [3]int{}
	for range 3 * each {
		f, err := readFrame(&out)
		if err != nil || f.kind != frameOut || int(f.body[0]) != next[f.number] {
			t.Fatalf("%+v, %v, after %v", f, err, next)
		}
		next[f.number]++
	}
	if out.Len() > 0 {
		t.Errorf("%d bytes more", out.Len())
	}
}

// A connection that nobody reads holds up nobody once it is cut: neither who sends nor close.
func TestOutboxIsCut(t *testing.T) {
	leakcheck.Check(t)
	in, out := io.Pipe()
	o := newOutbox(out)
	sent := make(chan error)
	go func() {
		for {
			if err := o.send(frame{kind: frameHeartbeat}); err != nil {
				sent <- err
				return
			}
		}
	}()
	for len(o.queue) < queuedOut {
		time.Sleep(time.Millisecond)
	}
	why := errors.New("silent")
	o.cut(why)
	o.cut(io.EOF)
	if err := <-sent; err != why {
		t.Errorf("got %v", err)
	}
	o.close()
	if err := o.send(frame{}); err != why {
		t.Errorf("got %v", err)
	}
	in.Close() // the write that hung ends
	<-o.done
}
