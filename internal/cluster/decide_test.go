package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/transport"
)

func TestJudge(t *testing.T) {
	t0 := time.Unix(100, 0)
	at := func(d time.Duration) time.Time { return t0.Add(d) }
	ms := time.Millisecond
	cut := func(rank int, d time.Duration) failureReport {
		return failureReport{proof: proofCut, rank: rank, by: -1, why: "cut", at: at(d)}
	}
	exited := func(rank int, d time.Duration) failureReport {
		return failureReport{proof: proofExited, rank: rank, by: -1, why: "exited", at: at(d)}
	}
	suspect := func(rank, by int, d time.Duration) failureReport {
		return failureReport{proof: proofSuspect, rank: rank, by: by, why: "suspected", at: at(d)}
	}
	for _, c := range []struct {
		name  string
		all   []failureReport
		now   time.Duration
		want  int // -1: nobody yet
		again time.Duration
	}{
		{"nothing", nil, 0, -1, 0},
		{"the launcher knows", []failureReport{exited(2, 0)}, 0, 2, 0},
		{"a cut connection waits", []failureReport{cut(1, 0)}, 0, -1, settleDisconnect},
		{"and then counts", []failureReport{cut(1, 0)}, settleDisconnect, 1, 0},
		{"the launcher outdoes it", []failureReport{cut(1, 0), exited(3, 10*ms)}, 10 * ms, 3, 0},
		{"a suspicion waits longer", []failureReport{suspect(1, 0, 0)}, settleDisconnect, -1, settleSuspect},
		{"a suspect's death is not awaited", []failureReport{suspect(1, 0, 0), exited(1, 100*ms)}, 100 * ms, 1, 0},
		{"an accuser's end is an echo", []failureReport{suspect(1, 0, 0), exited(0, 100*ms)}, 100 * ms, -1, settleSuspect},
		{"and its accusation stands", []failureReport{suspect(1, 0, 0), exited(0, 100*ms), cut(0, 0)}, settleSuspect + 100*ms, 1, 0},
		{"two that accuse each other", []failureReport{suspect(1, 0, 0), suspect(0, 1, 0), cut(0, 0), cut(1, 0)}, settleSuspect, 1, 0},
		{"the first of equals", []failureReport{exited(4, 0), exited(3, 0)}, 0, 4, 0},
		{"the next to ripen", []failureReport{suspect(1, 0, 0), cut(2, 0)}, 0, -1, settleDisconnect},
	} {
		lost, again, ok := decideLost(c.all, at(c.now))
		switch {
		case ok != (c.want >= 0) || ok && lost.Rank != c.want:
			t.Errorf("%s: got rank %d, %v, want %d", c.name, lost.Rank, ok, c.want)
		case !ok && c.again > 0 && !again.Equal(at(c.again)):
			t.Errorf("%s: asks again at %v", c.name, again.Sub(t0))
		}
	}
}

func TestFindSlow(t *testing.T) {
	on := func(peer, seconds int) Status {
		return Status{Waits: true, Peer: peer, For: time.Duration(seconds) * time.Second}
	}
	busy := Status{Doing: "saving"}
	for _, c := range []struct {
		name  string
		ranks []Status
		want  string
	}{
		{"nobody waits", []Status{busy, busy}, ""},
		{"not for long", []Status{on(1, 4), busy}, ""},
		{"one for one", []Status{on(1, 6), busy}, "rank 1 is slow: rank 0 has been waiting for it for 6s (saving)"},
		{"a ring behind one", []Status{on(3, 7), {}, on(1, 6), on(2, 8)}, "rank 1 is slow: ranks 0, 2 and 3 have been waiting for it for 8s"},
		{"waits that began later", []Status{on(1, 6), on(2, 4), busy}, "rank 2 is slow: rank 0 has been waiting for it for 6s (saving)"},
		{"a wait that has just begun", []Status{on(1, 6), on(2, 1), busy}, "rank 1 is slow: rank 0 has been waiting for it for 6s"},
		{"two roots", []Status{on(1, 6), busy, on(3, 9), busy}, "rank 1 is slow: rank 0 has been waiting for it for 6s (saving)\nrank 3 is slow: rank 2 has been waiting for it for 9s (saving)"},
		{"a circle", []Status{on(1, 6), on(2, 7), on(0, 8)}, "ranks 0, 1 and 2 wait for each other, the longest for 8s: messages are not arriving"},
		{"a tail on a circle", []Status{on(1, 6), on(2, 7), on(1, 8)}, "ranks 0, 1 and 2 wait for each other, the longest for 8s: messages are not arriving"},
		{"a circle that has just closed", []Status{on(1, 6), on(0, 3)}, "ranks 0 and 1 wait for each other, the longest for 6s: messages are not arriving"},
		{"a silent rank", []Status{on(1, 6), {Waits: true, Peer: 2, For: 9 * time.Second, Silent: 8 * time.Second}, busy}, "rank 1 is slow: rank 0 has been waiting for it for 6s (no sign of life for 8s)"},
		{"in an operation", []Status{{Waits: true, Peer: 1, For: 6 * time.Second, In: "barrier 3"}, busy}, "rank 1 is slow: rank 0 has been waiting for it in barrier 3 for 6s (saving)"},
		{"stuck", []Status{{Waits: true, Peer: 1, For: 31 * time.Second, In: "barrier 3"}, {}}, "barrier 3 makes no progress, though all ranks are alive: rank 0 has been waiting for rank 1 for 31s; it fails at its timeout"},
		{"a stuck circle", []Status{on(1, 30), on(0, 29)}, "an exchange makes no progress, though all ranks are alive: ranks 0 and 1 have been waiting for each other for 30s; it fails at its timeout"},
		{"stuck and silent", []Status{on(1, 31), {Silent: 8 * time.Second}}, "rank 1 is slow: rank 0 has been waiting for it for 31s (no sign of life for 8s)"},
		{"one that left", []Status{on(1, 6), {Left: true}}, ""},
		{"a peer that is none", []Status{on(7, 6), busy}, ""},
	} {
		var lines []string
		for _, s := range FindSlow(c.ranks, 5*time.Second, 30*time.Second) {
			lines = append(lines, s.String())
		}
		if got := strings.Join(lines, "\n"); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.name, got, c.want)
		}
	}
}

