package meshtest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/transport"
)

// The checks in this file close, abort or cut ranks and examine the errors on the other ranks.

// posted returns the result of a receive that never gets a message.
func posted(m transport.Mesh, from int) <-chan error {
	out := make(chan error, 1)
	var r transport.Recv
	m.Post(&r, from, tag(99, 99), make([]byte, 4))
	go func() { out <- r.Wait(patience) }()
	return out
}

func abort(t *testing.T, ranks []transport.Mesh) {
	pending := make([]<-chan error, 3)
	for i, m := range ranks {
		pending[i] = posted(m, (i+1)%3)
	}
	cause := errors.New("out of paper")
	ranks[0].Abort(cause)
	ranks[0].Abort(errors.New("the second cause does not count"))
	err := <-pending[0]
	wantError(t, err, cause, "receive", 0, 1)
	wantError(t, err, transport.ErrAborted, "receive", 0, 1)
	for i := 1; i < 3; i++ {
		err := <-pending[i]
		wantError(t, err, transport.ErrAborted, "receive", i, (i+1)%3)
		var by *transport.AbortError
		if !errors.As(err, &by) || by.Rank != 0 || !strings.Contains(err.Error(), cause.Error()) {
			t.Errorf("rank %d: got %v", i, err)
		}
		wantError(t, ranks[i].Send((i+1)%3, tag(0, 0), nil, patience), transport.ErrAborted, "send", i, (i+1)%3)
	}
	wantError(t, ranks[0].Send(1, tag(0, 0), nil, patience), cause, "send", 0, 1)
	_, err = receive(ranks[0], 2, tag(0, 0), 1)
	wantError(t, err, cause, "receive", 0, 2)
}

func abortNamesTheLostRank(t *testing.T, ranks []transport.Mesh) {
	pending := posted(ranks[2], 0)
	ranks[0].Abort(fmt.Errorf("allreduce 7: %w", &transport.LostError{Rank: 1, Reason: "killed by a signal"}))
	var lost *transport.LostError
	if err := <-pending; !errors.As(err, &lost) || lost.Rank != 1 || lost.Reason != "killed by a signal" || !strings.Contains(err.Error(), "allreduce 7") {
		t.Errorf("got %v", err)
	}
}

func closing(t *testing.T, ranks []transport.Mesh) {
	mine, theirs := posted(ranks[0], 1), posted(ranks[1], 0)
	if err := ranks[0].Close(); err != nil {
		t.Fatal(err)
	}
	if err := ranks[0].Close(); err != nil {
		t.Errorf("the second Close: %v", err)
	}
	wantError(t, <-mine, transport.ErrClosed, "receive", 0, 1)
	wantError(t, <-theirs, transport.ErrGoodbye, "receive", 1, 0)
	wantError(t, ranks[0].Send(1, tag(0, 0), nil, patience), transport.ErrClosed, "send", 0, 1)
	wantError(t, ranks[1].Send(0, tag(0, 0), nil, patience), transport.ErrGoodbye, "send", 1, 0)
	_, err := receive(ranks[1], 0, tag(0, 1), 1)
	wantError(t, err, transport.ErrGoodbye, "receive", 1, 0)
}

func closeKeepsWhatWasSent(t *testing.T, ranks []transport.Mesh) {
	const n = 1 << 20
	for i := range 4 {
		send(t, ranks[0], 1, tag(0, i), pattern(n, i))
	}
	if err := ranks[0].Close(); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		expect(t, ranks[1], 0, tag(0, i), pattern(n, i))
	}
}

// closeWhileReceiving checks that no operation in flight hangs when a mesh is closed.
func closeWhileReceiving(t *testing.T, ranks []transport.Mesh) {
	var all sync.WaitGroup
	for _, m := range ranks {
		for flow := range 4 {
			all.Go(func() {
				for converse(m, flow, 10) == nil {
					flow += 4
				}
			})
		}
	}
	time.Sleep(soon)
	CloseAll(t, ranks)
	all.Wait()
}

// cut checks that each end reports the other as lost, that other links keep working, and that
// arrived messages can still be received.
func cut(t *testing.T, ranks []transport.Mesh) {
	cutter, ok := ranks[0].(transport.Cutter)
	if !ok {
		t.Skip("this mesh has no links to cut")
	}
	send(t, ranks[0], 1, tag(0, 0), []byte{1})
	send(t, ranks[0], 1, tag(0, 1), []byte{2})
	expect(t, ranks[1], 0, tag(0, 1), []byte{2})
	here, there := posted(ranks[0], 1), posted(ranks[1], 0)
	cutter.Cut(1)
	for i, pending := range []<-chan error{here, there} {
		err := <-pending
		wantError(t, err, nil, "receive", i, 1-i)
		var lost *transport.LostError
		if !errors.As(err, &lost) || lost.Rank != 1-i {
			t.Errorf("rank %d: got %v", i, err)
		}
		err = ranks[i].Send(1-i, tag(1, 0), []byte{1}, patience)
		if lost = nil; !errors.As(err, &lost) || lost.Rank != 1-i {
			t.Errorf("rank %d: got %v", i, err)
		}
	}
	expect(t, ranks[1], 0, tag(0, 0), []byte{1})
	send(t, ranks[0], 2, tag(2, 0), []byte{3})
	expect(t, ranks[2], 0, tag(2, 0), []byte{3})
}

// fault checks Mesh.Fault: nil at first, then the lost peer, finally the end of this rank's mesh.
func fault(t *testing.T, ranks []transport.Mesh) {
	m := ranks[0]
	for peer := 1; peer < 3; peer++ {
		if err := m.Fault(peer); err != nil {
			t.Errorf("rank %d at the start: %v", peer, err)
		}
	}
	ranks[1].(transport.Cutter).Cut(0)
	var lost *transport.LostError
	if err := eventually(func() error { return m.Fault(1) }); !errors.As(err, &lost) || lost.Rank != 1 {
		t.Errorf("a cut link: %v", err)
	}
	if err := m.Fault(2); err != nil {
		t.Errorf("the link that holds: %v", err)
	}
	if err := m.Fault(0); err == nil {
		t.Error("this rank itself is taken for a peer")
	}
	cause := errors.New("enough")
	m.Abort(cause)
	if err := m.Fault(2); !errors.Is(err, cause) || !errors.Is(err, transport.ErrAborted) {
		t.Errorf("after Abort: %v", err)
	}
	var by *transport.AbortError
	if err := eventually(func() error { return ranks[2].Fault(0) }); !errors.As(err, &by) || by.Rank != 0 {
		t.Errorf("at the peer of who aborted: %v", err)
	}
}

// eventually calls ask until the result is an error, or patience ends.
func eventually(ask func() error) (err error) {
	for deadline := time.Now().Add(patience); err == nil && time.Now().Before(deadline); err = ask() {
		time.Sleep(time.Millisecond)
	}
	return err
}
