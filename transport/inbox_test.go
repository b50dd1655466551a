package transport

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
)

// twin is what an Inbox does, in lists that are searched from the front.
type twin struct {
	posted  []*promise
	arrived []kept
	held    int64
}

// promise is a receive and what is to come of it.
type promise struct {
	recv *Recv
	tag  Tag
	dst  []byte
	want []byte
	kind string // of its fault
	done bool
}

// kept is a message that came before its receive.
type kept struct {
	tag  Tag
	text []byte
}

func (p *promise) end(kind string, want []byte) { p.done, p.kind, p.want = true, kind, want }

// take ends p, which is posted.
func (w *twin) take(p *promise, kind string, want []byte) {
	w.posted = slices.DeleteFunc(w.posted, func(q *promise) bool { return q == p })
	p.end(kind, want)
}

// message says what becomes of a message: "kept", "received", "no room" or "twice".
func (w *twin) message(tag Tag, text []byte, limit int64) string {
	for _, p := range slices.Clone(w.posted) {
		if !p.tag.operation(tag) {
			continue
		}
		if p.tag.Sig != tag.Sig {
			for _, q := range slices.Clone(w.posted) {
				if q.tag.operation(tag) && q.tag.Sig != tag.Sig {
					w.take(q, "mismatch", nil)
				}
			}
			break
		}
		if p.tag.Part == tag.Part && len(p.dst) == len(text) {
			w.take(p, "", text)
			return "received"
		}
		if p.tag.Part == tag.Part {
			w.take(p, "length", nil)
			return w.keep(tag, text)
		}
	}
	if w.held+classBytes(len(text)) > limit {
		return "no room"
	}
	return w.keep(tag, text)
}

func (w *twin) keep(tag Tag, text []byte) string {
	if slices.ContainsFunc(w.arrived, func(m kept) bool { return m.tag.operation(tag) && m.tag.Part == tag.Part }) {
		return "twice"
	}
	w.arrived = append(w.arrived, kept{tag, text})
	w.held += classBytes(len(text))
	return "kept"
}

func (w *twin) post(p *promise) {
	i := slices.IndexFunc(w.arrived, func(m kept) bool {
		return m.tag.operation(p.tag) && (m.tag.Part == p.tag.Part || m.tag.Sig != p.tag.Sig)
	})
	switch {
	case i >= 0 && w.arrived[i].tag.Sig != p.tag.Sig:
		p.end("mismatch", nil)
	case i >= 0 && len(w.arrived[i].text) != len(p.dst):
		p.end("length", nil)
	case i >= 0:
		p.end("", w.arrived[i].text)
		w.held -= classBytes(len(w.arrived[i].text))
		w.arrived = slices.Delete(w.arrived, i, i+1)
	case slices.ContainsFunc(w.posted, func(q *promise) bool { return q.tag.operation(p.tag) && q.tag.Part == p.tag.Part }):
		p.end("other", nil)
	default:
		w.posted = append(w.posted, p)
	}
}

func kindOf(err error) string {
	var mismatch *MismatchError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &mismatch):
		return "mismatch"
	case errors.Is(err, ErrLength):
		return "length"
	case errors.Is(err, ErrTimeout):
		return "timeout"
	case errors.Is(err, ErrGoodbye):
		return "goodbye"
	}
	return "other"
}

// bench is an inbox beside its twin.
type bench struct {
	t     *testing.T
	in    *Inbox
	twin  twin
	spare []*Recv // to be posted again
	open  []*promise
	sent  byte
}

const benchLimit = 2 << 10

// tagOf makes few tags, of operations that share chains, as this rank runs them.
func tagOf(b byte) Tag {
	tag := []Tag{{}, {Seq: chains}, {Seq: 13}, {Group: 1}}[b>>2&3]
	tag.Part, tag.Sig = uint32(b&3), 1
	return tag
}

// sentTag is tagOf, or now and then one of another operation under the number.
func sentTag(b byte) Tag {
	tag := tagOf(b)
	if b>>4 == 0 {
		tag.Sig = 2
	}
	return tag
}