// Against any statuses it ends, and blames no rank twice.
func TestFindSlowOnAnything(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		ranks := make([]Status, 1+rng.IntN(9))
		for r := range ranks {
			ranks[r] = Status{Waits: rng.IntN(4) > 0, Peer: rng.IntN(len(ranks)+2) - 1, For: time.Duration(rng.IntN(12)) * time.Second, Left: rng.IntN(9) == 0}
		}
		seen := map[int]bool{}
		for _, s := range FindSlow(ranks, 5*time.Second, 30*time.Second) {
			if seen[s.Rank] || ranks[s.Rank].Left || len(s.By) == 0 || s.For < 5*time.Second {
				t.Fatalf("%+v from %+v", s, ranks)
			}
			seen[s.Rank] = true
		}
	}
}

func TestFindMismatch(t *testing.T) {
	a, b, c := Begun{5, "a"}, Begun{5, "b"}, Begun{5, "c"}
	for _, x := range []struct {
		begun [][]Begun
		want  string
	}{
		{nil, ""},
		{[][]Begun{{a}, nil, {a}}, ""},
		{[][]Begun{{{4, "x"}, a}, {{6, "y"}}}, ""},
		{[][]Begun{{a}, {b}, {a}}, "operation 5: ranks 0 and 2 in a, rank 1 in b;"},
		{[][]Begun{{a}, {b}, {c}}, "operation 5: rank 0 in a, rank 1 in b, rank 2 in c;"},
		{[][]Begun{{{9, "x"}, a}, {b, {9, "y"}}}, "operation 5: "},
		{[][]Begun{{a}, nil, {{4, "x"}, b}, {{4, "x"}}}, "operation 5: rank 0 in a, rank 2 in b;"},
	} {
		err := FindMismatch(x.begun)
		if (err == nil) != (x.want == "") || err != nil && !strings.Contains(err.Error(), x.want) {
			t.Errorf("%v: %v, want %q", x.begun, err, x.want)
		}
	}
}

func TestReporterIsPatient(t *testing.T) {
	var p reporter
	var told []int
	for second := 5; second <= 100; second++ {
		if len(p.lines([]Slow{{Rank: 1, By: []int{0}, For: time.Duration(second) * time.Second, Stuck: second >= 30}})) > 0 {
			told = append(told, second)
		}
	}
	if want := []int{5, 10, 20, 30, 60}; !reflect.DeepEqual(told, want) {
		t.Errorf("told at %v, want %v", told, want)
	}
	p.lines(nil) // it goes on, and is slow again later
	if len(p.lines([]Slow{{Rank: 1, By: []int{0}, For: 5 * time.Second}})) != 1 {
		t.Error("the second time is not reported")
	}
}

func TestBlamed(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{errors.New("disk full"), -1},
		{&transport.Error{Peer: 3, Err: transport.ErrTimeout}, 3},
		{&transport.Error{Peer: 3, Err: fmt.Errorf("%w: 4 and 8", transport.ErrLength)}, -1},
		{fmt.Errorf("step 4: %w", &transport.Error{Peer: 3, Err: &transport.LostError{Rank: 1}}), 1},
		{&transport.Error{Peer: 3, Err: transport.NewAbortError(2, nil)}, 2},
		{&transport.Error{Peer: 3, Err: transport.NewAbortError(2, &transport.LostError{Rank: 0})}, 0},
	} {
		if got := blamed(c.err); got != c.want {
			t.Errorf("%v blames %d, want %d", c.err, got, c.want)
		}
	}
}

