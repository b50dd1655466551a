package aggregate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/exchange"
	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/transport/fault"
	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/transport"
)

// on runs a job over meshes and wants each error to hold its member's parts.
func checkErrors(t *testing.T, errs []error, want ...[]string) {
	t.Helper()
	for r, parts := range want {
		for _, part := range parts {
			if errs[r] == nil || !strings.Contains(errs[r].Error(), part) {
				t.Errorf("member %d: %q is not in: %v", r, part, errs[r])
			}
		}
	}
}

// Trainers that differ are told what both do.
func TestMismatch(t *testing.T) {
	leakcheck.Check(t)
	sparse := &compress.Sparse{Len: 100}
	for _, c := range []struct {
		zero, one exchange.Request
		want      []string
	}{
		{exchange.Request{X: make([]float32, 100)}, exchange.Request{X: make([]float32, 101)}, []string{"fp32, 100 values at 0,", "fp32, 101 values at 0,"}},
		{exchange.Request{X: make([]float32, 100)}, exchange.Request{X: make([]float32, 100), Lo: 3}, []string{"100 values at 0,", "100 values at 3,"}},
		{exchange.Request{X: make([]float32, 100)}, exchange.Request{X: make([]float32, 100), Code: compress.Int8{}}, []string{"pushed fp32", "pushed int8"}},
		{exchange.Request{X: make([]float32, 100)}, exchange.Request{X: make([]float32, 100), Sparse: sparse}, []string{"pushed fp32", "pushed sparse fp32"}},
		{exchange.Request{X: nil}, exchange.Request{X: make([]float32, 100)}, []string{" 0 values at 0", " 100 values at 0"}},
	} {
		errs := onMeshes(t, mem.New(3), Config{Trainers: 2}, func(c2 *Client) error {
			first := &exchange.Request{X: make([]float32, 10)}
			if err := reduce(c2, first); err != nil {
				return err
			}
			op := c.zero
			if c2.rank() == 1 {
				op = c.one
			}
			if err := reduce(c2, &op); err != nil {
				return err
			}
			return reduce(c2, first) // of an empty exchange nobody waits
		})
		want := append(c.want, "rank 0 pushed", "but rank 1 pushed", "serve 1", "all trainers must exchange the same buckets in the same order")
		checkErrors(t, errs, want, want, want)
		var differ *MismatchError
		if !errors.As(errs[2], &differ) || differ.Ranks != [2]int{0, 1} {
			t.Errorf("got %v", errs[2])
		}
	}
}

// A trainer that leaves while another goes on is named.
func TestLeavesEarly(t *testing.T) {
	leakcheck.Check(t)
	for name, leave := range map[string]func(c *Client) error{
		"in good order": (*Client).Close,
		"by its mesh":   func(c *Client) error { return c.mesh.Close() },
	} {
		errs := onMeshes(t, mem.New(4), Config{Trainers: 2}, func(c *Client) error {
			op := &exchange.Request{X: make([]float32, 1000)}
			for turn := 0; ; turn++ {
				if c.rank() == 1 && turn == 2 {
					return leave(c)
				}
				if err := reduce(c, op); err != nil {
					return err
				}
			}
		})
		want := []string{"on rank 0 with rank 1", "rank 1 ended early: it left the job, but rank 0 waits for it in exchange 2 (fp32, 1000 values"}
		checkErrors(t, errs, want)
		if errs[2] == nil || errs[3] == nil || !strings.Contains(errs[2].Error()+errs[3].Error(), want[1]) {
			t.Errorf("%s: the servers: %v; %v", name, errs[2], errs[3])
		}
	}
}

