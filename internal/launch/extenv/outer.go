// Package extenv reads a process's place in its job from the variables of other launchers:
// torchrun, the mpirun of Open MPI and of MPICH, Slurm's srun, Kubernetes (Kubeflow Trainer,
// indexed Jobs, JobSets), Volcano and Paddle.
//
// Launchers can be nested: a pod runs torchrun, or a Slurm allocation mpirun, and the process has
// the variables of both. Find uses the innermost launcher: it has started this process. Missing or
// contradictory variables of a launcher are an error that names the variables, because a guessed
// place could train a separate single-rank job.
//
// Find depends only on its argument.
package extenv

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// Assignment is a process's place in its job, as set by a launcher.
type Assignment struct {
	// Launcher is the launcher's name: "torchrun", "mpirun of Open MPI".
	Launcher string
	// Used are the variables of the place, NAME=value, in reading order.
	Used []string
	// Rank is the process's rank, from 0, or the first of Each ranks that the process must start.
	Rank int
	// Size is the world size; 0 means unknown.
	Size int
	// LocalRank is the number among the LocalSize ranks of this host. LocalSize 0 means unknown.
	LocalRank, LocalSize int
	// Each is the number of ranks of the process: 1, or more if the process must start ranks.
	Each int
	// Address is rank 0's listen address, HOST:PORT, resolvable on other hosts; "" means unknown.
	Address string
	// Job is a name of this start of the job, unique on its hosts; "" means unknown.
	Job   string
	inner bool // known to be the innermost launcher
	// Parent is the name of a common ancestor process of all ranks of this host, if Job is "".
	Parent string
}

// OneHost reports whether all ranks are known to be on one host.
func (p Assignment) OneHost() bool { return p.Size > 0 && p.LocalSize == p.Size }

// String returns the launcher and the variables, on one line.
func (p Assignment) String() string {
	return fmt.Sprintf("%s (%s)", p.Launcher, strings.Join(p.Used, ", "))
}

// Host is the environment of a place: variables and host names.
type Host struct {
	// Lookup is like os.LookupEnv.
	Lookup func(name string) (value string, there bool)
	// Hostname is this host's name. In a pod of an indexed Job the last part is the index.
	Hostname string
	// Names are the host names in /etc/hosts, in file order.
	Names []string
}

// launchers report whether they have started this process, inner launchers first.
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

// Find returns the place of a process started by another launcher. found is false without such a
// launcher, or if all launchers start a single process. The error names every variable that is
// missing, malformed or contradicts a variable of the same launcher. It is also an error if one
// launcher starts a single process, another several, and the inner of the two is unknown. On an
// error place has the values that could be read.
func Find(h Host) (place Assignment, found bool, err error) {
	var one *Assignment // place by a launcher with one process
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

// reader reads variables and collects errors.
type reader struct {
	host Host
	used []string
	errs []error
}

func (r *reader) fail(format string, args ...any) {
	r.errs = append(r.errs, fmt.Errorf(format, args...))
}

func (r *reader) has(name string) bool {
	v, _ := r.host.Lookup(name)
	return v != ""
}

func (r *reader) any(names ...string) bool {
	for _, n := range names {
		if r.has(n) {
			return true
		}
	}
	return false
}

// text returns the value of a required variable.
func (r *reader) text(name string) string {
	v, _ := r.host.Lookup(name)
	if v == "" {
		r.fail("%s is not set", name)
		return ""
	}
	r.used = append(r.used, name+"="+v)
	return v
}

func (r *reader) optional(name string) string {
	if !r.has(name) {
		return ""
	}
	return r.text(name)
}

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

// maxNumber limits every number; no job has as many ranks.
const maxNumber = 1 << 20

// same reports an error if two variables contradict each other.
func (r *reader) same(name, value, other, otherValue string) {
	if value != otherValue {
		r.fail("%s is %s, but %s is %s", name, value, other, otherValue)
	}
}

// address combines the required variables host and port to HOST:PORT.
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

// local reads a rank's number on its host and the number of ranks there.
func (r *reader) local(rank, size string, p *Assignment) {
	if !r.any(rank, size) {
		return
	}
	p.LocalRank, p.LocalSize = r.number(rank, 0), r.number(size, 1)
	if p.LocalRank >= p.LocalSize || p.LocalSize > p.Size && p.Size > 0 {
		r.fail("%s is %d and %s %d, of %d ranks in all: want the first below the second, and that not above the third", rank, p.LocalRank, size, p.LocalSize, p.Size)
	}
}