func TestMessages(t *testing.T) {
	for _, m := range []message{
		{Kind: kindJoin, Peer: -1, Addr: "127.0.0.1:80", BeatNanos: 1e9, DeadNanos: 1e10},
		{Kind: kindStatus, Peer: 2, Doing: "evaluating", Waits: true, WaitMillis: 17, In: "allreduce 12", Begun: []Begun{{7, "barrier"}}},
		{Kind: kindVerdict, Peer: -1, Missing: []int{0, 2}, World: 3, Servers: 1, WaitMillis: 60000},
		{Kind: kindRoster, Peer: 0, Addrs: []string{"a:1", "b:2", "c:3"}},
		{Kind: kindFailed, Peer: 1, Reason: "no \"space\"\nleft"},
		{Kind: kindJoin, Peer: -1, Addr: "127.0.0.1:80", Settings: setting.Values{"sync": "bsp", "ps.admission": ""}},
		{Kind: kindVerdict, Peer: -1, Disagree: setting.Disagreements{{Path: "sync", Process: "rank 0", Text: "bsp", Other: "server 1", OtherText: "ssp"}}},
	} {
		b, err := encode(m)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := decode(b, 3); err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("got %+v, %v, want %+v", got, err, m)
		}
	}
	b, err := encode(message{Kind: kindFailed, Peer: -1, Reason: strings.Repeat("\xff", 1<<20)})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := decode(b, 3); err != nil || len(m.Reason) > 4*maxWhy {
		t.Error(err, len(m.Reason))
	}
}

func TestMalformedMessages(t *testing.T) {
	for _, c := range []struct{ frame, want string }{
		{"", "control message"},
		{"{", "control message"},
		{`{"kind":"nonsense"}`, "unknown kind"},
		{`{"kind":"status","peer":3}`, "rank 3 is not among 3 ranks"},
		{`{"kind":"status","peer":-2}`, "rank -2"},
		{`{"kind":"status","wait_ms":-1}`, "a wait of -1 ms"},
		{`{"kind":"join","addr":"nohost"}`, "missing port"},
		{`{"kind":"join","addr":"` + strings.Repeat("a", 400) + `:1"}`, "an address of 402 bytes"},
		{`{"kind":"roster","addrs":["a:1"]}`, "1 addresses for 3 ranks"},
		{`{"kind":"verdict","missing":[0,1,2,0]}`, "4 missing ranks of 3"},
		{`{"kind":"verdict","missing":[5]}`, "rank 5"},
		{strings.Repeat(" ", maxMessage+1), "above the limit"},
		{`{"kind":"join","addr":"a:1","settings":{"a\n":"x"}}`, `setting "a\n"`},
		{`{"kind":"join","addr":"a:1","settings":{"a":"` + strings.Repeat("x", 33000) + `"}}`, "text of 33000 bytes"},
		{`{"kind":"verdict","peer":-1,"disagree":[{"process":"` + strings.Repeat("x", 500) + `"}]}`, "a disagreement"},
	} {
		if _, err := decode([]byte(c.frame), 3); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.40q: got %v, want %q", c.frame, err, c.want)
		}
	}
}

// Whatever comes from the network, what decode lets through is within bounds
// and survives another trip.
func FuzzDecode(f *testing.F) {
	for _, m := range []message{
		{Kind: kindJoin, Peer: -1, Addr: "127.0.0.1:80", BeatNanos: 1e9, DeadNanos: 1e10},
		{Kind: kindRoster, Addrs: []string{"a:1", "b:2", "c:3"}},
		{Kind: kindVerdict, Peer: -1, Missing: []int{1}, World: 3, Servers: 2},
		{Kind: kindStatus, Waits: true, WaitMillis: 5, Doing: "\x00"},
		{Kind: kindReport, Peer: -1, Reason: "a line"},
		{Kind: kindJoin, Peer: -1, Addr: "127.0.0.1:80", Settings: setting.Values{"sync": "bsp", "ps.admission": ""}},
		{Kind: kindVerdict, Peer: -1, Disagree: setting.Disagreements{{Path: "sync", Process: "rank 0", Text: "bsp", Other: "server 1", OtherText: "ssp"}}},
	} {
		b, _ := encode(m)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		m, err := decode(frame, 3)
		if err != nil {
			return
		}
		if m.Peer < -1 || m.Peer > 2 || m.WaitMillis < 0 {
			t.Fatalf("%+v", m)
		}
		_ = verdictError(m).Error()
		once, err := encode(m)
		if err != nil {
			t.Fatal(err)
		}
		back, err := decode(once, 3)
		if err != nil {
			t.Fatal(err)
		}
		if twice, _ := encode(back); !bytes.Equal(once, twice) && len(m.Reason) < maxWhy && len(m.Doing) < maxDoing {
			t.Fatalf("%s became %s", once, twice)
		}
	})
}