func lengthOf(b byte) int { return []int{0, 1, 64, 65, 500}[b%5] }

func (x *bench) post(tag Tag, n int) {
	p := &promise{tag: tag, dst: make([]byte, n), recv: new(Recv)}
	if last := len(x.spare) - 1; last >= 0 {
		p.recv, x.spare = x.spare[last], x.spare[:last]
	}
	x.open = append(x.open, p)
	x.in.Post(p.recv, tag, p.dst)
	x.twin.post(p)
}

func (x *bench) message(tag Tag, n int) {
	x.sent++
	text := bytes.Repeat([]byte{x.sent}, n)
	want := x.twin.message(tag, text, benchLimit)
	a, ok, err := x.in.TryBegin(tag, n)
	got := "no room"
	switch {
	case ok && err != nil:
		got = "twice"
	case ok:
		if got = "kept"; a.recv != nil {
			got = "received"
		}
		copy(a.Bytes(), text)
		x.in.End(a, nil)
	}
	if got != want {
		x.t.Fatalf("message %v of %d bytes: %s, want %s", tag, n, got, want)
	}
}

// giveUp withdraws a posted receive.
func (x *bench) giveUp(i int) {
	if n := len(x.twin.posted); n > 0 {
		p := x.twin.posted[i%n]
		x.twin.take(p, "timeout", nil)
		x.wait(p)
	}
}

func (x *bench) wait(p *promise) {
	err := p.recv.Wait(0)
	if got := kindOf(err); got != p.kind || err == nil && !bytes.Equal(p.dst, p.want) {
		x.t.Fatalf("receive %v of %d bytes: %v, want %q and % .8x, got % .8x", p.tag, len(p.dst), err, p.kind, p.want, p.dst)
	}
	x.open = slices.DeleteFunc(x.open, func(q *promise) bool { return q == p })
	x.spare = append(x.spare, p.recv)
}

// compare looks at every receive and at the memory in use.
func (x *bench) compare() {
	for _, p := range slices.Clone(x.open) {
		if p.recv.Done() != p.done {
			x.t.Fatalf("receive %v of %d bytes is done: %v, want %v", p.tag, len(p.dst), p.recv.Done(), p.done)
		}
		if p.done {
			x.wait(p)
		}
	}
	if x.in.held != x.twin.held {
		x.t.Fatalf("%d bytes are held, want %d", x.in.held, x.twin.held)
	}
}

// drive does what a script says, to the inbox and to its twin, and then breaks the
// inbox: what has arrived can still be received, and nothing else.
func drive(t *testing.T, script []byte) {
	x := &bench{t: t, in: NewInbox(InboxConfig{Limit: benchLimit})}
	for ; len(script) >= 3; script = script[3:] {
		switch script[0] % 8 {
		case 0, 1, 2:
			x.post(tagOf(script[1]), lengthOf(script[2]))
		case 7:
			x.giveUp(int(script[2]))
		default:
			x.message(sentTag(script[1]), lengthOf(script[2]))
		}
		x.compare()
	}
	x.in.Break(ErrGoodbye)
	for _, p := range slices.Clone(x.twin.posted) {
		x.twin.take(p, "goodbye", nil)
	}
	x.compare()
	for len(x.twin.arrived) > 0 {
		m := x.twin.arrived[0]
		x.post(m.tag, len(m.text)) // as its sender would have it
		x.compare()
	}
	if x.in.held != 0 {
		t.Errorf("%d bytes are held by nothing", x.in.held)
	}
}

// Whatever comes in whatever order, an inbox does what lists do.
// It holds invariant[posted-receives].
func TestInboxIsItsTwin(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for range 500 {
		script := make([]byte, 3*(1+rnd.IntN(200)))
		for i := range script {
			script[i] = byte(rnd.Uint32())
		}
		drive(t, script)
	}
}

func FuzzInbox(f *testing.F) {
	f.Add([]byte{0, 16, 1, 4, 16, 1, 4, 17, 4, 0, 17, 4, 7, 0, 0})
	f.Fuzz(drive)
}
