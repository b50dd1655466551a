package tcp

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/transport"
)

// configs returns the configurations of a mesh of n ranks on loopback.
func configs(t testing.TB, n int) []Config {
	t.Helper()
	ticket := transport.NewTicket()
	out := make([]Config, n)
	addrs := make([]string, n)
	for r := range out {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		addrs[r] = l.Addr().String()
		out[r] = Config{Rank: r, Size: n, Ticket: ticket, Version: "test", Listener: l, Addrs: addrs, JoinTimeout: patience}
	}
	return out
}

// join forms a mesh of what the configurations describe.
func join(cfgs []Config) ([]*Mesh, []error) {
	meshes, errs := make([]*Mesh, len(cfgs)), make([]error, len(cfgs))
	var all sync.WaitGroup
	for i, c := range cfgs {
		all.Go(func() { meshes[i], errs[i] = New(context.Background(), c) })
	}
	all.Wait()
	return meshes, errs
}

// form returns a mesh of n ranks that ends with the test.
func formed(t testing.TB, n int, change func(*Config)) []*Mesh {
	t.Helper()
	cfgs := configs(t, n)
	for i := range cfgs {
		if change != nil {
			change(&cfgs[i])
		}
	}
	meshes, errs := join(cfgs)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAll(meshes) })
	return meshes
}

func closeAll(meshes []*Mesh) {
	var all sync.WaitGroup
	for _, m := range meshes {
		if m != nil {
			all.Go(func() { m.Close() })
		}
	}
	all.Wait()
}

// Strangers of all kinds come first and stay; the mesh forms among them.
func TestFormsAmongStrangers(t *testing.T) {
	leakcheck.Check(t)
	cfgs := configs(t, 3)
	addr := cfgs[0].Addrs[0]
	var strangers []net.Conn
	for i := range 40 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			io.WriteString(c, "GET / HTTP/1.0\r\n\r\n")
		}
		strangers = append(strangers, c)
	}
	hello := transport.Hello{Version: "test", Purpose: transport.MeshLink, Rank: 1, WorldSize: 3, Streams: 1}
	intruded := make(chan error, 1)
	go func() {
		_, _, err := transport.Dial(context.Background(), addr, transport.NewTicket(), hello)
		intruded <- err
	}()
	meshes := make([]*Mesh, 3)
	errs := make([]error, 3)
	var all sync.WaitGroup
	all.Go(func() { meshes[0], errs[0] = New(context.Background(), cfgs[0]) })
	if err := <-intruded; !errors.Is(err, transport.ErrTicket) {
		t.Errorf("the intruder got %v", err)
	}
	for r := 1; r < 3; r++ {
		all.Go(func() { meshes[r], errs[r] = New(context.Background(), cfgs[r]) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	closeAll(meshes)
	for _, c := range strangers {
		c.Close()
	}
}

// Whoever holds the ticket but comes twice, or from another job, is told so.
func TestWrongHellos(t *testing.T) {
	leakcheck.Check(t)
	cfgs := configs(t, 3)
	ctx, cancel := context.WithCancel(context.Background())
	failed := make(chan error, 1)
	go func() {
		_, err := New(ctx, cfgs[0])
		failed <- err
	}()
	dial := func(rank, size int, purpose transport.Purpose) (*transport.Link, error) {
		l, _, err := transport.Dial(context.Background(), cfgs[0].Addrs[0], cfgs[0].Ticket,
			transport.Hello{Version: "test", Purpose: purpose, Rank: rank, WorldSize: size, Streams: 1})
		return l, err
	}
	first, err := dial(1, 3, transport.MeshLink)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	for _, c := range []struct {
		rank, size int
		purpose    transport.Purpose
		say        string
	}{
		{1, 3, transport.MeshLink, "rank 1 is already connected"},
		{2, 4, transport.MeshLink, "has 3 ranks, not 4"},
		{0, 3, transport.MeshLink, "not rank 0"},
		{3, 3, transport.MeshLink, "not rank 3"},
		{2, 3, transport.Control, "this is a mesh port"},
	} {
		if _, err := dial(c.rank, c.size, c.purpose); !errors.Is(err, transport.ErrRefused) || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%+v: got %v", c, err)
		}
	}
	time.Sleep(500 * time.Millisecond) // rank 1's connection stands at this end, too
	cancel()
	var missing *MissingError
	if err := <-failed; !errors.As(err, &missing) || len(missing.Missing) != 1 || missing.Missing[0] != 2 ||
		!errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "5 connections were turned away") {
		t.Errorf("got %v", err)
	}
}

