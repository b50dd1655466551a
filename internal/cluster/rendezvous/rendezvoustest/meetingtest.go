// Package rendezvoustest is the test suite for implementations of rendezvous.Backend.
package rendezvoustest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/cluster/rendezvous"
)

// patience is the time for a Backend to reflect a publication or withdrawal.
const patience = 10 * time.Second

// Run runs the suite. at returns the Backend of a name, on each call as another process's view;
// waits reports whether a notice waits for an earlier notice with a possibly live process.
func Run(t *testing.T, at func(t *testing.T, name string) rendezvous.Backend, waits bool) {
	for name, test := range map[string]func(*testing.T, func(*testing.T, string) rendezvous.Backend, bool){
		"Meet": meet, "Successor": successor, "WithdrawsItsOwn": withdrawsItsOwn, "Apart": apart, "GivesUp": givesUp,
	} {
		t.Run(name, func(t *testing.T) { test(t, at, waits) })
	}
}

// meet checks that rank 0's notice is found, with or without the name, until withdrawal.
func meet(t *testing.T, at func(*testing.T, string) rendezvous.Backend, _ bool) {
	rank0, other := at(t, "a"), at(t, "a")
	if n, err := other.Lookup(t.Context(), ""); err == nil {
		t.Fatalf("found %+v before it was posted", n)
	}
	want := rendezvous.Endpoint{Job: "j 1", Address: "[::1]:2"}
	withdraw := post(t, rank0, want)
	for _, job := range []string{"j 1", ""} {
		n, err := other.Lookup(t.Context(), job)
		if want.Version = n.Version; err != nil || n != want || n.Version == 0 {
			t.Errorf("%+v, %v", n, err)
		}
	}
	if _, err := other.Lookup(t.Context(), "j 2"); err == nil || !strings.Contains(err.Error(), `has the address of another job, "j 1", not "j 2"`) {
		t.Errorf("the notice of another job: %v", err)
	}
	withdraw()
	gone(t, other)
}

// successor checks that the notice of an ended job is replaced by the next job's.
func successor(t *testing.T, at func(*testing.T, string) rendezvous.Backend, waits bool) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	withdraw, err := at(t, "b").Publish(ctx, rendezvous.Endpoint{Job: "j 1", Address: "h:1"})
	if err != nil {
		t.Fatal(err)
	}
	if waits {
		withdraw() // the Backend's own tests cover a death without withdrawal
	}
	defer post(t, at(t, "b"), rendezvous.Endpoint{Job: "j 2", Address: "h:2"})()
	if n, err := at(t, "b").Lookup(t.Context(), "j 2"); err != nil || n.Address != "h:2" {
		t.Errorf("%+v, %v", n, err)
	}
}

// withdrawsItsOwn checks that a late withdrawal leaves a newer notice in place.
func withdrawsItsOwn(t *testing.T, at func(*testing.T, string) rendezvous.Backend, waits bool) {
	first := post(t, at(t, "c"), rendezvous.Endpoint{Address: "h:1"})
	if waits {
		first()
	}
	defer post(t, at(t, "c"), rendezvous.Endpoint{Address: "h:2"})()
	first()
	if n, err := at(t, "c").Lookup(t.Context(), ""); err != nil || n.Address != "h:2" {
		t.Errorf("%+v, %v", n, err)
	}
}

func apart(t *testing.T, at func(*testing.T, string) rendezvous.Backend, _ bool) {
	one, two := post(t, at(t, "d"), rendezvous.Endpoint{Address: "h:1"}), post(t, at(t, "d2"), rendezvous.Endpoint{Address: "h:2"})
	defer two()
	if n, err := at(t, "d").Lookup(t.Context(), ""); err != nil || n.Address != "h:1" {
		t.Errorf("%+v, %v", n, err)
	}
	one()
	if n, err := at(t, "d2").Lookup(t.Context(), ""); err != nil || n.Address != "h:2" {
		t.Errorf("%+v, %v", n, err)
	}
}

func givesUp(t *testing.T, at func(*testing.T, string) rendezvous.Backend, _ bool) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if n, err := at(t, "e").Lookup(ctx, ""); err == nil {
		t.Errorf("%+v", n)
	}
}

func post(t *testing.T, at rendezvous.Backend, n rendezvous.Endpoint) (withdraw func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	withdraw, err := at.Publish(ctx, n)
	if err != nil {
		t.Fatal(err)
	}
	return withdraw
}

func gone(t *testing.T, at rendezvous.Backend) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		n, err := at.Lookup(t.Context(), "")
		if err != nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%+v is still there", n)
		}
	}
}
