// Package runlog reads the output of --json, and computes the contents of reports and pages:
// curves, metrics, groups of runs that differ in the seed alone, and the differences of groups. It
// draws no images.
//
//	log, err := runlog.Read("run.jsonl", file) // or runlog.NewLog and Add, line by line
//	groups := runlog.GroupsOf(log.Runs())
//	points := runlog.Thin(groups[0].Curve(runlog.OfEpochs, "eval_accuracy"), 300)
//
// Fields of records are found by name: a field of a later version becomes another column, and
// unknown kinds of records are ignored.
package runlog

import (
	"bufio"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// Job is the first record of a file: the resolved job and its machine.
type Job struct {
	Event string `json:"event"` // "job"
	Ringo string `json:"ringo"` // the version
	// Started is the start time in UTC, in RFC 3339 format.
	Started string `json:"started"`
	// Settings are all settings that affect the result, by path, in the format of --set.
	Settings map[string]string `json:"settings"`
	// Changed are the paths of the settings that differ from their defaults, in order; nil in
	// records of earlier versions.
	Changed []string `json:"changed,omitempty"`
	Machine Machine  `json:"machine"` // machine of rank 0
	// Lost are the losses of ranks after which this start of the job continues, as text, and LostS
	// is the time in seconds from the first to this record.
	Lost  []string `json:"lost,omitempty"`
	LostS float64  `json:"lost_s,omitempty"`
}

// Machine describes the host of a process. Unknown fields are empty.
type Machine struct {
	Host        string `json:"host"`
	System      string `json:"system"` // such as "linux/amd64"
	CPU         string `json:"cpu"`
	CPUs        int    `json:"cpus"` // hardware threads of the machine
	MemoryBytes int64  `json:"memory_bytes"`
	Go          string `json:"go"`
}

// LocalMachine describes this machine.
func LocalMachine() Machine {
	m := Machine{System: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(), Go: runtime.Version()}
	m.Host, _ = os.Hostname()
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		m.CPU = valueOf(string(text), "model name")
		if n := strings.Count("\n"+string(text), "\nprocessor\t"); n > 0 { // NumCPU is less in a bound rank
			m.CPUs = n
		}
	}
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		m.MemoryBytes = kilobytes(valueOf(string(text), "MemTotal"))
	}
	return m
}

// valueOf returns the first value of a name in lines of "name : value".
func valueOf(text, name string) string {
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// kilobytes parses text such as "24576 kB", and returns bytes.
func kilobytes(text string) int64 {
	n, err := strconv.ParseUint(strings.TrimSuffix(text, " kB"), 10, 50)
	if err != nil {
		return 0
	}
	return int64(n) << 10
}

// Info is the record at the start or the resumption of a run, written before its first step. A job
// of several seeds or folds has one per seed or fold.
type Info struct {
	Event         string   `json:"event"` // "run"
	Seed          uint64   `json:"seed"`
	Fold          int      `json:"fold,omitempty"` // of a cross-validation, from 1
	Model         string   `json:"model"`
	Params        int      `json:"params"`
	NP            int      `json:"np"`
	Threads       int      `json:"threads"`
	Servers       int      `json:"servers"`
	Batch         int      `json:"batch"`
	GlobalBatch   int      `json:"global_batch"`
	Unit          string   `json:"unit"` // unit of rates: samples or tokens
	DataSet       string   `json:"data"`
	TrainSamples  int      `json:"train_samples"`
	EvalSamples   int      `json:"eval_samples"`
	Omitted       int      `json:"omitted_samples"` // training samples omitted in each epoch
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
	// Initial has the lines about the values of --init-from: loaded, mapped by name, new, unused
	// and assumed. It is absent from a run with random initial values.
	Initial []string `json:"initial,omitempty"`
	// Resumed is the checkpoint of a resumed run, or "", and Done its number of steps.
	Resumed string `json:"resumed"`
	Done    int64  `json:"done"`
	// Notes are remarks about reading the data, and LeftOut the excluded files and samples.
	Notes   []string  `json:"notes,omitempty"`
	LeftOut []LeftOut `json:"left_out,omitempty"`
	// Columns are the columns of a table, each a Found of package data/table.
	Columns []any `json:"columns,omitempty"`
}

// LeftOut is one kind of excluded files or samples, with the first names.
type LeftOut struct {
	Kind  string   `json:"kind"`
	Count int      `json:"count"`
	Names []string `json:"names"`
}

// Metric is an evaluation metric other than the loss.
type Metric struct {
	Name string `json:"name"` // name in records without the prefix eval_
	// Title is the display name. Percent reports whether 1 means 100 %, Lower whether less is
	// better, and Detail whether only records include the metric.
	Title   string `json:"title"`
	Percent bool   `json:"percent"`
	Lower   bool   `json:"lower"`
	Detail  bool   `json:"detail"`
}