func TestMissingRanksAreNamed(t *testing.T) {
	leakcheck.Check(t)
	cfgs := configs(t, 4)
	for i := range cfgs {
		cfgs[i].JoinTimeout = 3 * time.Second // in which the others connect
	}
	cfgs[1].Listener.Close() // rank 1 is dead, rank 3 late
	_, errs := join([]Config{cfgs[0], cfgs[2]})
	for i, want := range []string{"no connection with rank 1, 3 of 4", "no connection with rank 1, 3 of 4"} {
		if !errors.Is(errs[i], transport.ErrTimeout) || !strings.Contains(errs[i].Error(), want) {
			t.Errorf("got %v", errs[i])
		}
	}
	if !strings.Contains(errs[1].Error(), "refused") {
		t.Errorf("the reason for rank 1 is not in %v", errs[1])
	}
}

// A refusal is final: nobody waits for the timeout.
func TestAnotherVersionFailsAtOnce(t *testing.T) {
	leakcheck.Check(t)
	cfgs := configs(t, 2)
	cfgs[1].Version = "other"
	cfgs[0].JoinTimeout = 2 * time.Second // in which rank 1 comes and is refused
	_, errs := join(cfgs)
	for i, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "ringo test") || !strings.Contains(err.Error(), "ringo other") {
			t.Errorf("rank %d: got %v", i, err)
		}
	}
	if !errors.Is(errs[1], transport.ErrVersion) {
		t.Errorf("got %v", errs[1])
	}
}

func TestLateRanksAreWaitedFor(t *testing.T) {
	leakcheck.Check(t)
	cfgs := configs(t, 2)
	addr := cfgs[0].Addrs[0]
	cfgs[0].Listener.Close()
	var late *Mesh
	var all sync.WaitGroup
	all.Go(func() {
		m, err := New(context.Background(), cfgs[1])
		if err != nil {
			t.Error(err)
			return
		}
		late = m
	})
	time.Sleep(30 * time.Millisecond)
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Skip("the port was taken meanwhile: ", err)
	}
	cfgs[0].Listener = l
	m, err := New(context.Background(), cfgs[0])
	if err != nil {
		t.Fatal(err)
	}
	all.Wait()
	closeAll([]*Mesh{m, late})
}

func TestValidate(t *testing.T) {
	err := Config{Rank: 5, Size: 3, MaxUnexpectedBytes: -1, JoinTimeout: -1, LocalRanks: 4, Streams: 17, CongestionControl: "no such"}.Validate()
	for _, want := range []string{"Rank 5", "MaxUnexpectedBytes -1", "JoinTimeout", "Ticket", "Version", "LocalRanks 4", "Streams 17", `CongestionControl "no such"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in %v", want, err)
		}
	}
	if err := (Config{Size: 1}).Validate(); err != nil {
		t.Errorf("a mesh of one needs nothing: %v", err)
	}
	if m, err := New(context.Background(), Config{Size: 1}); err != nil || m.Close() != nil {
		t.Errorf("a mesh of one: %v", err)
	}
}

// A rank that cannot use one of its connections gives up all of them, so that the
// others do not wait for it.
func TestNothingIsLeftOfAMeshThatCannotBeMade(t *testing.T) {
	leakcheck.Check(t)
	cfgs := configs(t, 3)
	refused := errors.New("out of descriptors")
	opened := 0
	for r := range cfgs {
		cfgs[r].Streams = 2
	}
	cfgs[2].open = func(conn *net.TCPConn) (socket, error) {
		if opened++; opened == 4 {
			return nil, refused
		}
		return openSocket(conn)
	}
	meshes, errs := join(cfgs)
	if !errors.Is(errs[2], refused) || !strings.Contains(errs[2].Error(), "rank 2: the connection with rank 1") {
		t.Errorf("rank 2: %v", errs[2])
	}
	for r := range 2 {
		if errs[r] != nil {
			t.Fatal(errs[r])
		}
		_, err := receive(meshes[r], 2, transport.Tag{}, 1)
		var lost *transport.LostError
		if !errors.As(err, &lost) || lost.Rank != 2 {
			t.Errorf("rank %d: %v", r, err)
		}
	}
	closeAll(meshes)
}
