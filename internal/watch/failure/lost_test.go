package failure

import (
	"errors"
	"fmt"
	"testing"
)

// at is a place in step 412 of epoch 2.
func at(bucket string) Position { return Position{Where: "in step 412 of epoch 2", Bucket: bucket} }

func echoes(cause string, p Position, ranks ...int) (out []Exit) {
	for _, r := range ranks {
		out = append(out, Exit{Rank: r, Cause: cause, Reason: fmt.Sprint("link ", r), Place: p})
	}
	return out
}

func from(first, last int) (out []int) {
	for r := first; r <= last; r++ {
		out = append(out, r)
	}
	return out
}

// What a person reads of each kind of fault.
func TestLoss(t *testing.T) {
	const three, two = "bucket 3 (conv1.weight … fc.bias)", "bucket 2 (fc2.weight)"
	killed := "killed by signal 9 (SIGKILL)"
	for _, c := range []struct {
		kind string
		loss LostProcess
		want string
	}{
		{"alone", LostProcess{Name: "rank 0", Status: killed, Quoted: true}, "rank 0 is lost: killed by signal 9 (SIGKILL); it wrote nothing"},
		{
			"many ranks in one place",
			LostProcess{Name: "rank 3", Status: killed, Rank: 3, Affected: append(echoes("rank 3", at(three), from(0, 2)...), echoes("rank 3", at(three), from(4, 63)...)...)},
			"rank 3 is lost: killed by signal 9 (SIGKILL), in step 412 of epoch 2, bucket 3 (conv1.weight … fc.bias); ranks 0-2 and 4-63 ended because of it",
		},
		{
			"two buckets of a step",
			LostProcess{Name: "rank 1", Status: killed, Rank: 1, Affected: append(echoes("rank 1", at(three), 0), echoes("rank 1", at(two), 2, 3)...)},
			"rank 1 is lost: killed by signal 9 (SIGKILL), in step 412 of epoch 2; ranks 0, 2 and 3 ended because of it: rank 0 in bucket 3 (conv1.weight … fc.bias), ranks 2 and 3 in bucket 2 (fc2.weight)",
		},
		{
			"two steps",
			LostProcess{Name: "rank 1", Status: killed, Rank: 1, Affected: append(echoes("rank 1", at(three), 0), echoes("rank 1", Position{Where: "while evaluating after epoch 1"}, 2)...)},
			"rank 1 is lost: killed by signal 9 (SIGKILL); ranks 0 and 2 ended because of it: rank 0 in step 412 of epoch 2, bucket 3 (conv1.weight … fc.bias), rank 2 while evaluating after epoch 1",
		},
		{
			"one that cannot say where",
			LostProcess{Name: "rank 1", Status: killed, Rank: 1, Affected: append(echoes("rank 1", at(two), 0), echoes("rank 1", Position{}, 2)...)},
			"rank 1 is lost: killed by signal 9 (SIGKILL), in step 412 of epoch 2, bucket 2 (fc2.weight); ranks 0 and 2 ended because of it",
		},
		{
			"evaluation, with last words",
			LostProcess{Name: "rank 0", Status: "no sign of life for 10s", Tail: []string{"a", "b"}, Quoted: true, Affected: echoes("rank 0", Position{Where: "while evaluating after epoch 3"}, 1)},
			"rank 0 is lost: no sign of life for 10s, while evaluating after epoch 3; rank 1 ended because of it; its last lines:\n  a\n  b",
		},
		{
			"one that left early",
			LostProcess{Name: "rank 2", Host: "b", Status: Early("it left the job after step 99", "rank 0", "allreduce 7"), Rank: 2, Affected: echoes("rank 2", at(two), 0, 1)},
			"rank 2 on b ended early: it left the job after step 99, but rank 0 waits for it in allreduce 7: all ranks must start the same operations, " +
				"in step 412 of epoch 2, bucket 2 (fc2.weight); ranks 0 and 1 ended because of it",
		},
		{
			"one that ended early with status 0",
			LostProcess{Name: "rank 2", Status: Early("its process ended with status 0 before it left the job", "", ""), Rank: 2, Quoted: true},
			"rank 2 ended early: its process ended with status 0 before it left the job; it wrote nothing",
		},
		{
			"a fault of its own",
			LostProcess{Name: "rank 1", Failed: "in step 3 of epoch 1: the loss is NaN", Rank: 1, Quoted: true, Affected: echoes("rank 1", Position{Where: "in step 3 of epoch 1"}, 0, 2)},
			"rank 1 failed: in step 3 of epoch 1: the loss is NaN; ranks 0 and 2 ended because of it in step 3 of epoch 1",
		},
		{
			"the same fault on all",
			LostProcess{Name: "rank 2", Failed: "no such\nfile", Rank: 2, Quoted: true, Affected: []Exit{{Rank: 0, Reason: "no such\nfile"}, {Rank: 1, Reason: "no such\nfile"}, {Rank: 3, Reason: "no such\nfile"}}},
			"ranks 0-3 failed: no such; file",
		},
		{
			"different faults",
			LostProcess{Name: "rank 2", Failed: "no file a", Rank: 2, Affected: []Exit{{Rank: 0, Reason: "no file b"}, {Rank: 1, Cause: "rank 2"}, {Rank: 3, Reason: "no file b"}}},
			"rank 2 failed: no file a; rank 1 ended because of it; ranks 0 and 3 failed: no file b",
		},
		{
			"killed after it had failed",
			LostProcess{Name: "rank 2", Failed: "no file", Status: killed, Rank: 2},
			"rank 2 failed: no file, then killed by signal 9 (SIGKILL)",
		},
		{
			"a server that sums",
			LostProcess{Name: "rank 2", Status: "server 0: " + killed, Rank: 2, Ranks: 2, Affected: echoes("rank 2", at(two), 0, 1, 3)},
			"rank 2 is lost: server 0: killed by signal 9 (SIGKILL), in step 412 of epoch 2, bucket 2 (fc2.weight); ranks 0 and 1 and server 1 ended because of it",
		},
		{
			"a server of tables, and who heard of it from another",
			LostProcess{Name: "parameter server 1", Status: killed, Rank: -1, Affected: []Exit{
				{Rank: 0, Cause: "parameter server 1", Reason: "ps: away", Place: Position{Where: "in step 7 of epoch 1"}},
				{Rank: 1, Cause: "rank 0", Reason: "rank 0 is lost", Place: Position{Where: "in step 7 of epoch 1"}},
			}},
			"parameter server 1 is lost: killed by signal 9 (SIGKILL), in step 7 of epoch 1; ranks 0 and 1 ended because of it",
		},
		{
			"a server that refuses all with its own fault",
			LostProcess{Name: "parameter server 0", Failed: "ps: server 0: opening the tables: no room for 4096 rows", Rank: -1, Affected: []Exit{
				{Rank: 0, Cause: "rank 1", Reason: "rank 1 is lost: it failed: ps: trainer 1: connecting: server 0: opening the tables: no room for 4096 rows", Place: Position{Where: "while building the model"}},
				{Rank: 1, Reason: "ps: trainer 1: connecting: server 0: opening the tables: no room for 4096 rows", Place: Position{Where: "while building the model"}},
				{Rank: 2, Reason: "no room for 4096 pages"},
			}},
			"parameter server 0 failed: ps: server 0: opening the tables: no room for 4096 rows; ranks 0 and 1 ended because of it while building the model; rank 2 failed: no room for 4096 pages",
		},
		{
			"ranks that blame each other",
			LostProcess{Name: "rank 5", Status: killed, Rank: 5, Affected: []Exit{{Rank: 0, Cause: "rank 1", Reason: "a"}, {Rank: 1, Cause: "rank 0", Reason: "b"}}},
			"rank 5 is lost: killed by signal 9 (SIGKILL); rank 0 failed: a; rank 1 failed: b",
		},
	} {
		if got := c.loss.String(); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.kind, got, c.want)
		}
	}
}

