package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// ending is how a job ended, and what it said.
type ending struct {
	Status  int  // its exit status; -1: a signal ended it
	Overran bool // it had to be killed when its time was over
	Out     string
	Errs    string
	Leaked  []string // processes and files that outlived it
	PeakMiB int      // of its largest process
	// Of a job with a fault: how long after it the first line named the victim, 0 for
	// never, and whether the job had told of an epoch before.
	Named time.Duration
	Begun bool
}

// verdict is what a case showed. It is right when Wrong is empty and NoStep is not set.
type verdict struct {
	Wrong   []string
	NoStep  bool          // all else is right, but the error says no step, or no epoch
	Named   time.Duration // 0: nothing had to be named
	Boxed   bool          // a black box was told of, which shows the victim
	Skipped string        // why the case could not be tried here
	Said    string        // the last line of its errors, of a case that is about them
}

func (v *verdict) wrong(format string, args ...any) {
	v.Wrong = append(v.Wrong, fmt.Sprintf(format, args...))
}

var (
	crash     = regexp.MustCompile(`(?m)^(\[[^\]]*\] )?(panic: |fatal error: |goroutine \d+ \[|SIGSEGV|unexpected fault address)`)
	lostRank  = regexp.MustCompile(`\brank (\d+) is lost`)
	lostSum   = regexp.MustCompile(`\brank (\d+) is lost: server (\d+)\b`)
	unjoined  = regexp.MustCompile(`\brank (\d+)(?: of \d+)?(?:, the last [^:]*,)? did not join`)
	lostTable = regexp.MustCompile(`\bserver (\d+) is lost`)
	onTheWay  = regexp.MustCompile(`\branks? lost on the way \(([^)]*)\)`)
	step      = regexp.MustCompile(`\bsteps? #?(\d[\d,]*)`)
	epochLine = regexp.MustCompile(`^epoch +1/`)
	epochSaid = regexp.MustCompile(`\bepoch (\d+)`)
	shaSaid   = regexp.MustCompile(`params sha256 ([0-9a-f]{64})`)
	boxShows  = regexp.MustCompile(`(?m)^  black box: (operation|request|rank|fault) .*$`)
	number    = regexp.MustCompile(`\d+`)
)

// victim is who gets a signal.
type victim struct {
	Server bool
	Number int
	Ranks  int // of the job: a summing server's rank is Ranks + Number
}

func (w victim) String() string {
	if w.Server {
		return fmt.Sprintf("server %d", w.Number)
	}
	return fmt.Sprintf("rank %d", w.Number)
}

// names matches a line that says that the victim is lost.
func (w victim) names(text string) bool {
	if !w.Server {
		for _, said := range []*regexp.Regexp{lostRank, unjoined} {
			if m := said.FindStringSubmatch(text); m != nil && m[1] == strconv.Itoa(w.Number) {
				return lostTable.FindString(text) == "" // else that a server is lost, because of it
			}
		}
		return false
	}
	if m := lostSum.FindStringSubmatch(text); m != nil {
		return m[1] == strconv.Itoa(w.Ranks+w.Number) && m[2] == strconv.Itoa(w.Number)
	}
	m := lostTable.FindStringSubmatch(text)
	return m != nil && m[1] == strconv.Itoa(w.Number)
}

// blames tells whom else a line calls lost, or "".
func (w victim) blames(text string) string {
	if w.names(text) {
		return ""
	}
	return lostRank.FindString(text) + unjoined.FindString(text) + lostTable.FindString(text)
}

// judgeClean complains of what no job may do, whatever happens to it.
func judgeClean(v *verdict, e ending) {
	if e.Overran {
		v.wrong("it did not end in its time")
	}
	if at := crash.FindString(e.Out + "\n" + e.Errs); at != "" {
		v.wrong("a stack trace: %q", at)
	}
	for _, l := range e.Leaked {
		v.wrong("left behind: %s", l)
	}
}

// judgeLost judges a job that must end because of its victim.
func judgeLost(who victim, e ending) verdict {
	v := verdict{Named: e.Named}
	judgeClean(&v, e)
	if e.Status == 0 {
		v.wrong("exit status 0, though %v is lost", who)
	}
	told, placed := 0, false
	for _, text := range strings.Split(e.Out+"\n"+e.Errs, "\n") {
		if who.names(text) {
			told++
			placed = placed || step.MatchString(text) && epochSaid.MatchString(text)
		} else if other := who.blames(text); other != "" {
			v.wrong("it blames another: %q", text)
		}
	}
	switch {
	case told == 0:
		v.wrong("it does not say that %v is lost", who)
	case told > 1:
		v.wrong("it tells the fault %d times", told)
	}
	v.NoStep = e.Begun && told > 0 && !placed
	judgeBox(&v, who, e)
	return v
}

// judgeBox wants what a black box shows to be about the victim. Not every job has one: ranks that exchange nothing
// with each other have none, nor those that nobody launched.
func judgeBox(v *verdict, who victim, e ending) {
	shows := boxShows.FindString(e.Errs)
	if shows == "" {
		return
	}
	if v.Boxed = who.shown(shows); !v.Boxed {
		v.wrong("its black box shows another: %q", shows)
	}
}

// shown says that what a black box shows is about the victim: where servers sum it may be called by its number in the mesh.
func (w victim) shown(text string) bool {
	names := fmt.Sprintf("rank %d", w.Number)
	if w.Server {
		names = fmt.Sprintf("(parameter server %d|rank %d)", w.Number, w.Ranks+w.Number)
	}
	return regexp.MustCompile(`\b` + names + ` (had not begun|had begun nothing|had not come|had not answered|was in it)|(waited for|it was the last of) ` + names + `\b`).MatchString(text)
}

// judgeGoesOn judges a job that does without its victim.
func judgeGoesOn(who victim, e ending) verdict {
	v := verdict{Named: e.Named}
	judgeClean(&v, e)
	if e.Status != 0 {
		v.wrong("exit status %d, though it is to go on without %v", e.Status, who)
	}
	if sha(e.Out) == "" {
		v.wrong("no parameters at its end")
	}
	m := onTheWay.FindStringSubmatch(e.Out)
	if m == nil {
		v.wrong("its summary does not name %v", who)
	} else if lost := number.FindAllString(m[1], -1); len(lost) != 1 || lost[0] != strconv.Itoa(who.Number) {
		v.wrong("its summary names %q, not %v", m[1], who)
	}
	return v
}

// judgeBack judges a job whose victim is started again. want is the hash of the job without a fault, or "" where its
// bits depend on timing.
func judgeBack(who victim, want string, e ending) verdict {
	v := verdict{Named: e.Named}
	judgeClean(&v, e)
	judgeSame(&v, want, e)
	for _, text := range strings.Split(e.Out+"\n"+e.Errs, "\n") {
		if other := who.blames(text); other != "" {
			v.wrong("it blames another: %q", text)
		}
	}
	return v
}

// judgeSame wants a job to end by itself with given bits, or any where want is "".
func judgeSame(v *verdict, want string, e ending) {
	got := sha(e.Out)
	if e.Status != 0 {
		v.wrong("exit status %d: %s", e.Status, lastLine(e.Errs))
	} else if got == "" {
		v.wrong("no parameters at its end")
	} else if want != "" && got != want {
		v.wrong("parameters %.8s, want %.8s", got, want)
	}
}

// sha is the hash of the parameters that a job has printed, or "".
func sha(out string) string {
	if m := shaSaid.FindStringSubmatch(out); m != nil {
		return m[1]
	}
	return ""
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
