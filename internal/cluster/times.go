package cluster

import (
	"cmp"
	"errors"
	"time"

	"github.com/ringo-ml/ringo/internal/setting"
)

// Times are the waiting times between the processes of a job. The zero value means the defaults.
type Times struct {
	// Join is the wait of processes for each other at the start. 0 means 60 s.
	Join time.Duration
	// Heartbeat is the interval of heartbeats, in both directions. 0 means 1 s. The peer's
	// DeadAfter must be at least twice Heartbeat.
	Heartbeat time.Duration
	// DeadAfter is the silence that makes a process lost. 0 means 10 s. DeadAfter is at least twice
	// Heartbeat.
	DeadAfter time.Duration
}

// Paths of the settings in Times.
const (
	pathJoin      setting.Path = "job.join-timeout"
	pathHeartbeat setting.Path = "Times.Heartbeat" // in errors; the setting of DeadAfter sets it
	pathDeadAfter setting.Path = "job.heartbeat-timeout"
)

// WithDefaults returns the times with defaults instead of zero values.
func (t Times) WithDefaults() Times {
	return Times{Join: cmp.Or(t.Join, time.Minute), Heartbeat: cmp.Or(t.Heartbeat, time.Second), DeadAfter: cmp.Or(t.DeadAfter, 10*time.Second)}
}

// Validate returns all errors together, by the paths of the settings.
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

// Settings returns the setting rows of t; t must hold the defaults.
func (t *Times) Settings() []setting.Row {
	return []setting.Row{
		{Path: pathJoin, Commands: setting.AllCommands, Flag: "join-timeout", Scope: setting.PerProcess, Value: positive{setting.Duration(&t.Join), &t.Join},
			About: "maximum wait of ranks and servers for each other at the start"},
		{Path: pathDeadAfter, Commands: setting.AllCommands, Flag: "heartbeat-timeout", Scope: setting.JobMutable, Value: deadAfter{positive{setting.Duration(&t.DeadAfter), &t.DeadAfter}, t},
			About: "time without a heartbeat after which a rank or server is lost, four times as long while its process uses the processor; heartbeats are sent 10 times as often, and at least once per second"},
	}
}

// deadAfter sets the interval of heartbeats, too: a tenth of the timeout, and 1 s at most.
type deadAfter struct {
	positive
	times *Times
}

// Set leaves both fields unchanged on failure.
func (d deadAfter) Set(text string) error {
	err := d.positive.Set(text)
	if err == nil {
		d.times.Heartbeat = min(time.Second, d.times.DeadAfter/10)
	}
	return err
}

// positive refuses durations <= 0: 0 would silently mean the default.
type positive struct {
	setting.Value
	field *time.Duration
}

var errPositive = errors.New("want a positive time, such as 30s")

// Set leaves the field unchanged on failure.
func (p positive) Set(text string) error {
	was := *p.field
	err := p.Value.Set(text)
	if err == nil && *p.field <= 0 {
		*p.field, err = was, errPositive
	}
	return err
}
