package bindings_test

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/bindings"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/transport"
)

func pointer[T any](x []T) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(x)) }

func value(r, i int) int32 { return int32(100*r + i) }

func operand(r, n int) []int32 {
	x := make([]int32, n)
	for i := range x {
		x[i] = value(r, i)
	}
	return x
}

// result is an operation's Request with a rank's operands, and the expected result. The C programs
// of capi cover every type; result checks each Kind's operation and lengths.
func result(kind bindings.Kind, rank, size int) (q bindings.Request, got func() []int32, want []int32) {
	const n = 5
	q = bindings.Request{Kind: kind, Type: bindings.Int32, N: n, Peer: 1}
	x, all, wide := operand(rank, n), operand(rank, n*size), make([]int32, n*size)
	q.Dst, q.Src = pointer(x), pointer(all)
	got = func() []int32 { return x }
	of := func(f func(i int) int32, n int) []int32 {
		out := make([]int32, n)
		for i := range out {
			out[i] = f(i)
		}
		return out
	}
	sum := func(i int) int32 { return int32(100*size*(size-1)/2 + size*i) }
	switch kind {
	case bindings.AllReduce:
		want = of(sum, n)
	case bindings.Reduce:
		if want = operand(rank, n); rank == 1 {
			want = of(sum, n)
		}
	case bindings.Broadcast:
		want = operand(1, n)
	case bindings.ReduceScatter:
		want = of(func(i int) int32 { return sum(rank*n + i) }, n)
	case bindings.Scatter:
		want = of(func(i int) int32 { return value(1, rank*n+i) }, n)
	case bindings.AllGather, bindings.Gather, bindings.AllToAll:
		q.Dst, q.Src, got = pointer(wide), pointer(x), func() []int32 { return wide }
		want = of(func(i int) int32 { return value(i/n, i%n) }, n*size)
		if kind == bindings.AllToAll {
			q.Src = pointer(all)
			want = of(func(i int) int32 { return value(i/n, rank*n+i%n) }, n*size)
		} else if kind == bindings.Gather && rank != 1 {
			q.Dst, want = nil, make([]int32, n*size)
		}
	case bindings.AllGatherTo:
		q.Dst, q.Src, got = nil, pointer(x), func() []int32 { return wide }
		for r := range size { // the last rank's first
			q.Parts = append(q.Parts, pointer(wide[(size-1-r)*n:]))
		}
		want = of(func(i int) int32 { return value(size-1-i/n, i%n) }, n*size)
	case bindings.AllGatherV, bindings.AllToAllV:
		q.DstCounts, q.N = make([]int, size), 0
		for r := range size {
			q.DstCounts[r] = r
			for i := range r {
				want = append(want, value(r, i))
			}
		}
		if kind == bindings.AllToAllV { // rank r sends its first r values to every rank
			q.SrcCounts, all = slices.Repeat([]int{rank}, size), slices.Repeat(operand(rank, rank), size)
			q.Src = pointer(all)
		}
		q.Dst, got = pointer(wide), func() []int32 { return wide[:len(want)] }
	case bindings.Send, bindings.Receive, bindings.Listen: // from rank 0 to rank 1
		if want = operand(0, n); rank == 1 {
			q.Kind, q.Peer = max(kind, bindings.Receive), 0
		} else if rank > 1 {
			q.Kind, want = bindings.Barrier, operand(rank, n)
		} else {
			q.Kind = bindings.Send
		}
	case bindings.Barrier:
		want = operand(rank, n)
	}
	return q, got, want
}

