package dnstest

import (
	"errors"
	"net"
	"testing"
)

// A name is unknown first, and then this host's.
func TestServer(t *testing.T) {
	s, err := Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var dns *net.DNSError
	if _, err := Resolver(s.Address()).LookupHost(t.Context(), "job-0.workers"); !errors.As(err, &dns) || !dns.IsNotFound {
		t.Error(err)
	}
	s.Know()
	if got, err := Resolver(s.Address()).LookupHost(t.Context(), "job-0.workers"); err != nil || len(got) != 1 || got[0] != "127.0.0.1" {
		t.Error(got, err)
	}
	for n := range 17 { // what is cut is no question
		if answer(make([]byte, n, 20), true) != nil && n < 17 {
			t.Errorf("%d bytes", n)
		}
	}
}
