package collective

import (
	"errors"
	"flag"
	"fmt"
	"sync"
	"testing"

	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/transport"
)

// TestMain runs the tests that wait for a timeout together.
func TestMain(m *testing.M) {
	flag.Set("test.parallel", "16")
	m.Run()
}

// onMeshes runs body as every rank of a group, each on its own goroutine, and
// returns the ranks' errors. Groups and meshes are closed only after all bodies
// have returned.
func onMeshes(t testing.TB, meshes []transport.Mesh, cfg Config, body func(g *Group) error) []error {
	t.Helper()
	errs := make([]error, len(meshes))
	groups := make([]*Group, len(meshes))
	var wg sync.WaitGroup
	for r, m := range meshes {
		g, err := New(m, cfg)
		if err != nil {
			t.Fatal(err)
		}
		groups[r] = g
		wg.Go(func() { errs[r] = body(g) })
	}
	wg.Wait()
	for r := range meshes {
		groups[r].Close()
		meshes[r].Close()
	}
	return errs
}

// onRanks is onMeshes over memory, where every rank must succeed.
func onRanks(t testing.TB, n int, cfg Config, body func(g *Group) error) {
	t.Helper()
	for r, err := range onMeshes(t, mem.New(n), cfg, body) {
		if err != nil {
			t.Errorf("rank %d of %d: %v", r, n, err)
		}
	}
}

// operand is a value that depends on rank and place and has no exact thirds.
func operand(rank, i int) float32 { return float32((rank*31+i*7)%23) + 0.1*float32(rank+1) }

func same[T comparable](what string, got, want []T) error {
	if len(got) != len(want) {
		return fmt.Errorf("%s: %d values, want %d", what, len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			return fmt.Errorf("%s: value %d of %d is %v, want %v", what, i, len(want), got[i], want[i])
		}
	}
	return nil
}

// asOpError returns the *OpError in err, or fails.
func asOpError(t testing.TB, err error) *OpError {
	t.Helper()
	var op *OpError
	if !errors.As(err, &op) {
		t.Fatalf("want an *OpError, have %v", err)
	}
	return op
}
