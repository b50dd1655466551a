package extenv

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// slurm reads the place of a process of srun, without PMI. Batch scripts lack the srun step.
func slurm(r *reader) (Assignment, bool) {
	if !inStep(r) {
		return Assignment{}, false
	}
	tasks := "SLURM_STEP_NUM_TASKS"
	if !r.has(tasks) {
		tasks = "SLURM_NTASKS"
	}
	p := Assignment{Launcher: "srun", Rank: r.number("SLURM_PROCID", 0), Size: r.number(tasks, 1), LocalRank: r.number("SLURM_LOCALID", 0)}
	if p.Size == 1 {
		p.LocalSize = 1
		return p, true
	}
	nodes := r.nodes()
	each := r.tasksPerNode(tasks, p.Size)
	node := r.number("SLURM_NODEID", 0)
	switch {
	case len(r.errs) > 0:
		return p, true
	case len(nodes) != len(each):
		r.fail("%d nodes, but tasks for %d", len(nodes), len(each))
		return p, true
	case node >= len(each):
		r.fail("SLURM_NODEID is %d of %d nodes", node, len(each))
		return p, true
	}
	if p.LocalSize = each[node]; p.LocalRank >= p.LocalSize {
		r.fail("SLURM_LOCALID is %d, of %d tasks on node %d", p.LocalRank, p.LocalSize, node)
	}
	job, step, restart := r.quiet("SLURM_JOB_ID"), r.quiet("SLURM_STEP_ID"), r.quiet("SLURM_RESTART_COUNT")
	p.Job = fmt.Sprintf("slurm %s.%s %s", job, step, restart)
	p.Address = net.JoinHostPort(nodes[0], strconv.Itoa(slurmPort(job, step)))
	return p, true
}

// inStep reports whether srun has started this process. The highest step numbers are reserved.
func inStep(r *reader) bool {
	step, err := strconv.ParseUint(r.quiet("SLURM_STEP_ID"), 10, 64)
	return err == nil && step < 0xfffffff0 && r.has("SLURM_PROCID")
}

// slurmPort returns a port above the system's ephemeral ports, different for concurrent steps.
func slurmPort(job, step string) int {
	j, _ := strconv.ParseUint(job, 10, 64)
	s, _ := strconv.ParseUint(step, 10, 64)
	return 61440 + int((j+131*s)%4095)
}

func (r *reader) nodes() []string {
	name := "SLURM_STEP_NODELIST"
	if !r.has(name) {
		name = "SLURM_JOB_NODELIST"
	}
	text := r.text(name)
	if text == "" {
		return nil
	}
	all, err := nodeNames(text)
	if err != nil {
		r.fail("%s: %w", name, err)
	}
	return all
}

// tasksPerNode reads the step's tasks per node, with the sum size.
func (r *reader) tasksPerNode(tasks string, size int) []int {
	name := "SLURM_STEP_TASKS_PER_NODE"
	if !r.has(name) {
		name = "SLURM_TASKS_PER_NODE"
	}
	text := r.text(name)
	if text == "" {
		return nil
	}
	all, err := taskCounts(text)
	if err != nil {
		r.fail("%s: %w", name, err)
		return nil
	}
	sum := 0
	for _, n := range all {
		sum += n
	}
	if sum != size {
		r.fail("%s=%s is %d tasks, but %s is %d", name, text, sum, tasks, size)
	}
	return all
}

// maxNodes limits the nodes of an expanded list.
const maxNodes = 1 << 16

var errNodes = fmt.Errorf("more than %d nodes", maxNodes)

// taskCounts reads Slurm's numbers of tasks by node, such as "2(x3),1": 2, 2, 2, 1.
func taskCounts(text string) (counts []int, err error) {
	for _, part := range strings.Split(text, ",") {
		times := 1
		number, repeated, ok := strings.Cut(part, "(x")
		if ok {
			digits, closed := strings.CutSuffix(repeated, ")")
			if times, err = natural(digits); err != nil || !closed || times == 0 {
				return nil, fmt.Errorf("%q: want numbers such as 2(x3),1", text)
			}
		}
		n, err := natural(number)
		if err != nil {
			return nil, fmt.Errorf("%q: want numbers such as 2(x3),1", text)
		}
		if len(counts)+times > maxNodes {
			return nil, errNodes
		}
		for range times {
			counts = append(counts, n)
		}
	}
	return counts, nil
}

// nodeNames expands Slurm's list of nodes, such as "node[001,007-015],b2": brackets hold numbers
// and ranges with the digits of the first number, and a name may have several brackets.
func nodeNames(text string) (names []string, err error) {
	for _, part := range topLevel(text) {
		all, err := expand(part)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", text, err)
		}
		if names = append(names, all...); len(names) > maxNodes {
			return nil, errNodes
		}
	}
	return names, nil
}

// topLevel splits a list at commas outside brackets.
func topLevel(text string) (parts []string) {
	depth, from := 0, 0
	for i, c := range text {
		switch c {
		case '[':
			depth++
		case ']':
			depth--
		case ',':
			if depth == 0 {
				parts, from = append(parts, text[from:i]), i+1
			}
		}
	}
	return append(parts, text[from:])
}

var errBrackets = errors.New("want a list of nodes such as node[001,007-015],b2")

func expand(part string) ([]string, error) {
	before, rest, ok := strings.Cut(part, "[")
	if !ok {
		if part == "" || strings.ContainsAny(part, "] ") {
			return nil, errBrackets
		}
		return []string{part}, nil
	}
	inside, after, ok := strings.Cut(rest, "]")
	if !ok || strings.ContainsAny(before, "] ") || strings.Contains(inside, "[") {
		return nil, errBrackets
	}
	tails := []string{""}
	if after != "" {
		var err error
		if tails, err = expand(after); err != nil {
			return nil, err
		}
	}
	var names []string
	for _, span := range strings.Split(inside, ",") {
		low, high, ranged := strings.Cut(span, "-")
		if !ranged {
			high = low
		}
		first, errLow := natural(low)
		last, errHigh := natural(high)
		switch {
		case errLow != nil || errHigh != nil || last < first:
			return nil, errBrackets
		case (last-first+1)*len(tails) > maxNodes-len(names):
			return nil, errNodes
		}
		for n := first; n <= last; n++ {
			for _, tail := range tails {
				names = append(names, fmt.Sprintf("%s%0*d%s", before, len(low), n, tail))
			}
		}
	}
	return names, nil
}

// natural parses at most nine decimal digits.
func natural(digits string) (int, error) {
	if len(digits) == 0 || len(digits) > 9 || strings.Trim(digits, "0123456789") != "" {
		return 0, errBrackets
	}
	return strconv.Atoi(digits)
}