// Who is cut off is named by all that notice, whatever was under way.
func TestLost(t *testing.T) {
	leakcheck.Check(t)
	for victim, name := range map[int]string{1: "rank 1", 3: "server 0 (rank 3)"} {
		meshes := mem.New(5)
		errs := onMeshes(t, meshes, Config{Trainers: 3, Timeout: 10 * time.Second}, func(c *Client) error {
			op := &exchange.Request{X: make([]float32, 50000)}
			for turn := 0; ; turn++ {
				if c.rank() == 0 && turn == 3 {
					for peer := range meshes {
						if peer != victim {
							meshes[victim].(transport.Cutter).Cut(peer)
						}
					}
				}
				if err := reduce(c, op); err != nil {
					return err
				}
			}
		})
		for r, err := range errs {
			var lost *transport.LostError
			if r == victim {
				continue
			}
			if err == nil || !errors.As(err, &lost) {
				t.Errorf("victim %d, member %d: %v", victim, r, err)
			} else if lost.Rank == victim && !strings.Contains(err.Error(), " with "+name) {
				t.Errorf("victim %d, member %d: %v does not name it", victim, r, err)
			}
		}
	}
}

// A server that does not answer, and a trainer that does not push, are waited for
// no longer than Timeout.
func TestTimeout(t *testing.T) {
	leakcheck.Check(t)
	const short = 50 * time.Millisecond
	meshes := mem.New(2) // and nobody serves
	c, err := NewClient(meshes[0], Config{Trainers: 1, Timeout: short})
	if err != nil {
		t.Fatal(err)
	}
	within(t, func() { err = reduce(c, &exchange.Request{X: make([]float32, 10)}) })
	checkErrors(t, []error{err}, []string{"pull 0 (fp32, 10 values at 0, in segments of 131072) on rank 0 with server 0 (rank 1)", "timed out after 50ms", "is it stuck"})
	c.Close()
	closeAll(meshes)

	synctest.Test(t, func(t *testing.T) {
		errs := onMeshes(t, mem.New(3), Config{Trainers: 2, Timeout: short}, func(c *Client) error {
			if c.rank() == 1 {
				time.Sleep(300 * time.Millisecond) // nobody has begun for long: that is all right
				if err := reduce(c, &exchange.Request{X: make([]float32, 10)}); err == nil {
					return errors.New("it went on")
				}
				return nil
			}
			c.cfg.Timeout = 10 * time.Second
			return reduce(c, &exchange.Request{X: make([]float32, 10)})
		})
		checkErrors(t, errs, []string{"with rank 1"}, nil, []string{"serve 0", "with rank 1", "timed out", "others have begun"})
	})
}

// Nobody pushes for longer than the timeout: training does other things too.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		onTrainers(t, 2, 1, Config{Timeout: 20 * time.Millisecond}, func(c *Client) error {
			time.Sleep(time.Duration(1+c.rank()) * time.Hour)
			return nil
		})
	})
}

