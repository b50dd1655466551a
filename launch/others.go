package launch

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// others are the variables by which other launchers tell a process its place. What they
// say is not followed yet; but a program that they have started several times must not
// take each of its processes for a job of its own.
var others = []struct {
	name       string // of the launcher
	size, rank string // of its variables
	step       string // one that must be there, too: Slurm sets others for a batch script, of which there is one
	again      string // how it starts a shell so many times
}{
	{name: "mpirun", size: "OMPI_COMM_WORLD_SIZE", rank: "OMPI_COMM_WORLD_RANK", again: "mpirun -np %d -x RINGO_TICKET sh -c"},
	{name: "srun", size: "SLURM_STEP_NUM_TASKS", rank: "SLURM_PROCID", step: "SLURM_STEP_ID", again: "srun --ntasks=%d sh -c"},
	{name: "mpirun", size: "PMI_SIZE", rank: "PMI_RANK", again: "mpirun -np %d sh -c"},
	{name: "torchrun", size: "WORLD_SIZE", rank: "RANK", again: "torchrun --nproc-per-node=%d --no-python sh -c"},
	{name: "prun", rank: "PMIX_RANK", again: "prun -n %d sh -c"}, // says no size: only ranks from 1 on know that there are several
}

// OtherLauncherError says that another launcher has started the program as several
// processes, whose variables are not read: each would be a job of its own.
type OtherLauncherError struct {
	Launcher string // "mpirun", "srun", "torchrun" or "prun"
	Variable string // that says so
	Value    string
	Size     int    // how many processes there are, at least
	RankVar  string // the variable that has a process's number
	again    string
}

// Error says what is wrong and how a program is started by `ringo run`.
func (e *OtherLauncherError) Error() string {
	return e.Explain("`ringo run --np " + strconv.Itoa(e.Size) + " -- PROGRAM ARGS…`")
}

// Explain is Error with another command that starts the job, in backquotes.
func (e *OtherLauncherError) Explain(once string) string {
	return fmt.Sprintf("%s=%s: %s has started this program as %d processes, but does not place them in one job of ringo: each would train by itself. "+
		"Start it once, without %s: %s. If this process alone runs it, remove the variable: env -u %s", e.Variable, e.Value, e.Launcher, e.Size, e.Launcher, once, e.Variable)
}

// ByHand is the command line that has the other launcher start the ranks of one job: args
// is the program's, without what places a rank.
func (e *OtherLauncherError) ByHand(args []string) string {
	inner := fmt.Sprintf("exec %s --np=%d --rank=$%s --rendezvous=HOST:4000", Quote(args), e.Size, e.RankVar)
	return "RINGO_TICKET=$(openssl rand -hex 32) " + fmt.Sprintf(e.again, e.Size) + " " + quoted(inner)
}

// Quote writes a command as a shell reads it.
func Quote(command []string) string {
	words := make([]string, len(command))
	for i, w := range command {
		words[i] = quoted(w)
	}
	return strings.Join(words, " ")
}

// quoted is a word as a shell reads it.
func quoted(word string) string {
	plain := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-_=./:,+@%", c)
	}
	if word != "" && strings.IndexFunc(word, func(c rune) bool { return !plain(c) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// startedByOther reports, as an *OtherLauncherError, that another launcher has started this program
// more than once.
func startedByOther(lookup func(string) (string, bool)) error {
	number := func(name string) int {
		text, _ := lookup(name)
		n, err := strconv.Atoi(text)
		if err != nil {
			return -1
		}
		return n
	}
	for _, o := range others {
		rank, says := number(o.rank), cmp.Or(o.size, o.rank)
		size := number(says)
		if o.size == "" {
			size = rank + 1
		}
		if _, there := lookup(o.step); o.step != "" && !there || rank < 0 || size <= 1 {
			continue
		}
		value, _ := lookup(says)
		return &OtherLauncherError{Launcher: o.name, Variable: says, Value: value, Size: size, RankVar: o.rank, again: o.again}
	}
	return nil
}
