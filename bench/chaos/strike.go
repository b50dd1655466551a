package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"
	"time"
)

var checkpointSaved = regexp.MustCompile(`^step-\d+\.ringo$`)

// run starts the job, strikes its victim and judges the end.
func (c strikeCase) run(s *setup, dir string) verdict {
	want, err := c.undisturbed(s)
	if err != nil {
		return broken(err)
	}
	j, err := s.start(dir, s.real(c.args(dir)))
	if err != nil {
		return broken(err)
	}
	defer j.end()
	struck, err := c.strike(j, dir)
	if err != nil {
		return broken(fmt.Errorf("%w: %s", err, lastLine(j.finish(0).Errs)))
	}
	_, begun := j.out.first(epochLine)
	e := j.finish(c.limit())
	e.Begun = begun && c.Moment != atEnd // all steps were made then
	if struck.IsZero() {
		return c.judgeUnstruck(want, e)
	}
	e.Named = j.named(c.Victim, struck)
	return c.judge(want, e)
}

// limit is by when the job must have ended. One that goes on has all its steps before it.
func (c strikeCase) limit() time.Duration {
	if c.Epochs > 3 {
		return strikeLimit + 60*time.Second
	}
	return strikeLimit
}

// judge judges a job whose victim was struck.
func (c strikeCase) judge(want string, e ending) verdict {
	ended := e.Status == 0 && sha(e.Out) != "" // before the fault could matter
	switch {
	case c.Restarts:
		return judgeBack(c.Victim, want, e)
	case c.GoOn && c.Victim.Number != 0: // all else hangs on rank 0
		return judgeGoesOn(c.Victim, e)
	case c.Moment == atEnd && ended:
		return c.judgeUnstruck(want, e)
	}
	return judgeLost(c.Victim, e)
}

// judgeUnstruck judges a job that was at its end before its victim was struck.
func (c strikeCase) judgeUnstruck(want string, e ending) verdict {
	var v verdict
	judgeClean(&v, e)
	judgeSame(&v, want, e)
	return v
}

// undisturbed returns the hash with which the job ends without a fault, "" where it depends on timing or the job has
// no end.
func (c strikeCase) undisturbed(s *setup) (string, error) {
	if !c.Restarts || c.Mode != "bsp" {
		return "", nil
	}
	return s.baseline(func(dir string) []string { return s.real(c.args(dir)) })
}

// strike waits for the moment and sends the signal. It returns when it did, or zero
// when the job or the victim had ended before.
func (c strikeCase) strike(j *job, dir string) (time.Time, error) {
	var pid int
	found := j.await(startLimit, func() bool {
		for _, p := range j.processes() {
			if p.Role == "server" == c.Victim.Server && p.Role != "" && p.Number == c.Victim.Number {
				pid = p.PID
			}
		}
		return pid != 0
	})
	if !found {
		return time.Time{}, fmt.Errorf("%v did not start", c.Victim)
	}
	if !j.await(startLimit, func() bool { return c.come(j, dir) }) && !j.over() {
		return time.Time{}, fmt.Errorf("the job came to no %s in %v", c.Moment, startLimit)
	}
	time.Sleep(c.Delay)
	if j.over() {
		return time.Time{}, nil
	}
	signal := syscall.SIGKILL
	if c.Stop {
		signal = syscall.SIGSTOP
	}
	if err := syscall.Kill(pid, signal); err != nil { // it has ended before
		return time.Time{}, nil
	}
	return time.Now(), nil
}

// startLimit is by when a job has come to any moment of its life, on a machine under load.
const startLimit = 60 * time.Second

// come tells whether the moment has come.
func (c strikeCase) come(j *job, dir string) bool {
	switch c.Moment {
	case joining:
		return true
	case firstStep:
		return j.out.String() != ""
	case atSaving:
		entries, _ := os.ReadDir(dir + "/saved")
		for _, e := range entries {
			if checkpointSaved.MatchString(e.Name()) {
				return true
			}
		}
		return false
	case atEnd:
		return j.says(regexp.MustCompile(fmt.Sprintf(`^epoch +%d/`, c.Epochs)))
	}
	return j.says(epochLine)
}

// named is how long after the fault the first line named the victim.
func (j *job) named(who victim, struck time.Time) time.Duration {
	var first time.Time
	for _, t := range []*transcript{&j.out, &j.errs} {
		t.mu.Lock()
		for _, l := range t.lines {
			if (who.names(l.Text) || strings.Contains(l.Text, "trainer "+fmt.Sprint(who.Number)+" is lost")) && (first.IsZero() || l.At.Before(first)) {
				first = l.At
				break
			}
		}
		t.mu.Unlock()
	}
	if first.IsZero() {
		return 0
	}
	return max(first.Sub(struck), time.Millisecond)
}
