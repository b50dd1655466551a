package outcome

import (
	"errors"
	"fmt"
	"testing"
)

// at is a place in step 412 of epoch 2.
func at(bucket string) Place { return Place{Where: "in step 412 of epoch 2", Bucket: bucket} }

func echoes(cause string, p Place, ranks ...int) (out []End) {
	for _, r := range ranks {
		out = append(out, End{Rank: r, Cause: cause, Why: fmt.Sprint("link ", r), Place: p})
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
		loss Loss
		want string
	}{
		{"alone", Loss{Who: "rank 0", How: killed, Quoted: true}, "rank 0 is lost: killed by signal 9 (SIGKILL); it wrote nothing"},
		{
			"many ranks in one place",
			Loss{Who: "rank 3", How: killed, Rank: 3, Others: append(echoes("rank 3", at(three), from(0, 2)...), echoes("rank 3", at(three), from(4, 63)...)...)},
			"rank 3 is lost: killed by signal 9 (SIGKILL), in step 412 of epoch 2, bucket 3 (conv1.weight … fc.bias); ranks 0-2 and 4-63 ended because of it",
		},
		{
			"two buckets of a step",
			Loss{Who: "rank 1", How: killed, Rank: 1, Others: append(echoes("rank 1", at(three), 0), echoes("rank 1", at(two), 2, 3)...)},
			"rank 1 is lost: killed by signal 9 (SIGKILL), in step 412 of epoch 2; ranks 0, 2 and 3 ended because of it: rank 0 in bucket 3 (conv1.weight … fc.bias), ranks 2 and 3 in bucket 2 (fc2.weight)",
		},
		{
			"two steps",
			Loss{Who: "rank 1", How: killed, Rank: 1, Others: append(echoes("rank 1", at(three), 0), echoes("rank 1", Place{Where: "while evaluating after epoch 1"}, 2)...)},
			"rank 1 is lost: killed by signal 9 (SIGKILL); ranks 0 and 2 ended because of it: rank 0 in step 412 of epoch 2, bucket 3 (conv1.weight … fc.bias), rank 2 while evaluating after epoch 1",
		},
		{
			"one that cannot say where",
			Loss{Who: "rank 1", How: killed, Rank: 1, Others: append(echoes("rank 1", at(two), 0), echoes("rank 1", Place{}, 2)...)},
			"rank 1 is lost: killed by signal 9 (SIGKILL), in step 412 of epoch 2, bucket 2 (fc2.weight); ranks 0 and 2 ended because of it",
		},
		{
			"evaluation, with last words",
			Loss{Who: "rank 0", How: "no sign of life for 10s", Tail: []string{"a", "b"}, Quoted: true, Others: echoes("rank 0", Place{Where: "while evaluating after epoch 3"}, 1)},
			"rank 0 is lost: no sign of life for 10s, while evaluating after epoch 3; rank 1 ended because of it; its last lines:\n  a\n  b",
		},
		{
			"one that left early",
			Loss{Who: "rank 2", Host: "b", How: Early("it left the job after step 99", "rank 0", "allreduce 7"), Rank: 2, Others: echoes("rank 2", at(two), 0, 1)},
			"rank 2 on b ended early: it left the job after step 99, but rank 0 waits for it in allreduce 7: all ranks must start the same operations, " +
				"in step 412 of epoch 2, bucket 2 (fc2.weight); ranks 0 and 1 ended because of it",
		},
		{
			"one that ended early with status 0",
			Loss{Who: "rank 2", How: Early("its process ended with status 0 before it left the job", "", ""), Rank: 2, Quoted: true},
			"rank 2 ended early: its process ended with status 0 before it left the job; it wrote nothing",
		},
		{
			"a fault of its own",
			Loss{Who: "rank 1", Failed: "in step 3 of epoch 1: the loss is NaN", Rank: 1, Quoted: true, Others: echoes("rank 1", Place{Where: "in step 3 of epoch 1"}, 0, 2)},
			"rank 1 failed: in step 3 of epoch 1: the loss is NaN; ranks 0 and 2 ended because of it in step 3 of epoch 1",
		},
		{
			"the same fault on all",
			Loss{Who: "rank 2", Failed: "no such\nfile", Rank: 2, Quoted: true, Others: []End{{Rank: 0, Why: "no such\nfile"}, {Rank: 1, Why: "no such\nfile"}, {Rank: 3, Why: "no such\nfile"}}},
			"ranks 0-3 failed: no such; file",
		},
		{
			"different faults",
			Loss{Who: "rank 2", Failed: "no file a", Rank: 2, Others: []End{{Rank: 0, Why: "no file b"}, {Rank: 1, Cause: "rank 2"}, {Rank: 3, Why: "no file b"}}},
			"rank 2 failed: no file a; rank 1 ended because of it; ranks 0 and 3 failed: no file b",
		},
		{
			"killed after it had failed",
			Loss{Who: "rank 2", Failed: "no file", How: killed, Rank: 2},
			"rank 2 failed: no file, then killed by signal 9 (SIGKILL)",
		},
		{
			"a server that sums",
			Loss{Who: "rank 2", How: "server 0: " + killed, Rank: 2, Ranks: 2, Others: echoes("rank 2", at(two), 0, 1, 3)},
			"rank 2 is lost: server 0: killed by signal 9 (SIGKILL), in step 412 of epoch 2, bucket 2 (fc2.weight); ranks 0 and 1 and server 1 ended because of it",
		},
		{
			"a server of tables, and who heard of it from another",
			Loss{Who: "parameter server 1", How: killed, Rank: -1, Others: []End{
				{Rank: 0, Cause: "parameter server 1", Why: "ps: away", Place: Place{Where: "in step 7 of epoch 1"}},
				{Rank: 1, Cause: "rank 0", Why: "rank 0 is lost", Place: Place{Where: "in step 7 of epoch 1"}},
			}},
			"parameter server 1 is lost: killed by signal 9 (SIGKILL), in step 7 of epoch 1; ranks 0 and 1 ended because of it",
		},
		{
			"a server that refuses all with its own fault",
			Loss{Who: "parameter server 0", Failed: "ps: server 0: opening the tables: no room for 4096 rows", Rank: -1, Others: []End{
				{Rank: 0, Cause: "rank 1", Why: "rank 1 is lost: it failed: ps: trainer 1: connecting: server 0: opening the tables: no room for 4096 rows", Place: Place{Where: "while building the model"}},
				{Rank: 1, Why: "ps: trainer 1: connecting: server 0: opening the tables: no room for 4096 rows", Place: Place{Where: "while building the model"}},
				{Rank: 2, Why: "no room for 4096 pages"},
			}},
			"parameter server 0 failed: ps: server 0: opening the tables: no room for 4096 rows; ranks 0 and 1 ended because of it while building the model; rank 2 failed: no room for 4096 pages",
		},
		{
			"ranks that blame each other",
			Loss{Who: "rank 5", How: killed, Rank: 5, Others: []End{{Rank: 0, Cause: "rank 1", Why: "a"}, {Rank: 1, Cause: "rank 0", Why: "b"}}},
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
	for want, e := range map[string]End{
		"no file":                          {Why: "no file"},
		"rank 0 is lost: away":             {Cause: "rank 0", Why: "rank 0 is lost: away"},
		"parameter server 1 is lost: away": {Cause: "parameter server 1", Why: "away"},
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
	place Place
}

func (p placed) Place() Place  { return p.place }
func (p placed) Unwrap() error { return p.error }

// Of each part of a place the outermost error's word counts, through all kinds of wrapping.
func TestPlaceOf(t *testing.T) {
	inner := placed{errors.New("x"), Place{Bucket: "bucket 9 (z)"}}
	step := placed{fmt.Errorf("during: %w", inner), Place{Where: "in step 880", Bucket: Bucket("bucket 3", "a", "b")}}
	outer := placed{errors.Join(errors.New("other"), step), Place{Where: "in step 4 of epoch 2"}}
	for want, err := range map[string]error{
		"in step 4 of epoch 2, bucket 3 (a … b)": fmt.Errorf("%w and %w", errors.New("first"), outer),
		"in step 880, bucket 3 (a … b)":          step,
		"in bucket 9 (z)":                        inner,
		"":                                       errors.New("x"),
	} {
		if got := PlaceOf(err).String(); got != want {
			t.Errorf("%v: got %q, want %q", err, got, want)
		}
	}
	if got := PlaceOf(nil); got != (Place{}) {
		t.Error(got)
	}
	for want, got := range map[string]string{"bucket 1": Bucket("bucket 1", "", ""), "bucket 1 (a)": Bucket("bucket 1", "a", "a"), "a, in bucket 9 (z)": At("a", inner.place), "b": At("b", Place{})} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
