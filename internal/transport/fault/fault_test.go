package fault

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/internal/transport/meshtest"
	"github.com/ringo-ml/ringo/transport"
)

// With rules that never act nothing changes.
func TestSuite(t *testing.T) {
	idle := Rule{Rank: Any, Peer: Any, Nth: 1 << 30, Do: Fail}
	meshtest.Run(t, func(_ testing.TB, n int) []transport.Mesh {
		ranks := mem.New(n)
		for i, m := range ranks {
			ranks[i] = Wrap(m, idle)
		}
		return ranks
	})
}

// pair returns two ranks, the first with the rules.
func pair(t *testing.T, rules string) (transport.Mesh, transport.Mesh) {
	t.Helper()
	parsed, err := ParseRules(rules)
	if err != nil {
		t.Fatal(err)
	}
	ranks := mem.New(2)
	return Wrap(ranks[0], parsed...), ranks[1]
}

// arrives reports whether a message sent under the sequence number is there.
func arrives(m transport.Mesh, from, seq int) error {
	var r transport.Recv
	dst := make([]byte, 1)
	m.Post(&r, from, transport.Tag{Seq: uint32(seq)}, dst)
	err := r.Wait(0)
	if err == nil && !bytes.Equal(dst, []byte{byte(seq)}) {
		err = errors.New("damaged")
	}
	return err
}

func sendSeq(m transport.Mesh, to, seq int) error {
	return m.Send(to, transport.Tag{Seq: uint32(seq)}, []byte{byte(seq)}, time.Second)
}

func TestDropsTheNthSend(t *testing.T) {
	a, b := pair(t, "rank=0 peer=1 op=send nth=3 do=drop; rank=1 do=fail")
	for seq := 1; seq <= 5; seq++ {
		if err := sendSeq(a, 1, seq); err != nil {
			t.Fatal(err)
		}
		if err := arrives(b, 0, seq); (err != nil) != (seq == 3) {
			t.Errorf("message %d: %v", seq, err)
		}
	}
}

func TestFailsOnward(t *testing.T) {
	a, _ := pair(t, "op=send nth=2+ do=fail")
	for seq := 1; seq <= 4; seq++ {
		err := sendSeq(a, 1, seq)
		var e *transport.Error
		if seq == 1 && err != nil || seq > 1 && (!errors.Is(err, ErrInjected) || !errors.As(err, &e) || e.Peer != 1) {
			t.Errorf("message %d: %v", seq, err)
		}
	}
}

func TestReceives(t *testing.T) {
	a, b := pair(t, "op=receive nth=1 do=drop; op=receive nth=2 do=fail")
	for seq := 1; seq <= 3; seq++ {
		if err := sendSeq(b, 0, seq); err != nil {
			t.Fatal(err)
		}
	}
	for seq, want := range []error{transport.ErrTimeout, ErrInjected, nil} {
		if err := arrives(a, 1, seq+1); !errors.Is(err, want) {
			t.Errorf("receive %d: got %v, want %v", seq+1, err, want)
		}
	}
	if err := arrives(a, 1, 1); err != nil {
		t.Errorf("the message whose receive was dropped is gone: %v", err)
	}
}

func TestCuts(t *testing.T) {
	a, b := pair(t, "op=send nth=2 do=cut")
	if err := sendSeq(a, 1, 1); err != nil {
		t.Fatal(err)
	}
	var lost *transport.LostError
	if err := sendSeq(a, 1, 2); !errors.As(err, &lost) || lost.Rank != 1 {
		t.Errorf("got %v", err)
	}
	if err := arrives(b, 0, 2); !errors.As(err, &lost) || lost.Rank != 0 {
		t.Errorf("got %v", err)
	}
}

func TestDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pair(t, "op=send nth=1 do=delay:50ms; op=send nth=2 do=delay:5s; op=send nth=3 do=delay:1h")
		start := time.Now()
		if err := sendSeq(a, 1, 1); err != nil || time.Since(start) != 50*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		start = time.Now()
		if err := sendSeq(a, 1, 2); !errors.Is(err, transport.ErrTimeout) || time.Since(start) != time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if err := arrives(b, 0, 1); err != nil {
			t.Error(err)
		}
		start = time.Now()
		time.AfterFunc(time.Second, func() { a.Abort(errors.New("enough")) })
		err := a.Send(1, transport.Tag{Seq: 3}, nil, 2*time.Hour)
		if !errors.Is(err, transport.ErrAborted) || time.Since(start) != time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

func TestParseRule(t *testing.T) {
	for text, want := range map[string]Rule{
		"rank=1 peer=2 op=send nth=5 do=drop": {Rank: 1, Peer: 2, Op: Send, Nth: 5, Do: Drop},
		"op=send do=delay:50ms":               {Rank: Any, Peer: Any, Op: Send, Do: Delay, For: 50 * time.Millisecond},
		"peer=0 op=receive nth=7+ do=fail":    {Rank: Any, Peer: 0, Op: Receive, Nth: 7, Onward: true, Do: Fail},
		"do=cut":                              Every(Cut),
	} {
		got, err := ParseRule(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%q: got %+v, %q, %v", text, got, got, err)
		}
	}
	for text, want := range map[string]string{
		"":                        `do ""`,
		"do=explode":              `do "explode"`,
		"rank=-1 do=drop":         `"-1" is not a number`,
		"rank=1 rank=2 do=drop":   "each key once",
		"who=1 do=drop":           "who: unknown",
		"nth=0+ do=drop":          "nth 0",
		"do=delay:50ms":           "add op=send",
		"op=send do=delay":        "a delay of 0s",
		"do=fail:3s":              "only a delay takes a duration",
		"op=recv do=fail":         `op "recv"`,
		"op=send do=delay:fast":   "do: ",
		"do=drop now":             `"now"`,
		"peer=99999999999 do=cut": "not a number",
	} {
		if _, err := ParseRule(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q in it", text, err, want)
		}
	}
	if rules, err := ParseRules(" do=cut ;\n op=send do=drop\n"); err != nil || len(rules) != 2 {
		t.Errorf("got %v, %v", rules, err)
	}
	if _, err := ParseRules("do=1; do=2"); err == nil || !strings.Contains(err.Error(), `"1"`) || !strings.Contains(err.Error(), `"2"`) {
		t.Errorf("not all faults are reported: %v", err)
	}
}

func FuzzParseRule(f *testing.F) {
	f.Add("rank=1 peer=2 op=send nth=5+ do=delay:50ms")
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseRule(s)
		if err != nil {
			return
		}
		if again, err := ParseRule(r.String()); err != nil || again != r {
			t.Errorf("%q is printed as %q, which is %+v, %v", s, r, again, err)
		}
	})
}
