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

// ExternalLauncherError means that another launcher runs several copies of a single-copy program.
type ExternalLauncherError struct {
	Place extenv.Assignment
}

// Error describes the problem and the programs that such launchers can start.
func (e *ExternalLauncherError) Error() string {
	return fmt.Sprintf("%s has started this as one of several processes, %v, but this command must run once, without %[1]s. Only `ringo train`, `ringo predict` and your own programs read their rank from its variables: start these with it",
		e.Place.Launcher, e.Place.Used)
}

// CheckSingle returns an *ExternalLauncherError, or nil for one copy. lookup is like os.LookupEnv.
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

// FromExternal returns the place assigned to this process by another launcher (package extenv) if
// RINGO_RANK is not set. present is false without an assignment. ranks is the user's world size, or
// 0, and rendezvous the user's, or "". RINGO_WORLD_SIZE and RINGO_RENDEZVOUS set both as well.
//
// Without an address, and with all ranks on this host, the Rendezvous is a file of the user.
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
	env.Algorithm, _ = lookup(AlgorithmVar)
	if ranks == 0 {
		if v, _ := lookup(WorldSizeVar); v != "" {
			ranks = r.number(WorldSizeVar, 1)
		}
	}
	switch {
	case env.WorldSize == 0 && ranks == 0:
		r.fail("%v do not have the number of ranks: give it to all ranks, --np N or %s=N; or, if this process is a whole job, remove the variables (env -u NAME)", place, WorldSizeVar)
	case env.WorldSize == 0 && place.Rank >= ranks:
		r.fail("%v is rank %d, but the job has %d ranks", place, place.Rank, ranks)
	case env.WorldSize == 0:
		env.WorldSize = ranks
	case ranks > 0 && ranks != env.WorldSize:
		r.fail("the number of ranks is %d, but %v has started %d: remove the number", ranks, place, env.WorldSize)
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

// checkAlone reports a variable that contradicts a job of one rank, because launchers set it only
// in larger jobs. An unrelated value of a common name, such as RANK=admiral, is ignored.
func checkAlone(lookup func(string) (string, bool)) error {
	for _, v := range []struct {
		name string
		one  int // maximum value in a job of one rank
	}{{WorldSizeVar, 1}, {"WORLD_SIZE", 1}, {"RANK", 0}, {"LOCAL_RANK", 0}} {
		text, _ := lookup(v.name)
		if n, err := strconv.Atoi(text); err == nil && n > v.one {
			return fmt.Errorf("%s=%s: no other variable places this process, which would be a job of one rank: set the other variables of its launcher, or remove this one (env -u %s)",
				v.name, text, v.name)
		}
	}
	return nil
}

// SeveralRanksError means that a process must start several ranks and is not itself a rank.
type SeveralRanksError struct {
	Place extenv.Assignment
}

// Error names the command that starts several ranks.
func (e *SeveralRanksError) Error() string {
	return fmt.Sprintf("%v is %d, but a process of your program is one rank: `ringo run -- PROGRAM` starts all ranks", e.Place, e.Place.Each)
}

// meetingPoint returns the rendezvous of a place: a file on this host, or an address.
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
		return "", fmt.Errorf("%v: this pod has no DNS name for other pods: set subdomain in the pod's template to a headless Service, or give the address of rank 0, --rendezvous HOST:PORT or %s; or, if each pod is a whole job, remove the variable: env -u JOB_COMPLETION_INDEX", p, RendezvousVar)
	}
	return "", fmt.Errorf("%v do not have the address of rank 0, and the ranks are on several hosts: give rank 0's HOST:PORT, or a new file in a folder that all hosts share, with --rendezvous /FOLDER/NAME or %s", p, RendezvousVar)
}

const maxHosts = 1 << 20

// thisHost collects the host's properties that assignments depend on.
func thisHost(lookup func(string) (string, bool)) extenv.Host {
	h := extenv.Host{Lookup: lookup}
	h.Hostname, _ = os.Hostname()
	text, _ := pathname.Read("/etc/hosts", maxHosts) // an unreadable file means no names
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		if words := strings.Fields(line); len(words) > 1 {
			h.Names = append(h.Names, words[1:]...)
		}
	}
	return h
}

// ancestor identifies the nearest ancestor of this process that runs program, or else the parent,
// by number and start time, so that no other process of this host ever gets the same identifier.
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

// ancestry reads a process's name, parent and start time. Parent 0 means unknown.
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
