package main

import (
	"slices"
	"testing"
)

// The environment says which process of a job one is.
func TestPlaced(t *testing.T) {
	for _, c := range []struct {
		vars []string
		want process
	}{
		{nil, process{}},
		{[]string{"RINGO_RANK=1", "RINGO_WORLD_SIZE=2"}, process{Role: "rank", Number: 1}},
		{[]string{"RINGO_RANK=3", "RINGO_WORLD_SIZE=2", "RINGO_SERVERS=2", "RINGO_ROLE=server"}, process{Role: "server", Number: 1}},
		{[]string{"RINGO_PS_INDEX=1", "RINGO_WORLD_SIZE=2"}, process{Role: "server", Number: 1}},
	} {
		if got := placed(0, 0, c.vars); got != c.want {
			t.Errorf("%v is %+v, want %+v", c.vars, got, c.want)
		}
	}
}

func TestListeningPort(t *testing.T) {
	const text = "   0: 0100007F:1F9A 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12345 1 0000 100 0 0 10 0"
	if got := listeningPort(text, map[string]bool{"12345": true}); got != 8090 {
		t.Errorf("port %d, want 8090", got)
	}
	if got := listeningPort(text, map[string]bool{"5": true}); got != 0 {
		t.Errorf("a socket of another process: port %d", got)
	}
}

// All processes of a job are found, and no other's.
func TestProcesses(t *testing.T) {
	s := &setup{Ringo: "/bin/sh"}
	j, err := s.start(t.TempDir(), []string{"-c", "RINGO_RANK=0 RINGO_WORLD_SIZE=1 sleep 60 & wait"})
	if err != nil {
		t.Fatal(err)
	}
	defer j.end()
	roles := func() (out []string) {
		for _, p := range j.processes() {
			out = append(out, p.Role)
		}
		slices.Sort(out)
		return out
	}
	if !j.await(startLimit, func() bool { return slices.Equal(roles(), []string{"", "rank"}) }) {
		t.Errorf("roles %q, want the shell and a rank", roles())
	}
	e := j.finish(0)
	if !e.Overran || e.Status != -1 || len(e.Leaked) != 2 || len(j.processes()) != 0 {
		t.Errorf("%+v, want a job that had to be killed, with two processes", e)
	}
}
