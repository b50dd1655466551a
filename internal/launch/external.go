package launch

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/internal/cluster/rendezvous"
	"github.com/ringo-ml/ringo/internal/launch/extenv"
	"github.com/ringo-ml/ringo/internal/pathname"
)

// ExternalLauncherError says that another launcher has started a program as several processes,
// which is to run once.
type ExternalLauncherError struct {
	Place extenv.Assignment
}

// Error says what is wrong, and what such launchers can start.
func (e *ExternalLauncherError) Error() string {
	return fmt.Sprintf("%s has started this as one of several processes, %v, but it is to run once, without that. Training, prediction and programs of your own find their place by its variables: start them by it directly",
		e.Place.Launcher, e.Place.Used)
}

// CheckSingle reports, as an *ExternalLauncherError, that another launcher has started this program
// more than once. lookup is like os.LookupEnv.
func CheckSingle(lookup func(string) (string, bool)) error {
	if _, ours := lookup(RankVar); ours {
		return nil
	}
	place, found, err := extenv.Find(thisHost(lookup))
	if found && err == nil && place.Each == 1 && place.Size > 1 {
		return &ExternalLauncherError{Place: place}
	}
	return nil
}

// FromExternal returns the place that another launcher has given this process (package extenv),
// which RINGO_RANK does not place. present is false where none has. ranks is how many there are by
// what a person says, 0: nothing, and rendezvous where they meet, empty likewise. RINGO_WORLD_SIZE
// and RINGO_RENDEZVOUS say so, too.
//
// Where nothing tells an address, and all ranks are on this host, the env's Rendezvous is a file of this user's.
func FromExternal(lookup func(string) (string, bool), ranks int, rendezvous string) (env RankEnv, place extenv.Assignment, present bool, err error) {
	place, found, err := extenv.Find(thisHost(lookup))
	if !found && err == nil && ranks == 0 {
		err = checkAlone(lookup)
	}
	if !found || err != nil {
		return env, place, false, err
	}
	r := envReader{lookup: lookup, because: place.Launcher}
	env = RankEnv{Rank: place.Rank, WorldSize: place.Size, LocalRank: place.LocalRank, Job: place.Job, OneHost: place.OneHost(), Bind: r.bind(), Threads: ThreadsFromEnv(lookup)}
	env.Metrics, _ = lookup(MetricsVar)
	env.Transport = r.transport()
	if ranks == 0 {
		if v, _ := lookup(WorldSizeVar); v != "" {
			ranks = r.number(WorldSizeVar, 1)
		}
	}
	switch {
	case env.WorldSize == 0 && ranks == 0:
		r.fail("%v does not say how many ranks there are: give all of them the number, --np N or %s=N; or, if this process is a job by itself, remove the variables (env -u NAME)", place, WorldSizeVar)
	case env.WorldSize == 0 && place.Rank >= ranks:
		r.fail("%v is rank %d, but there are to be %d", place, place.Rank, ranks)
	case env.WorldSize == 0:
		env.WorldSize = ranks
	case ranks > 0 && ranks != env.WorldSize:
		r.fail("there are to be %d ranks, but %v has started %d: leave the number out", ranks, place, env.WorldSize)
	}
	if env.Rendezvous = rendezvous; rendezvous == "" {
		env.Rendezvous, _ = lookup(RendezvousVar)
	}
	if env.Rendezvous == "" && len(r.errs) == 0 {
		if env.Rendezvous, err = meetingPoint(place); err != nil {
			r.errs = append(r.errs, err)
		}
	}
	r.secret(&env)
	return env, place, true, errors.Join(r.errs...)
}

// checkAlone reports a variable that contradicts a job of one rank, because no launcher sets it without others. A common name with
// another value, such as RANK=admiral, is ignored.
func checkAlone(lookup func(string) (string, bool)) error {
	for _, v := range []struct {
		name string
		one  int // its greatest value in a job of one rank
	}{{WorldSizeVar, 1}, {"WORLD_SIZE", 1}, {"RANK", 0}, {"LOCAL_RANK", 0}} {
		text, _ := lookup(v.name)
		if n, err := strconv.Atoi(text); err == nil && n > v.one {
			return fmt.Errorf("%s=%s: no other variable places this process, which would be a job of one rank: set the other variables of its launcher, or remove this one (env -u %s)",
				v.name, text, v.name)
		}
	}
	return nil
}

// SeveralRanksError says that a process is to start several ranks, and is none itself.
type SeveralRanksError struct {
	Place extenv.Assignment
}

// Error says what starts them.
func (e *SeveralRanksError) Error() string {
	return fmt.Sprintf("%v wants %d ranks started by this process: `ringo run -- PROGRAM` starts a program as so many", e.Place, e.Place.Each)
}

// meetingPoint is where the ranks of a place meet: a file of this host, or an address.
func meetingPoint(p extenv.Assignment) (string, error) {
	switch {
	case p.OneHost():
		name := p.Job
		if name == "" {
			name = fmt.Sprint(p.Launcher, " ", ancestor(p.Parent))
		}
		return rendezvous.Private(fmt.Sprintf("meet-%x", sha256.Sum256([]byte(name)))[:len("meet-")+24])
	case p.Address != "":
		return p.Address, nil
	case strings.Contains(p.Launcher, "Kubernetes"):
		return "", fmt.Errorf("%v: this pod has no name that other pods find: set subdomain in the pod's template to a headless Service, or say where rank 0 listens, --rendezvous HOST:PORT or %s; or, if each pod is a job by itself, remove the variable: env -u JOB_COMPLETION_INDEX", p, RendezvousVar)
	}
	return "", fmt.Errorf("%v does not say where rank 0 is, and not all ranks are on one host: name a file that does not exist yet, on a folder that all hosts have, --rendezvous /FOLDER/NAME or %s, or rank 0's HOST:PORT", p, RendezvousVar)
}

// maxHosts bounds the file of names that is read, in bytes.
const maxHosts = 1 << 20

// thisHost is what places depend on.
func thisHost(lookup func(string) (string, bool)) extenv.Host {
	h := extenv.Host{Lookup: lookup}
	h.Hostname, _ = os.Hostname()
	text, _ := pathname.Read("/etc/hosts", maxHosts) // none: no names
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		if words := strings.Fields(line); len(words) > 1 {
			h.Names = append(h.Names, words[1:]...)
		}
	}
	return h
}

// ancestor names the nearest ancestor of this process whose program has a name, or its parent where none has, so that no other process
// of this host ever has the same: by its number and the time of its start.
func ancestor(program string) string {
	parent := ""
	for pid := os.Getppid(); pid > 1; {
		comm, above, start := ancestry(pid)
		who := fmt.Sprintf("%d %s", pid, start)
		if parent == "" {
			parent = who
		}
		if comm == program {
			return who
		}
		pid = above
	}
	return parent
}

// ancestry reads a process's name, parent and time of start, 0 for a parent that is not known.
func ancestry(pid int) (comm string, parent int, start string) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(text), "(")
	end := strings.LastIndexByte(rest, ')')
	if end < 0 {
		return "", 0, ""
	}
	fields := strings.Fields(rest[end+1:])
	if len(fields) < 20 {
		return "", 0, ""
	}
	parent, _ = strconv.Atoi(fields[1])
	return rest[:end], parent, fields[19]
}