// Each Kind runs the right operation, blocking and in the background.
func TestOperations(t *testing.T) {
	for kind := range bindings.AllGatherTo + 1 {
		err := ringo.Local(t.Context(), 3, ringo.Config{}, func(job *ringo.Job) error {
			for _, blocking := range []bool{true, false} {
				q, got, want := result(kind, job.Rank(), job.Size())
				if (kind == bindings.Send || kind == bindings.Receive || kind == bindings.Listen) && job.Rank() > 1 {
					continue
				}
				err := error(nil)
				if blocking {
					err = q.Run(job.Group())
				} else if w, fault := q.Start(job.Group()); fault != nil {
					err = fault
				} else {
					err = w.Wait()
				}
				if err != nil || !slices.Equal(got(), want) {
					return fmt.Errorf("operation %d, blocking %v: %v, %v, want %v", kind, blocking, err, got(), want)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func alone(t *testing.T, fn func(g *collective.Group)) {
	t.Helper()
	if err := ringo.Local(t.Context(), 1, ringo.Config{}, func(job *ringo.Job) error { fn(job.Group()); return nil }); err != nil {
		t.Fatal(err)
	}
}

// Every type has the right size and reduction.
func TestTypes(t *testing.T) {
	for typ, bytes := range []int{4, 8, 4, 8, 1, 2, 2} {
		err := ringo.Local(t.Context(), 2, ringo.Config{}, func(job *ringo.Job) error {
			x := slices.Repeat([]byte{0}, 4*bytes)
			x[3*bytes] = 1 // last of three integers, or smallest number, and one value behind
			x[2*bytes] = 1
			if err := (bindings.Request{Type: bindings.Type(typ), Dst: pointer(x), N: 3}).Run(job.Group()); err != nil {
				return err
			}
			if x[2*bytes] != 2 || x[3*bytes] != 1 {
				return fmt.Errorf("type %d: % x", typ, x)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// Wrong requests are refused as a Misuse, and nothing starts.
func TestMisuse(t *testing.T) {
	x := make([]float32, 8)
	for text, q := range map[string]bindings.Request{
		"15 is not an operation": {Kind: 15},
		"7 is not a type":        {Type: 7},
		"memory can hold":        {N: -1},
		"for each of 1 ranks":    {N: math.MaxInt / 2, Dst: pointer(x)},
		"it is NULL":             {N: 3},
		"0 counts, want one":     {Kind: bindings.AllGatherV},
		"2 addresses":            {Kind: bindings.AllGatherTo, Parts: make([]unsafe.Pointer, 2)},
		"the part of rank 0":     {Kind: bindings.AllGatherTo, N: 1, Src: pointer([]float32{1}), Parts: make([]unsafe.Pointer, 1)},
		"2 counts":               {Kind: bindings.AllGatherV, DstCounts: []int{1, 2}},
		"those to rank 0":        {Kind: bindings.AllGatherV, DstCounts: []int{-1}},
		"what goes":              {Kind: bindings.AllToAllV, DstCounts: []int{0}, SrcCounts: []int{math.MaxInt}},
		"values has no address":  {Kind: bindings.AllToAllV, DstCounts: []int{0}, SrcCounts: []int{1}},
	} {
		alone(t, func(g *collective.Group) {
			err := q.Run(g)
			w, again := q.Start(g)
			if code, _ := bindings.Of(err); code != bindings.Invalid || !strings.Contains(fmt.Sprint(err), text) || w != nil || fmt.Sprint(err) != fmt.Sprint(again) {
				t.Errorf("%q: %v, started: %v", text, err, again)
			}
		})
	}
	alone(t, func(g *collective.Group) { // refused by the group
		for _, q := range []bindings.Request{{Dst: pointer(x), N: 1, Op: 9}, {Kind: bindings.Broadcast, Dst: pointer(x), N: 1, Peer: 4}} {
			if code, rank := bindings.Of(q.Run(g)); code != bindings.Invalid || rank != -1 {
				t.Errorf("%v: code %d, rank %d", q, code, rank)
			}
		}
	})
}

// Run of an allreduce allocates nothing.
func TestRunAllocatesNothing(t *testing.T) {
	alone(t, func(g *collective.Group) {
		x := make([]float32, 8)
		q := bindings.Request{Dst: pointer(x), N: 8}
		if n := testing.AllocsPerRun(100, func() {
			if q.Run(g) != nil {
				t.Fatal("it fails")
			}
		}); n != 0 {
			t.Errorf("%v allocations", n)
		}
	})
}

func TestCodes(t *testing.T) {
	op := func(peer int, err error) error {
		return &collective.OpError{Op: "allreduce", Rank: 1, Peer: peer, Err: err}
	}
	link := func(err error) error { return &transport.Error{Op: "receive", Rank: 1, Peer: 2, Err: err} }
	for _, c := range []struct {
		err  error
		code bindings.Code
		rank int
	}{
		{nil, bindings.OK, -1},
		{bindings.Misusef("x"), bindings.Invalid, -1},
		{op(1, errors.New("root 9")), bindings.Invalid, -1},
		{op(2, link(&transport.MismatchError{})), bindings.Mismatch, 2},
		{op(2, link(transport.Lost(3))), bindings.Lost, 3},
		{op(2, link(transport.ErrGoodbye)), bindings.Lost, 2},
		{op(2, link(transport.NewAbortError(4, errors.New("no paper")))), bindings.Lost, 4},
		{op(2, link(transport.NewAbortError(4, &transport.LostError{Rank: 5}))), bindings.Lost, 5},
		{op(2, link(transport.ErrTimeout)), bindings.TimedOut, 2},
		{op(1, transport.ErrClosed), bindings.Closed, -1},
		{errors.New("anything"), bindings.Failed, -1},
	} {
		if code, rank := bindings.Of(c.err); code != c.code || rank != c.rank {
			t.Errorf("%v: code %d of rank %d, want %d of %d", c.err, code, rank, c.code, c.rank)
		}
	}
}

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"short": "short", "a\x00b": "a\\0b", "0123456789": "0123456789", "0123456789+": "0123456...", "012345éé+": "012345...",
	} {
		if got := bindings.Text(errors.New(in), 10); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestConvert(t *testing.T) {
	for typ, want := range map[bindings.Type][]uint16{bindings.Float16: {0x3c00, 0xc000}, bindings.BFloat16: {0x3f80, 0xc000}} {
		halves, back := make([]uint16, 2), make([]float32, 2)
		bindings.Convert(typ, false, pointer(halves), pointer([]float32{1, -2}), 2)
		bindings.Convert(typ, true, pointer(halves), pointer(back), 2)
		if !slices.Equal(halves, want) || !slices.Equal(back, []float32{1, -2}) {
			t.Errorf("type %d: %x and back %v", typ, halves, back)
		}
	}
}

// An explicit Place takes the ticket from its field; the host's threads stay unbound by default.
func TestPlace(t *testing.T) {
	env := map[string]string{launch.RankVar: "3", launch.TicketVar: transport.NewTicket().String()}
	lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	ticket := transport.NewTicket().String()
	const file = "/somewhere/ticket"
	for name, c := range map[string]struct {
		place  bindings.Place
		ticket string
	}{
		"environment": {bindings.Place{}, env[launch.TicketVar]},
		"text":        {bindings.Place{Ticket: ticket}, ticket},
		"file":        {bindings.Place{TicketFile: file, Size: 2, Rank: 1, Rendezvous: "a:1", Timeout: time.Second, JoinTimeout: time.Minute}, env[launch.TicketVar]},
	} {
		cfg, err := c.place.Config(lookup)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, _ := cfg.Lookup(launch.TicketVar)
		rank, _ := cfg.Lookup(launch.RankVar)
		if got != c.ticket || rank != "3" || cfg.Size != c.place.Size || cfg.Rank != c.place.Rank || cfg.Rendezvous != c.place.Rendezvous || cfg.TicketFile != c.place.TicketFile || cfg.Bind != launch.BindNone ||
			cfg.Collective.Timeout != c.place.Timeout || cfg.Times.Join != c.place.JoinTimeout {
			t.Errorf("%s: %+v", name, cfg)
		}
	}
	env[launch.BindVar] = "core"
	if cfg, err := (bindings.Place{}).Config(lookup); err != nil || cfg.Bind != "" {
		t.Errorf("the environment says how to bind: %q, %v", cfg.Bind, err)
	}
	for text, p := range map[string]bindings.Place{
		"want one of them": {Ticket: ticket, TicketFile: file}, "job.ticket-file": {TicketFile: file}, "64 hexadecimal": {Ticket: "secret"},
		"want 0 to 1": {Size: 2, Rank: 2, Rendezvous: "a:1"},
	} {
		_, err := p.Config(lookup)
		if code, _ := bindings.Of(err); code != bindings.Invalid || !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// ringo.h and this module agree on the release, the numbers of types, reductions and codes, and the
// operations in border.h; and ringo.map exports ringo.h's declarations.
func TestHeader(t *testing.T) {
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join("..", "..", "capi", name))
		if err != nil {
			t.Fatal(err)
		}
		return regexp.MustCompile(`(?s)/\*.*?\*/`).ReplaceAllString(string(b), "")
	}
	header := read("ringo.h")
	if want := `#define RINGO_VERSION "` + ringo.Version + `"`; !strings.Contains(header, want) {
		t.Errorf("ringo.h: want %s", want)
	}
	got := map[string]int{}
	for _, m := range regexp.MustCompile(`(RINGO_[A-Z0-9_]+) = (-?\d+)`).FindAllStringSubmatch(header, -1) {
		got[m[1]], _ = strconv.Atoi(m[2])
	}
	want := map[string]int{
		"RINGO_OK": int(bindings.OK), "RINGO_PENDING": int(bindings.Pending), "RINGO_ERROR_INVALID": int(bindings.Invalid), "RINGO_ERROR_LOST": int(bindings.Lost),
		"RINGO_ERROR_TIMEOUT": int(bindings.TimedOut), "RINGO_ERROR_MISMATCH": int(bindings.Mismatch), "RINGO_ERROR_CLOSED": int(bindings.Closed),
		"RINGO_ERROR_FORKED": int(bindings.Forked), "RINGO_ERROR_INTERNAL": int(bindings.Internal), "RINGO_ERROR_FAILED": int(bindings.Failed),
		"RINGO_FLOAT32": int(bindings.Float32), "RINGO_FLOAT64": int(bindings.Float64), "RINGO_INT32": int(bindings.Int32), "RINGO_INT64": int(bindings.Int64),
		"RINGO_UINT8": int(bindings.Uint8), "RINGO_FLOAT16": int(bindings.Float16), "RINGO_BFLOAT16": int(bindings.BFloat16),
		"RINGO_SUM": int(collective.Sum), "RINGO_MEAN": int(collective.Mean), "RINGO_MIN": int(collective.Min), "RINGO_MAX": int(collective.Max), "RINGO_PROD": int(collective.Prod),
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("ringo.h has %v, want %v", got, want)
	}
	kinds := regexp.MustCompile(`(?s)enum \{\s*(BORDER_ALLREDUCE.*?)\}`).FindStringSubmatch(read("border.h"))
	if kinds == nil || strings.Join(strings.Fields(kinds[1]), " ") != "BORDER_ALLREDUCE, BORDER_BROADCAST, BORDER_REDUCE, BORDER_SEND, BORDER_RECEIVE, BORDER_REDUCE_SCATTER, "+
		"BORDER_ALLGATHER, BORDER_GATHER, BORDER_SCATTER, BORDER_ALLTOALL, BORDER_ALLGATHERV, BORDER_ALLTOALLV, BORDER_BARRIER, BORDER_LISTEN, BORDER_ALLGATHER_TO" {
		t.Errorf("border.h has %q", kinds)
	}
	var declared, exported []string
	for _, m := range regexp.MustCompile(`(?m)^[a-z].*?\b(ringo_\w+)\(`).FindAllStringSubmatch(header, -1) {
		declared = append(declared, m[1])
	}
	for _, m := range regexp.MustCompile(`(?m)^ +(ringo_\w+);`).FindAllStringSubmatch(read("ringo.map"), -1) {
		exported = append(exported, m[1])
	}
	slices.SortFunc(declared, cmp.Compare[string])
	slices.SortFunc(exported, cmp.Compare[string]) // sorted by version there
	if !slices.Equal(declared, exported) || len(declared) < 50 {
		t.Errorf("ringo.h declares %v, ringo.map exports %v", declared, exported)
	}
}
