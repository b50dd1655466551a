package cluster

import (
	"cmp"
	"errors"
	"time"

	"github.com/ringo-ml/ringo/internal/setting"
)

// Times are how long the processes of a job wait for each other. The zero value is the defaults.
type Times struct {
	// Join is how long processes wait for each other at the start. 0 means 60 s.
	Join time.Duration
	// Heartbeat is the time between signs of life, both ways. 0 means 1 s. The DeadAfter of the process at the other
	// end must hold two of it.
	Heartbeat time.Duration
	// DeadAfter is how long a process may show no sign of life before it is lost. 0 means 10 s. It is at least twice
	// Heartbeat.
	DeadAfter time.Duration
}

// The settings that Times are.
const (
	pathJoin      setting.Path = "job.join-timeout"
	pathHeartbeat setting.Path = "job.heartbeat-interval"
	pathDeadAfter setting.Path = "job.heartbeat-timeout"
)

// WithDefaults returns the times with defaults in place of zero values.
func (t Times) WithDefaults() Times {
	return Times{Join: cmp.Or(t.Join, time.Minute), Heartbeat: cmp.Or(t.Heartbeat, time.Second), DeadAfter: cmp.Or(t.DeadAfter, 10*time.Second)}
}

// Validate reports all faults together, by the paths of the settings.
func (t Times) Validate() error {
	t = t.WithDefaults()
	var faults setting.ErrorList
	for _, of := range []struct {
		path setting.Path
		is   time.Duration
	}{{pathJoin, t.Join}, {pathHeartbeat, t.Heartbeat}, {pathDeadAfter, t.DeadAfter}} {
		if of.is < 0 {
			faults = append(faults, setting.Errorf(of.path, "%v: %w", of.is, errPositive))
		}
	}
	if t.Heartbeat > 0 && t.DeadAfter > 0 && t.DeadAfter/2 < t.Heartbeat {
		faults = append(faults, setting.Errorf(pathDeadAfter, "%v: want at least twice %v, which is %v", t.DeadAfter, pathHeartbeat, t.Heartbeat))
	}
	return faults.Err()
}

// Settings are the rows of t, which holds the defaults.
func (t *Times) Settings() []setting.Row {
	return []setting.Row{
		{Path: pathJoin, Commands: setting.AllCommands, Flag: "join-timeout", Scope: setting.PerProcess, Value: positive{setting.Duration(&t.Join), &t.Join},
			About: "how long ranks and servers wait for each other at the start"},
		{Path: pathHeartbeat, Commands: setting.AllCommands, Scope: setting.JobMutable, Value: positive{setting.Duration(&t.Heartbeat), &t.Heartbeat},
			About: "time between signs of life of ranks and servers"},
		{Path: pathDeadAfter, Commands: setting.AllCommands, Flag: "heartbeat-timeout", Scope: setting.JobMutable, Value: positive{setting.Duration(&t.DeadAfter), &t.DeadAfter},
			About: "a rank or server without a sign of life for so long is lost, four times as long if its process is seen to use the processor"},
	}
}

// positive refuses a time of 0, which would silently be the default, and less.
type positive struct {
	setting.Value
	field *time.Duration
}

var errPositive = errors.New("want a positive time, such as 30s")

// Set leaves the field as it was where it fails.
func (p positive) Set(text string) error {
	was := *p.field
	err := p.Value.Set(text)
	if err == nil && *p.field <= 0 {
		*p.field, err = was, errPositive
	}
	return err
}
