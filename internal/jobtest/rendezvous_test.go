package jobtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/cluster/rendezvous"
	"github.com/ringo-ml/ringo/internal/freeport"
	"github.com/ringo-ml/ringo/internal/launch"
)

// byFile places n ranks that meet at a file.
func byFile(path string, n int) []ringo.Config {
	cfgs := make([]ringo.Config, n)
	for r := range cfgs {
		cfgs[r] = ringo.Config{Size: n, Rank: r, Rendezvous: path, Times: cluster.Times{Join: patience}}
	}
	return cfgs
}

// Ranks meet at a file, with a ticket or without, whatever an earlier job has left there, know their number on the host, and leave
// nothing behind.
func TestMeetByFile(t *testing.T) {
	t.Setenv(launch.TicketVar, "")
	ticket := filepath.Join(t.TempDir(), "ticket")
	if err := rendezvous.NewTicket(ticket); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"", ticket} {
		path := filepath.Join(t.TempDir(), "meet")
		if _, err := rendezvous.File(path).Publish(t.Context(), rendezvous.Endpoint{Address: freeport.Address(t), Ticket: strings.Repeat("ab", 32)}); err != nil {
			t.Fatal(err)
		}
		cfgs := byFile(path, 3)
		for i := range cfgs {
			cfgs[i].TicketFile = file
		}
		errs := runAll(t, cfgs, func(job *ringo.Job) error {
			if job.LocalRank() != job.Rank() {
				return fmt.Errorf("rank %d is number %d of its host", job.Rank(), job.LocalRank())
			}
			return exchange(job)
		})
		if err := errors.Join(errs...); err != nil {
			t.Errorf("ticket %q: %v", file, err)
		}
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the notice is left: %v", err)
		}
	}
}

// TestJobsOfTheSameVariablesMeetApart: jobs that are started together and name the same file each
// have ranks of their own.
func TestJobsOfTheSameVariablesMeetApart(t *testing.T) {
	t.Setenv(launch.TicketVar, "")
	path := filepath.Join(t.TempDir(), "meet")
	const jobs, ranks = 3, 2
	var all []ringo.Config
	for range jobs {
		all = append(all, byFile(path, ranks)...)
	}
	var mu sync.Mutex
	met, number := map[float32]int{}, float32(0) // ranks by the number that rank 0 has given the job
	errs := runAll(t, all, func(job *ringo.Job) error {
		x := []float32{0}
		mu.Lock()
		if job.Rank() == 0 {
			number++
			x[0] = number
		}
		mu.Unlock()
		if err := collective.AllReduce(job.Group(), x, collective.Sum); err != nil {
			return err
		}
		mu.Lock()
		met[x[0]]++
		mu.Unlock()
		return exchange(job)
	})
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	if len(met) != jobs {
		t.Errorf("ranks by job: %v, want %d jobs of %d ranks", met, jobs, ranks)
	}
}

// A rank that cannot meet the others says what is in the way.
func TestCannotMeetByFile(t *testing.T) {
	t.Setenv(launch.TicketVar, "")
	dir := t.TempDir()
	open := filepath.Join(dir, "open")
	if err := errors.Join(os.WriteFile(open, []byte("{}"), 0o600), os.Chmod(open, 0o644)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		rank         int
		path, ticket string
		want         string
	}{
		"nobody posts":       {1, filepath.Join(dir, "none"), "", "the file does not exist"},
		"readable by others": {1, open, "", "others may read it"},
		"no folder":          {0, filepath.Join(dir, "a", "b"), "", "rank 0 cannot publish its address"},
		"no ticket":          {0, filepath.Join(dir, "c"), filepath.Join(dir, "none"), "ticket: "},
		"an open ticket":     {0, filepath.Join(dir, "c"), open, "others may read it"},
		"no address":         {1, "here", "", "want HOST:PORT with a port from 1 to 65535, where rank 0 listens, or the absolute path of a file"},
	} {
		cfg := ringo.Config{Size: 2, Rank: c.rank, Rendezvous: c.path, TicketFile: c.ticket, Times: cluster.Times{Join: 50 * time.Millisecond}}
		_, err := ringo.Join(t.Context(), cfg)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if _, err := ringo.Join(t.Context(), ringo.Config{TicketFile: open}); err == nil || !strings.Contains(err.Error(), "is for a rank started by hand") {
		t.Error(err)
	}
}

// A program that another launcher has started joins by that one's variables, and tells so on rank 0.
func TestJoinByAnotherLauncher(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for name, value := range map[string]string{
		"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
		"PMIX_NAMESPACE": "12.1", launch.TicketVar: "", launch.RankVar: "",
	} {
		t.Setenv(name, value)
	}
	os.Unsetenv(launch.RankVar)
	_, place, _, err := launch.FromExternal(os.LookupEnv, 0, "")
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	cfgs := []ringo.Config{{Report: func(line string) { told = append(told, line) }}, {Size: 2, Rank: 1}}
	env, _, _, _ := launch.FromExternal(os.LookupEnv, 0, "")
	cfgs[1].Rendezvous = env.Rendezvous // its variables would be another process's
	if err := errors.Join(runAll(t, cfgs, exchange)...); err != nil {
		t.Error(err)
	}
	if want := "2 ranks placed by " + place.String(); len(told) == 0 || told[0] != want {
		t.Errorf("told %q, want %q first", told, want)
	}
}