// An error that does not say itself who is lost is told with it.
func TestFault(t *testing.T) {
	for want, e := range map[string]Exit{
		"no file":                          {Reason: "no file"},
		"rank 0 is lost: away":             {Cause: "rank 0", Reason: "rank 0 is lost: away"},
		"parameter server 1 is lost: away": {Cause: "parameter server 1", Reason: "away"},
	} {
		if got := e.Fault(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestList(t *testing.T) {
	for want, numbers := range map[string][]int{
		"": nil, "rank 4": {4}, "ranks 4 and 5": {5, 4}, "ranks 4-6": {4, 6, 5, 4}, "ranks 0, 2 and 4": {0, 2, 4},
		"ranks 0-2, 5 and 7-9": {0, 1, 2, 5, 7, 8, 9},
	} {
		if got := list("rank", numbers); got != want {
			t.Errorf("%v: got %q, want %q", numbers, got, want)
		}
	}
}

// placed is an error with a place.
type placed struct {
	error
	place Position
}

func (p placed) Place() Position { return p.place }
func (p placed) Unwrap() error   { return p.error }

// Of each part of a place the outermost error's word counts, through all kinds of wrapping.
func TestPlaceOf(t *testing.T) {
	inner := placed{errors.New("x"), Position{Bucket: "bucket 9 (z)"}}
	step := placed{fmt.Errorf("during: %w", inner), Position{Where: "in step 880", Bucket: Bucket("bucket 3", "a", "b")}}
	outer := placed{errors.Join(errors.New("other"), step), Position{Where: "in step 4 of epoch 2"}}
	for want, err := range map[string]error{
		"in step 4 of epoch 2, bucket 3 (a … b)": fmt.Errorf("%w and %w", errors.New("first"), outer),
		"in step 880, bucket 3 (a … b)":          step,
		"in bucket 9 (z)":                        inner,
		"":                                       errors.New("x"),
	} {
		if got := PositionOf(err).String(); got != want {
			t.Errorf("%v: got %q, want %q", err, got, want)
		}
	}
	if got := PositionOf(nil); got != (Position{}) {
		t.Error(got)
	}
	for want, got := range map[string]string{"bucket 1": Bucket("bucket 1", "", ""), "bucket 1 (a)": Bucket("bucket 1", "a", "a"), "a, in bucket 9 (z)": At("a", inner.place), "b": At("b", Position{})} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
