// Package runlog reads what runs have told with --json, and makes of it what reports and pages
// show: curves, figures, groups of runs that differ in the seed alone, and how these differ. It
// draws nothing.
//
//	log, err := runlog.Read("run.jsonl", file) // or runlog.NewLog and Add, line by line while a job goes on
//	groups := runlog.GroupsOf(log.Runs())
//	points := runlog.Thin(groups[0].Curve(runlog.OfEpochs, "eval_accuracy"), 300)
//
// Fields of records are found by their names: what a later version adds is a column more, and kinds of records that are not known are
// passed over.
package runlog

import (
	"bufio"
	"os"
	"runtime"
	"strings"
)

// Job is the first record of a file: what the job is, as it was resolved, and where it runs.
type Job struct {
	Event string `json:"event"` // "job"
	Ringo string `json:"ringo"` // the version
	// Started is when, in UTC as RFC 3339 has it.
	Started string `json:"started"`
	// Settings are all that decide on the result, by path, as --set takes them.
	Settings map[string]string `json:"settings"`
	Machine  Machine           `json:"machine"` // of rank 0
}

// Machine is where a process runs. What the system does not say is empty.
type Machine struct {
	Host        string `json:"host"`
	System      string `json:"system"` // such as "linux/amd64"
	CPU         string `json:"cpu"`
	CPUs        int    `json:"cpus"` // of the machine, hardware threads counted
	MemoryBytes int64  `json:"memory_bytes"`
	Go          string `json:"go"`
}

// LocalMachine is this machine.
func LocalMachine() Machine {
	m := Machine{System: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(), Go: runtime.Version()}
	m.Host, _ = os.Hostname()
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		m.CPU = valueOf(string(text), "model name")
		if n := strings.Count("\n"+string(text), "\nprocessor\t"); n > 0 { // a rank may be bound to fewer
			m.CPUs = n
		}
	}
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		m.MemoryBytes = kilobytes(valueOf(string(text), "MemTotal"))
	}
	return m
}

// valueOf is the first value of a name in lines of "name : value".
func valueOf(text, name string) string {
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// kilobytes reads such as "24576 kB".
func kilobytes(text string) (bytes int64) {
	for _, c := range strings.TrimSuffix(text, " kB") {
		if c < '0' || c > '9' || bytes > 1<<50 {
			return 0
		}
		bytes = 10*bytes + int64(c-'0')
	}
	return bytes << 10
}

// Info is the record with which a run begins, or goes on: what is known before its first step. A job of several seeds has one of each.
type Info struct {
	Event         string   `json:"event"` // "run"
	Seed          uint64   `json:"seed"`
	Model         string   `json:"model"`
	Params        int      `json:"params"`
	NP            int      `json:"np"`
	Threads       int      `json:"threads"`
	Servers       int      `json:"servers"`
	Batch         int      `json:"batch"`
	GlobalBatch   int      `json:"global_batch"`
	Unit          string   `json:"unit"` // what rates count: samples or tokens
	DataSet       string   `json:"data"`
	TrainSamples  int      `json:"train_samples"`
	EvalSamples   int      `json:"eval_samples"`
	Omitted       int      `json:"omitted_samples"` // of training, in each epoch
	Epochs        int      `json:"epochs"`
	StepsPerEpoch int      `json:"steps_per_epoch"`
	Optimizer     string   `json:"optimizer"`
	Schedule      string   `json:"schedule"`
	Strategy      string   `json:"strategy"`
	Codec         string   `json:"codec"`
	Plan          string   `json:"plan"`
	PlanSHA256    string   `json:"plan_sha256"`
	Buckets       int      `json:"buckets"`
	Transport     string   `json:"transport"`
	Placement     string   `json:"placement"`
	Kernels       string   `json:"kernels"`
	Metrics       []Metric `json:"metrics"`
	// Initial is the lines about the values that --init-from gives: taken, mapped by name, new, not
	// used and assumed. It is absent from a run that starts with random values.
	Initial []string `json:"initial,omitempty"`
	// Resumed is the checkpoint that the run goes on from, "" for none, after so many steps.
	Resumed string `json:"resumed"`
	Done    int64  `json:"done"`
	// Notes are sentences about how the data were read, and LeftOut is what they leave out.
	Notes   []string  `json:"notes,omitempty"`
	LeftOut []LeftOut `json:"left_out,omitempty"`
	// Columns are those of a table, each a Found of package data/table.
	Columns []any `json:"columns,omitempty"`
}

// LeftOut is one kind of files or samples that the data leave out, with the first names.
type LeftOut struct {
	Kind  string   `json:"kind"`
	Count int      `json:"count"`
	Names []string `json:"names"`
}

// Metric is a figure of the evaluation besides the loss.
type Metric struct {
	Name string `json:"name"` // records call it eval_NAME
	// Title is how a person reads it, Percent that 1 is 100 %, Lower that less is better, and Detail leaves it to records.
	Title   string `json:"title"`
	Percent bool   `json:"percent"`
	Lower   bool   `json:"lower"`
	Detail  bool   `json:"detail"`
}
