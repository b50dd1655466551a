package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/setting"
)

// Zero values are the defaults, and what is given stays.
func TestTimesDefaults(t *testing.T) {
	if got, want := (Times{}).WithDefaults(), (Times{time.Minute, time.Second, 10 * time.Second}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	given := Times{1, 2, 4}
	if got := given.WithDefaults(); got != given {
		t.Errorf("got %v, want %v", got, given)
	}
}

// All faults are told together, by paths, with both values; a default counts like a value that was given.
func TestTimesValidate(t *testing.T) {
	const sec = time.Second
	for _, c := range []struct {
		times Times
		want  string
	}{
		{Times{}, ""},
		{Times{Heartbeat: 5 * sec}, ""},
		{Times{Heartbeat: 2, DeadAfter: 4}, ""},
		{Times{Heartbeat: 2, DeadAfter: 3}, "job.heartbeat-timeout 3ns: want at least twice Times.Heartbeat, which is 2ns"},
		{Times{Heartbeat: 6 * sec}, "job.heartbeat-timeout 10s: want at least twice Times.Heartbeat, which is 6s"},
		{Times{DeadAfter: sec}, "job.heartbeat-timeout 1s: want at least twice Times.Heartbeat, which is 1s"},
		{Times{Heartbeat: 1 << 62, DeadAfter: 1<<63 - 1}, "job.heartbeat-timeout 2562047h47m16.854775807s: want at least twice Times.Heartbeat, which is 1281023h53m38.427387904s"},
		{Times{-1, -2, -3}, "job.join-timeout -1ns: want a positive time, such as 30s\n" +
			"Times.Heartbeat -2ns: want a positive time, such as 30s\njob.heartbeat-timeout -3ns: want a positive time, such as 30s"},
	} {
		got := ""
		if err := c.times.Validate(); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%+v: got %q, want %q", c.times, got, c.want)
		}
	}
}

// TestTimesSettings: a time that is set is positive, and the timeout sets the interval of heartbeats.
func TestTimesSettings(t *testing.T) {
	times := Times{}.WithDefaults()
	table, err := setting.New(times.Settings()...)
	if err != nil {
		t.Fatal(err)
	}
	faults := table.Apply(
		setting.Assignment{Path: "job.join-timeout", Text: "5m"}, setting.Assignment{Path: "job.heartbeat-timeout", Text: "4s"},
		setting.Assignment{Path: "job.heartbeat-timeout", Text: "0s"}, setting.Assignment{Path: "job.heartbeat-timeout", Text: "-1s"}, setting.Assignment{Path: "job.heartbeat-timeout", Text: "soon"},
	)
	if want := (Times{5 * time.Minute, 400 * time.Millisecond, 4 * time.Second}); times != want {
		t.Errorf("got %v, want %v", times, want)
	}
	want := "job.heartbeat-timeout 0s: want a positive time, such as 30s\njob.heartbeat-timeout -1s: want a positive time, such as 30s\njob.heartbeat-timeout soon: want a time with its unit"
	if err := faults.Err(); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}
