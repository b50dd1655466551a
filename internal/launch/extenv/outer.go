// Package extenv reads a process's place in its job from the variables of other launchers:
// torchrun, the mpirun of Open MPI and of MPICH, Slurm's srun, Kubernetes (Kubeflow Trainer,
// indexed Jobs, JobSets), Volcano and Paddle.
//
// Launchers start each other: a pod runs torchrun, an allocation of Slurm mpirun, and a process sees the variables of
// both. The innermost one, which has started this process, is followed. Variables of one launcher that are missing or
// contradict each other are an error that names them: a process that guessed would train by itself.
//
// Find is a pure function of what it is given.
package extenv

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// Assignment is a process's place in its job, as a launcher says it.
type Assignment struct {
	// Launcher is its name: "torchrun", "mpirun of Open MPI".
	Launcher string
	// Used are the variables that say so, NAME=value, in the order in which they were read.
	Used []string
	// Rank is the process's, from 0. Where Each is above 1, it is that of the first rank which the process is to start.
	Rank int
	// Size is the number of ranks; 0: the launcher does not say.
	Size int
	// LocalRank is the number among the LocalSize ranks of this host. LocalSize is 0 where the launcher does not say.
	LocalRank, LocalSize int
	// Each is how many ranks the process stands for: 1, or more where it is to start them.
	Each int
	// Address is where rank 0 is to listen, HOST:PORT, a name of its host that others resolve; "": nothing says.
	Address string
	// Job is a name that this start of the job has, and no other one on these hosts; "": the launcher gives none.
	Job   string
	inner bool // it is known to have started this process itself, whatever others say
	// Parent is the name of a process of which all ranks of this host are descendants, where Job is "".
	Parent string
}

// OneHost says that all ranks are known to be on one host.
func (p Assignment) OneHost() bool { return p.Size > 0 && p.LocalSize == p.Size }

// String says in one line who has placed the process, by which variables.
func (p Assignment) String() string {
	return fmt.Sprintf("%s (%s)", p.Launcher, strings.Join(p.Used, ", "))
}

// Host is what a place depends on beside variables.
type Host struct {
	// Lookup is like os.LookupEnv.
	Lookup func(name string) (value string, there bool)
	// Hostname is this host's own name; in a pod of an indexed Job its last part is the index.
	Hostname string
	// Names are those that the host's own file of names (/etc/hosts) has, in its order.
	Names []string
}

// launchers are those that are known, inner ones first. Each returns whether it has started this process.
var launchers = []func(r *reader) (Assignment, bool){
	torchrun,
	mpi,
	paddle,
	slurm,
	pmix,
	trainer,
	volcano,
	indexed,
}

// Find returns the place of a process that another launcher has started. found is false where none has, or none that
// starts more than one. The error names every variable that is missing, no number, or at odds with another one of the
// same launcher, and two launchers of which one has started a single process and the other several: which of them is the inner one nothing
// says. place then holds what could be read.
func Find(h Host) (place Assignment, found bool, err error) {
	var one *Assignment // of a launcher that has started one process
	for _, read := range launchers {
		r := &reader{host: h}
		place, found := read(r)
		if !found || one != nil && place.Size <= 1 {
			continue
		}
		if one != nil {
			r.fail("%v has started one process, and this one is one of %d: if that is the inner one, remove the variables of %s (env -u NAME), else its own", *one, place.Size, place.Launcher)
		}
		place.Used, place.Each = r.used, max(place.Each, 1)
		if place.Size > 0 && len(r.errs) == 0 && place.Rank >= place.Size {
			r.fail("rank %d of %d: want less", place.Rank, place.Size)
		}
		if len(r.errs) > 0 {
			return place, true, fmt.Errorf("%s has started this process, but its variables do not place it: %w", place.Launcher, errors.Join(r.errs...))
		}
		if place.Size != 1 {
			return place, true, nil
		}
		if place.inner {
			return place, false, nil
		}
		one = &place
	}
	return Assignment{}, false, nil
}

// reader reads variables and collects what is wrong with them.
type reader struct {
	host Host
	used []string
	errs []error
}

func (r *reader) fail(format string, args ...any) {
	r.errs = append(r.errs, fmt.Errorf(format, args...))
}

// has says whether a variable is there, and not empty.
func (r *reader) has(name string) bool {
	v, _ := r.host.Lookup(name)
	return v != ""
}

// any says whether one of some variables is there.
func (r *reader) any(names ...string) bool {
	for _, n := range names {
		if r.has(n) {
			return true
		}
	}
	return false
}

// text returns a variable that must be there.
func (r *reader) text(name string) string {
	v, _ := r.host.Lookup(name)
	if v == "" {
		r.fail("%s is not set", name)
		return ""
	}
	r.used = append(r.used, name+"="+v)
	return v
}

// optional returns a variable that may be missing.
func (r *reader) optional(name string) string {
	if !r.has(name) {
		return ""
	}
	return r.text(name)
}

// number returns a variable that must be there, and a number of at least least.
func (r *reader) number(name string, least int) int {
	v := r.text(name)
	if v == "" {
		return least
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < least || n > maxNumber {
		r.fail("%s=%q: want a number from %d on", name, v, least)
		return least
	}
	return n
}

// maxNumber bounds every number: no job has so many ranks.
const maxNumber = 1 << 20

// same reports variables of which two say the same thing otherwise.
func (r *reader) same(name, value, other, otherValue string) {
	if value != otherValue {
		r.fail("%s is %s, but %s is %s", name, value, other, otherValue)
	}
}

// address is HOST:PORT of two variables that must be there.
func (r *reader) address(host, port string, add int) string {
	h := r.text(host)
	p := r.number(port, 1) + add
	if h == "" || p > 65535 {
		if h != "" {
			r.fail("%s: no port of a host, with what is added to it", port)
		}
		return ""
	}
	return net.JoinHostPort(h, strconv.Itoa(p))
}

// local reads a rank's number on its host and how many are there.
func (r *reader) local(rank, size string, p *Assignment) {
	if !r.any(rank, size) {
		return
	}
	p.LocalRank, p.LocalSize = r.number(rank, 0), r.number(size, 1)
	if p.LocalRank >= p.LocalSize || p.LocalSize > p.Size && p.Size > 0 {
		r.fail("%s is %d and %s %d, of %d ranks in all: want the first below the second, and that not above the third", rank, p.LocalRank, size, p.LocalSize, p.Size)
	}
}