// While a trainer holds up the others, a server says so, and they that they wait
// for the server.
func TestWaiting(t *testing.T) {
	leakcheck.Check(t)
	meshes := mem.New(3)
	cfg := Config{Trainers: 2}
	s, err := NewServer(meshes[2], cfg)
	if err != nil {
		t.Fatal(err)
	}
	end := make(chan error, 1)
	go func() { end <- s.Run(t.Context()) }()
	var clients []*Client
	for _, m := range meshes[:2] {
		c, err := NewClient(m, cfg)
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
	}
	// Rank 0 is late, the one that the server looks at first.
	op, late := &exchange.Request{X: make([]float32, 10)}, &exchange.Request{X: make([]float32, 10)}
	clients[1].Start(op)
	within(t, func() {
		for peer, waiting := range map[int]func() (collective.Wait, bool){2: clients[1].Waiting, 0: s.Waiting} {
			w, ok := waiting()
			for ; !ok; w, ok = waiting() {
				time.Sleep(time.Millisecond)
			}
			if w.Peer != peer || w.Op != "exchange" || w.Seq != 0 {
				t.Errorf("waits in %+v, want for %d", w, peer)
			}
		}
	})
	clients[0].Start(late)
	for i, c := range clients {
		if _, err := c.Wait([]*exchange.Request{late, op}[i]); err != nil {
			t.Error(err)
		}
		if _, ok := c.Waiting(); ok {
			t.Errorf("rank %d still waits", i)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := <-end; err != nil {
		t.Error(err)
	}
	if f := s.Stats(); f.Exchanges != 1 || f.Received != 2*(headBytes+40+headBytes) || f.Sent != 2*40 {
		t.Errorf("stats %+v", f)
	}
	closeAll(meshes)
}

// What a server is told that no trainer says is an error that names the sender.
func TestDamaged(t *testing.T) {
	leakcheck.Check(t)
	good := head{kind: kindSparse, code: compress.CodeFP32, block: 1, n: 100, segment: 1000}
	dense := head{kind: kindDense, code: compress.CodeInt8, block: 256, n: 100, segment: 1024}
	for name, c := range map[string]struct {
		head head
		raw  []byte // in place of the head
		size size
		body []byte
		want string
	}{
		"no head":        {raw: make([]byte, headBytes), want: "what rank 0 sent: the first message of an exchange cannot be read"},
		"a short head":   {raw: make([]byte, 5), want: "lengths differ"},
		"unknown code":   {head: head{code: 99, block: 2, n: 1, segment: 2}, want: "does not know the code"},
		"other blocks":   {head: head{code: compress.CodeInt8, block: 2, n: 1, segment: 2}, want: "code 3 in blocks of 2"},
		"a huge payload": {head: good, size: size{bytes: 1 << 31}, want: "what rank 0 sent for segment 0: a payload of 2147483648 bytes"},
		"a late base":    {head: good, size: size{bytes: 12, base: 1}, body: make([]byte, 12), want: "begins at value 1, for a segment of the values 0 to 100"},
		"a bad payload":  {head: good, size: size{bytes: 12}, body: make([]byte, 12), want: "what rank 0 sent for segment 0: compress: payload"},
		"a short vector": {head: good, size: size{bytes: 18}, body: payload(t, 50), want: "a payload of the values 0 to 50, for a segment of the values 0 to 100"},
		"a long vector":  {head: good, size: size{bytes: 18}, body: payload(t, 101), want: "a payload of the values 0 to 101, for a segment of the values 0 to 100"},
		"a bad scale":    {head: dense, body: []byte(strings.Repeat("\xff", 104)), want: "what rank 0 sent for segment 0: int8"},
	} {
		t.Run(name, func(t *testing.T) {
			meshes := mem.New(2)
			defer closeAll(meshes)
			s, err := NewServer(meshes[1], Config{Trainers: 1, Timeout: 5 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			var b [headBytes]byte
			c.head.encode(&b)
			raw := b[:]
			if c.raw != nil {
				raw = c.raw
			}
			send := func(tag transport.Tag, p []byte) {
				if err := meshes[0].Send(1, tag, p, time.Second); err != nil {
					t.Error(err)
				}
			}
			send(headTag(0), raw)
			if c.head.kind == kindSparse {
				var b [sizeBytes]byte
				c.size.encode(&b)
				send(sizeTag(0, 0), b[:])
			}
			if c.body != nil {
				c.body = append(c.body, make([]byte, max(0, c.size.bytes%1000-len(c.body)))...)
				send(bodyTag(0, 0), c.body[:max(c.size.bytes%1000, len(c.body))])
			}
			within(t, func() { err = s.Run(context.Background()) })
			checkErrors(t, []error{err}, []string{c.want, "on server 0 (rank 1)"})
		})
	}
}

// A payload that lists all values is not taken for those of another place.
func TestDenseElsewhere(t *testing.T) {
	meshes := mem.New(3)
	defer closeAll(meshes)
	s, err := NewServer(meshes[2], Config{Trainers: 1, Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	body, err := compress.NewCoder(compress.FP32{}).EncodeDense(nil, make([]float32, 50))
	if err != nil {
		t.Fatal(err)
	}
	var h [headBytes]byte
	head{kind: kindSparse, code: compress.CodeFP32, block: 1, n: 100, segment: 1000}.encode(&h)
	var b [sizeBytes]byte
	size{bytes: len(body)}.encode(&b) // from 0 on, for the second server
	err = errors.Join(meshes[0].Send(2, headTag(0), h[:], time.Second), meshes[0].Send(2, sizeTag(0, 0), b[:], time.Second),
		meshes[0].Send(2, bodyTag(0, 0), body, time.Second))
	if err != nil {
		t.Fatal(err)
	}
	within(t, func() { err = s.Run(context.Background()) })
	checkErrors(t, []error{err}, []string{"what rank 0 sent for segment 0: a payload of the values 0 to 50, for a segment of the values 50 to 100"})
}

// payload is an empty vector's, of length n, in the bytes of one with a packed
// entry.
func payload(t *testing.T, n int) []byte {
	chain, err := compress.NewChain(compress.FP32{})
	if err != nil {
		t.Fatal(err)
	}
	s := &compress.Sparse{Len: n}
	s.Append(7, 1)
	b, err := chain.NewCoder().Encode(nil, s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Values that a code has no room for are errors that say where they are: a rank's
// own on that rank, a sum's on every rank, which can go on.
func TestValueErrors(t *testing.T) {
	leakcheck.Check(t)
	nan := float32(math.NaN())
	errs := onMeshes(t, mem.New(3), Config{Trainers: 2}, func(c *Client) error {
		op := &exchange.Request{X: gradient(1000, c.rank(), 0), Lo: 5000, Code: compress.Int8{}}
		if c.rank() == 1 {
			op.X[321] = nan
		}
		return reduce(c, op)
	})
	checkErrors(t, errs, []string{"rank 1 aborted", "place 5321"}, []string{"push 0 (int8", "place 5321", "NaN"})
	var value *exchange.ValueError
	if !errors.As(errs[1], &value) || value.At != 5321 {
		t.Errorf("got %v", errs[1])
	}
	for _, sparse := range []bool{false, true} {
		onTrainers(t, 2, 2, Config{}, func(c *Client) error {
			op := &exchange.Request{X: gradient(1000, c.rank(), 0), Lo: 5000, Code: compress.FP16{}}
			op.X[777] = 1e6
			if sparse {
				op.Sparse, op.Code = &compress.Sparse{Len: 1000}, compress.FP16{}
				op.Sparse.Append(777, 65504) // whose sum float32 has room for
			}
			err := reduce(c, op)
			var value *exchange.ValueError
			switch {
			case sparse && (err != nil || op.X[777] != 131008):
				return fmt.Errorf("%v, the sum is %v", err, op.X[777])
			case !sparse && (!errors.As(err, &value) || value.At != 5777 || value.Code != "fp16"):
				return fmt.Errorf("got %w, want a value error at 5777", err)
			}
			return reduce(c, &exchange.Request{X: gradient(1000, c.rank(), 0)})
		})
	}
}

// Misuse is told, and does not hang.
func TestMisuse(t *testing.T) {
	leakcheck.Check(t)
	onTrainers(t, 1, 1, Config{}, func(c *Client) error {
		op := &exchange.Request{X: make([]float32, 10)}
		if _, err := c.Wait(op); err == nil || !strings.Contains(err.Error(), "not started") {
			return fmt.Errorf("Wait before Start: %v", err)
		}
		c.Start(op)
		c.Start(op)
		if _, err := c.Wait(op); err == nil || !strings.Contains(err.Error(), "started again before Wait") {
			return fmt.Errorf("Start twice: %v", err)
		}
		if _, err := c.Wait(op); err == nil {
			return errors.New("Wait twice")
		}
		return reduce(c, op)
	})
	for want, op := range map[string]*exchange.Request{
		"-1":        {X: make([]float32, 10), Lo: -1},
		"length 11": {X: make([]float32, 10), Sparse: &compress.Sparse{Len: 11}},
		"index 5":   {X: make([]float32, 10), Sparse: &compress.Sparse{Len: 10, Index: []int32{5, 5}, Value: make([]float32, 2)}},
	} {
		errs := onMeshes(t, mem.New(3), Config{Trainers: 2}, func(c *Client) error {
			if c.rank() == 0 {
				return reduce(c, op)
			}
			return reduce(c, &exchange.Request{X: make([]float32, 10)})
		})
		checkErrors(t, errs, []string{want, "on rank 0:"}, []string{want, "rank 0 aborted"}, []string{want})
	}
	// What is started after Close fails, and nobody waits for it.
	onTrainers(t, 1, 1, Config{}, func(c *Client) error {
		if err := c.Close(); err != nil {
			return err
		}
		if err := reduce(c, &exchange.Request{X: make([]float32, 10)}); !errors.Is(err, transport.ErrClosed) {
			return fmt.Errorf("after Close: %v", err)
		}
		return nil
	})
	// Close with an exchange under way ends everything.
	errs := onMeshes(t, mem.New(3), Config{Trainers: 2}, func(c *Client) error {
		op := &exchange.Request{X: make([]float32, 10)}
		if c.rank() == 1 {
			return reduce(c, op)
		}
		c.Start(op)
		c.Close()
		_, err := c.Wait(op)
		return err
	})
	for r, err := range errs {
		if err == nil {
			t.Errorf("member %d is content", r)
		}
	}
}

// A message that cannot be sent or comes late ends the job with its place.
func TestInjected(t *testing.T) {
	leakcheck.Check(t)
	for _, op := range []fault.Op{fault.Send, fault.Receive} {
		for member := range 4 {
			meshes := mem.New(4)
			for r := range meshes {
				meshes[r] = fault.Wrap(meshes[r], fault.Rule{Rank: member, Peer: fault.Any, Op: op, Nth: 6, Do: fault.Fail})
			}
			errs := onMeshes(t, meshes, Config{Trainers: 2, SegmentBytes: minSegment, Timeout: 20 * time.Second}, func(c *Client) error {
				x := &exchange.Request{X: make([]float32, 5000)}
				for {
					if err := reduce(c, x); err != nil {
						return err
					}
				}
			})
			for r, err := range errs {
				if err == nil || !strings.Contains(err.Error(), "injected") {
					t.Errorf("%v on %d: member %d: %v", op, member, r, err)
				}
			}
		}
	}
}

// The context's end is the server's.
func TestCancel(t *testing.T) {
	leakcheck.Check(t)
	meshes := mem.New(2)
	defer closeAll(meshes)
	s, err := NewServer(meshes[1], Config{Trainers: 1})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("the user has had enough")
	time.AfterFunc(10*time.Millisecond, func() { cancel(stop) })
	within(t, func() { err = s.Run(ctx) })
	if !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
}

// Bad configurations are refused with all their faults.
func TestConfig(t *testing.T) {
	meshes := mem.New(3)
	defer closeAll(meshes)
	_, err := NewClient(meshes[0], Config{Timeout: -1, SegmentBytes: 5, Codes: []compress.Quantiser{compress.Int8{}}})
	checkErrors(t, []error{err}, []string{"0 trainers", "timeout -1ns", "segment bytes 5", "int8 and int8 have the same number"})
	_, err = NewClient(meshes[0], Config{Trainers: 3})
	checkErrors(t, []error{err}, []string{"3 trainers in a mesh of 3 leave no server"})
	_, err = NewClient(meshes[2], Config{Trainers: 2})
	checkErrors(t, []error{err}, []string{"member 2 of a mesh with 2 trainers is server 0 (rank 2)"})
	_, err = NewServer(meshes[1], Config{Trainers: 2})
	checkErrors(t, []error{err}, []string{"is rank 1"})
}
