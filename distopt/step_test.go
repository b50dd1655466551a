package distopt

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/transport"
)

// A rank that leaves in mid-step gives the others an error with step and
// bucket, and nobody hangs.
func TestLostPeer(t *testing.T) {
	for _, s := range []Strategy{FP32, Int8, LAGS} {
		t.Run(string(s), func(t *testing.T) { losePeer(t, s) })
	}
}

func losePeer(t *testing.T, s Strategy) {
	layers := toy()
	n := total(layers)
	var before sync.WaitGroup // the others' steps before the fault
	before.Add(2)
	errs := ranks(t, 3, func(g *collective.Group) error {
		grads := make([]float32, n)
		sgd := testSGD
		o, err := New(g, &sgd, layers, make([]float32, n), grads, nil, Config{Strategy: s, Plan: PlanPerLayer})
		if err != nil {
			return err
		}
		for step := range 3 {
			if step == 2 && g.Rank() == 1 {
				before.Wait()
				return &transport.LostError{Rank: 1, Reason: "pulled the plug"}
			}
			backward(o, grads, step, g.Rank(), 1, []int{0, 1, 2, 3, 4, 5, 6})
			if err := o.Step(); err != nil {
				return err
			}
			if step == 1 && g.Rank() != 1 {
				before.Done()
			}
		}
		return nil
	})
	for _, rank := range []int{0, 2} {
		var e *Error
		var lost *transport.LostError
		if !errors.As(errs[rank], &e) || e.Step != 2 || e.Buckets != len(layers) {
			t.Errorf("rank %d: %v, want step 2 of a plan of %d buckets", rank, errs[rank], len(layers))
		}
		if e != nil && (e.First != layers[e.Bucket].Name || e.Last != e.First || !strings.Contains(e.Error(), fmt.Sprintf("step 2, bucket %d (%s): ", e.Bucket, e.First))) {
			t.Errorf("rank %d does not name the bucket's layer: %+v: %v", rank, e, e)
		}
		if !errors.As(errs[rank], &lost) || lost.Rank != 1 {
			t.Errorf("rank %d: %v does not name rank 1", rank, errs[rank])
		}
	}
}

// Exposed counts from the end of backward: what backward hid is not in it, nor
// what the update takes after the last agreement.
func TestExposed(t *testing.T) {
	layers := toy()
	n := total(layers)
	for _, c := range []struct {
		late int              // who begins 3 s later
		more time.Duration    // that rank 0's backward takes after its last gradient
		want [2]time.Duration // by rank; rank 1's is 2 s in the third case if exchanges wait until rank 0 has ended backward
	}{
		{1, 0, [2]time.Duration{3 * time.Second, 0}},
		{1, time.Second, [2]time.Duration{2 * time.Second, 0}},
		{1, 5 * time.Second, [2]time.Duration{}},
		{0, 0, [2]time.Duration{0, 3 * time.Second}},
	} {
		synctest.Test(t, func(t *testing.T) {
			for _, err := range ranks(t, 2, func(g *collective.Group) error {
				sgd := testSGD
				o, err := New(g, &sgd, layers, make([]float32, n), make([]float32, n), nil, Config{})
				if err != nil {
					return err
				}
				if g.Rank() == c.late {
					time.Sleep(3 * time.Second)
				}
				for l := range layers {
					o.GradReady(l)
				}
				if g.Rank() == 0 {
					time.Sleep(c.more)
				}
				if err := o.Step(); err != nil {
					return err
				}
				if want := c.want[g.Rank()]; o.Exposed() != want {
					return fmt.Errorf("rank %d of rank %d late, backward %v longer: %v exposed, want %v", g.Rank(), c.late, c.more, o.Exposed(), want)
				}
				return nil
			}) {
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
}
