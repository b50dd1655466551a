package launch

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/transport"
)

// A place of another launcher becomes ours, with where its ranks meet and what is missing told.
func TestFromOthers(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	ticket := TicketVar + "=" + transport.NewTicket().String()
	const (
		oneHost = "OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=7"
		hosts   = "OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1 PMIX_NAMESPACE=7"
		pods    = "PET_NNODES=2 PET_NODE_RANK=1 PET_MASTER_ADDR=a PET_MASTER_PORT=1"
	)
	for _, c := range []struct {
		env        string
		ranks      int
		rendezvous string
		want       string // of an error
		meet       string // of none
	}{
		{env: oneHost, meet: "meet-"},
		{env: oneHost, ranks: 2, rendezvous: "/shared/x", meet: "/shared/x"},
		{env: oneHost, ranks: 3, want: "the number of ranks is 3, but mpirun of Open MPI (OMPI_COMM_WORLD_RANK=1, OMPI_COMM_WORLD_SIZE=2"},
		{env: hosts, want: "or a new file in a folder that all hosts share"},
		{env: hosts + " RINGO_RENDEZVOUS=/shared/y", meet: "/shared/y"},
		{env: hosts + " RINGO_RENDEZVOUS=h:1", want: "RINGO_TICKET is not set, nor is RINGO_TICKET_FILE"},
		{env: hosts + " RINGO_RENDEZVOUS=h:1 " + ticket, meet: "h:1"},
		{env: hosts + " RINGO_RENDEZVOUS=h:1 RINGO_TICKET_FILE=/t", meet: "h:1"},
		{env: hosts + " RINGO_RENDEZVOUS=h:1 RINGO_TICKET_FILE=/t " + ticket, want: "RINGO_TICKET and RINGO_TICKET_FILE are both set"},
		{env: hosts + " RINGO_BIND=all RINGO_TRANSPORT=udp RINGO_RENDEZVOUS=/x", want: `RINGO_TRANSPORT="udp"`},
		{env: pods, want: "RINGO_TICKET is not set"},
		{env: pods + " " + ticket, meet: "a:1"},
		{env: pods + " PET_NPROC_PER_NODE=2 " + ticket, meet: "a:1"},
		{env: "PMIX_RANK=3 PMIX_NAMESPACE=p", rendezvous: "/x", want: "do not have the number of ranks"},
		{env: "PMIX_RANK=3 PMIX_NAMESPACE=p", rendezvous: "/x", ranks: 3, want: "is rank 3, but the job has 3 ranks"},
		{env: "PMIX_RANK=3 PMIX_NAMESPACE=p RINGO_WORLD_SIZE=4", rendezvous: "/x", meet: "/x"},
		{env: "JOB_COMPLETION_INDEX=0 RINGO_WORLD_SIZE=2", want: "JOB_COMPLETION_INDEX=0, but this host is called"},
	} {
		env, place, present, err := FromExternal(lookupIn(strings.Fields(c.env)), c.ranks, c.rendezvous)
		switch {
		case c.want != "":
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", c.env, err, c.want)
			}
		case err != nil || !present || env.Rank != place.Rank || env.WorldSize < 2 || !strings.Contains(env.Rendezvous, c.meet):
			t.Errorf("%s: %+v, %v, %v", c.env, env, present, err)
		case !filepath.IsAbs(env.Rendezvous) && env.Ticket == nil && env.TicketFile == "":
			t.Errorf("%s: no ticket", c.env)
		}
	}
	for _, env := range []string{"", "OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0", "PMIX_RANK=0"} {
		if _, _, present, err := FromExternal(lookupIn(strings.Fields(env)), 0, ""); present || err != nil {
			t.Errorf("%q: %v, %v", env, present, err)
		}
	}
}

// TestFromOthersRejectsALoneContradiction: a single variable of a job of several ranks is an error, unless the number of ranks is given.
func TestFromOthersRejectsALoneContradiction(t *testing.T) {
	for _, env := range []string{"WORLD_SIZE=2", "RANK=1", "LOCAL_RANK=1", "RINGO_WORLD_SIZE=2"} {
		_, _, present, err := FromExternal(lookupIn([]string{env}), 0, "")
		if name, _, _ := strings.Cut(env, "="); present || err == nil || !strings.HasPrefix(err.Error(), env+": ") || !strings.Contains(err.Error(), "env -u "+name) {
			t.Errorf("%s: %v, %v", env, present, err)
		}
		if _, _, _, err := FromExternal(lookupIn([]string{env}), 3, ""); err != nil {
			t.Errorf("%s with a number of ranks: %v", env, err)
		}
	}
	for _, env := range []string{"WORLD_SIZE=1", "RANK=0", "RANK=admiral", "LOCAL_RANK=0", "MASTER_ADDR=a", "RINGO_WORLD_SIZE=1"} {
		if _, _, present, err := FromExternal(lookupIn([]string{env}), 0, ""); present || err != nil {
			t.Errorf("%s: %v, %v", env, present, err)
		}
	}
}

// What is to run once is not started as several processes, and what we or nobody starts is.
func TestAlone(t *testing.T) {
	several := "OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0"
	if err := CheckSingle(lookupIn(strings.Fields(several))); !errors.As(err, new(*ExternalLauncherError)) || !strings.Contains(err.Error(), "OMPI_COMM_WORLD_SIZE=2") {
		t.Error(err)
	}
	for _, env := range []string{"", several + " RINGO_RANK=0", "OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0"} {
		if err := CheckSingle(lookupIn(strings.Fields(env))); err != nil {
			t.Errorf("%q: %v", env, err)
		}
	}
}

// Processes of one parent have one name for it, which no later process has.
func TestAncestor(t *testing.T) {
	parent := ancestor("")
	if again := ancestor("no such program"); again != parent || parent == "" {
		t.Errorf("%q and %q", parent, again)
	}
}
