package main

import (
	"strings"
	"testing"
	"time"
)

// What ringo has said, taken from runs of the campaign.
const (
	rankKilled = `ringo: sharded update 4613 on rank 0, at message 0/4613/0 with rank 1: rank 1 is lost: killed by signal 9 (SIGKILL)
ringo: rank 1 is lost: killed by signal 9 (SIGKILL); it wrote nothing
`
	sumStopped = `[server 1] ringo: serve 5310 on rank 3, at message 3221225472/5310/0 with rank 0: rank 2 is lost: server 0: no sign of life for 3s
ringo: rank 2 is lost: server 0: no sign of life for 3s; its last lines:
  server 0 of 2 is up
`
	tableKilled = `[ps 1] parameter server 1 of 2 is up at 127.0.0.1:39735, for 2 trainers, sync
[ps 0] ringo: server 0: trainer 1 has connected from 127.0.0.1:47648, session 0
[ps 0] ringo: server 0: the connection of trainer 1, session 0, has ended: EOF
ringo: parameter server 1 is lost: killed by signal 9 (SIGKILL); its last lines:
  parameter server 1 of 2 is up at 127.0.0.1:39735, for 2 trainers, sync
`
	tableStopped = `ringo: parameter server 0 is lost: no sign of life for 3s; its last lines:
`
	blamed = `ringo: parameter server 0 is lost: killed by signal 9 (SIGKILL); its last lines:
[rank 2] ringo: rank 1 is lost: it failed: terminated signal received
`
	wentOn = `1 rank lost on the way (1), and the data still to be trained on there
test log-loss 1.3867, AUC 0.6104 after 8 epochs in 7.5 s; params sha256 4126b199c87fed3f0d314ce9091713ebf40798456a221d5b4b1f2c266bf8bbd3
`
	wentOnErrs = `[ps 0] ringo: server 0: trainer 1 is lost: its session 0 has been away for 3s: the trainer was silent for 3s: timed out
ringo: rank 1 is lost: it still ran after all other processes had ended, and was killed
`
	trained = `epoch 1/1  train loss 0.5783  test log-loss 0.5783
test log-loss 0.5783, AUC 0.5769 after 1 epoch in 0.0 s; params sha256 59bccdf965ca542526248e61e59bccdf965ca542526248e61e0123456789abcd
`
	trainedSHA = "59bccdf965ca542526248e61e59bccdf965ca542526248e61e0123456789abcd"
)

// complaints joins what a verdict complains of.
func complaints(v verdict) string {
	out := strings.Join(v.Wrong, "; ")
	if v.NoStep {
		out += " no step"
	}
	return out
}

func TestJudgeLost(t *testing.T) {
	rank1, server0 := victim{Number: 1, Ranks: 2}, victim{Server: true, Number: 0, Ranks: 2}
	server1 := victim{Server: true, Number: 1, Ranks: 2}
	for _, c := range []struct {
		name string
		who  victim
		e    ending
		want []string // of the complaints; none: right
	}{
		{"told twice, without a step", rank1, ending{Status: 1, Errs: rankKilled, Begun: true}, []string{"2 times", "no step"}},
		{"once, with a step", rank1, ending{Status: 1, Errs: "ringo: rank 1 is lost: killed by signal 9 (SIGKILL), in step 4,613 of epoch 75\n", Begun: true}, nil},
		{"a step without an epoch", rank1, ending{Status: 1, Errs: "ringo: step 3: rank 1 is lost\n", Begun: true}, []string{"no step"}},
		{"before the first step", rank1, ending{Status: 1, Errs: "ringo: rank 1 is lost: killed\n"}, nil},
		{"it did not join", rank1, ending{Status: 1, Errs: "ringo: rank 1 of 3 did not join within 8s: are they started, with the same ticket and rendezvous?\n"}, nil},
		{"it did not join its servers", rank1, ending{Status: 1, Errs: "ringo: rank 1 of 6, the last 2 of which are servers, did not join within 8s: are they started?\n"}, nil},
		{"another did not join", rank1, ending{Status: 1, Errs: "ringo: rank 2 of 3 did not join within 8s: are they started?\n"}, []string{"blames another", "does not say"}},
		{"a server is blamed for who did not join", rank1, ending{Status: 1, Errs: "ringo: parameter server 1 is lost: exit status 1; ranks 0 and 2 failed: rank 1 of 3 did not join within 8s\n"},
			[]string{"blames another"}},
		{"another is named", rank1, ending{Status: 1, Errs: "ringo: rank 0 is lost: killed\n"}, []string{"blames another", "does not say that rank 1"}},
		{"rank 11 is not rank 1", rank1, ending{Status: 1, Errs: "ringo: rank 11 is lost: killed\n"}, []string{"blames another"}},
		{"nothing is said", rank1, ending{Status: 0}, []string{"exit status 0", "does not say"}},
		{"a hang", rank1, ending{Status: -1, Overran: true, Errs: "rank 1 is lost\n"}, []string{"did not end"}},
		{"a stack trace", rank1, ending{Status: 2, Errs: "rank 1 is lost\n[rank 0] panic: runtime error\n"}, []string{"stack trace"}},
		{"something is left", rank1, ending{Status: 1, Errs: "rank 1 is lost\n", Leaked: []string{"process 7"}}, []string{"left behind: process 7"}},
		{"its black box shows it", rank1, ending{Status: 1, Errs: "rank 1 is lost\n  black box: operation 7 (barrier), in step 3: rank 1 had not begun it; rank 0 waited for rank 1\n"}, nil},
		{"its black box shows who waits for it alone", rank1, ending{Status: 1, Errs: "rank 1 is lost\n  black box: operation 7 (barrier), in step 3: rank 0 waited for rank 1\n"}, nil},
		{"its black box shows another", rank1, ending{Status: 1, Errs: "rank 1 is lost\n  black box: operation 7 (barrier), in step 3: rank 11 had not begun it; rank 0 waited for rank 11\n"}, []string{"black box shows another"}},
		{"a summing server", server0, ending{Status: 1, Errs: sumStopped}, []string{"2 times"}},
		{"the other summing server", server1, ending{Status: 1, Errs: sumStopped}, []string{"blames another", "does not say that server 1"}},
		{"a server of tables", server1, ending{Status: 1, Errs: tableKilled}, nil},
		{"a server of tables, in training", server1, ending{Status: 1, Errs: tableKilled, Begun: true}, []string{"no step"}},
		{"a stopped server of tables", server0, ending{Status: 1, Errs: tableStopped}, nil},
		{"a rank is blamed for its server", server0, ending{Status: 1, Errs: blamed}, []string{"blames another"}},
	} {
		checkVerdict(t, c.name, judgeLost(c.who, c.e), c.want)
	}
}

func checkVerdict(t *testing.T, name string, v verdict, want []string) {
	t.Helper()
	got := complaints(v)
	for _, w := range want {
		if !strings.Contains(got, w) {
			t.Errorf("%s: %q is not in %q", name, w, got)
		}
	}
	if len(want) == 0 && got != "" {
		t.Errorf("%s: %q, want nothing", name, got)
	}
}

func TestJudgeGoesOn(t *testing.T) {
	rank1 := victim{Number: 1, Ranks: 3}
	for _, c := range []struct {
		name string
		e    ending
		want []string
	}{
		{"it went on", ending{Out: wentOn, Errs: wentOnErrs}, nil},
		{"it ended", ending{Status: 1, Errs: "ringo: rank 1 is lost\n"}, []string{"exit status 1", "no parameters", "does not name"}},
		{"another is named", ending{Out: strings.Replace(wentOn, "(1)", "(2)", 1)}, []string{`names "2"`}},
		{"a healthy one, too", ending{Out: strings.Replace(wentOn, "1 rank lost on the way (1)", "2 ranks lost on the way (1, 2)", 1)}, []string{`names "1, 2"`}},
		{"nobody is named", ending{Out: trained}, []string{"does not name rank 1"}},
	} {
		checkVerdict(t, c.name, judgeGoesOn(rank1, c.e), c.want)
	}
}

func TestJudgeBack(t *testing.T) {
	who := victim{Server: true, Number: 0, Ranks: 2}
	for _, c := range []struct {
		name, want string
		e          ending
		complaint  []string
	}{
		{"the same bits", trainedSHA, ending{Out: trained, Errs: "ringo: parameter server 0 is lost: killed; it is started again\n"}, nil},
		{"any bits", "", ending{Out: trained}, nil},
		{"other bits", strings.Repeat("0", 64), ending{Out: trained}, []string{"want 00000000"}},
		{"it ended", trainedSHA, ending{Status: 1, Errs: tableStopped}, []string{"exit status 1"}},
		{"a rank is blamed", trainedSHA, ending{Out: trained, Errs: "ringo: rank 1 is lost: silent\n"}, []string{"blames another"}},
	} {
		checkVerdict(t, c.name, judgeBack(who, c.want, c.e), c.complaint)
	}
}

func TestJudgeDamaged(t *testing.T) {
	const path = "/tmp/x/saved/server-1/log/segment-1"
	for _, c := range []struct {
		name, got string
		e         ending
		complaint []string
	}{
		{"the same", "a", ending{}, nil},
		{"refused by name", "", ending{Status: 1, Errs: "ringo: " + path + " is damaged at offset 12\n"}, nil},
		{"refused by the end of its name", "", ending{Status: 1, Errs: "ringo: the job's log/segment-1 is damaged\n"}, nil},
		{"refused without its name", "", ending{Status: 1, Errs: "ringo: unexpected EOF\n"}, []string{"does not name"}},
		{"another result without a word", "b", ending{Out: "server 1 of 2: its checkpoint 2 has all\n"}, []string{"without a word"}},
		{"another result, told", "b", ending{Out: path + ": a torn tail of 12 bytes is left out\n"}, nil},
		{"its name alone is not a loss told", "b", ending{Out: "reading " + path + "\n"}, []string{"without a word"}},
		{"a panic", "a", ending{Errs: "panic: oh\n"}, []string{"stack trace"}},
	} {
		checkVerdict(t, c.name, judgeDamaged(path, "a", c.got, c.e), c.complaint)
	}
}

func TestJudgeInput(t *testing.T) {
	blame := []string{"train.tsv"}
	for _, c := range []struct {
		name     string
		mayTrain []string
		e        ending
		want     []string
	}{
		{"refused", nil, ending{Status: 1, Errs: "a line of progress\nringo: /tmp/train.tsv: line 65: want 40 columns\n"}, nil},
		{"refused twice", nil, ending{Status: 1, Errs: "ringo: /tmp/train.tsv: bad\nringo: rank 0 is lost\n"}, []string{"2 error lines"}},
		{"refused without the name", nil, ending{Status: 1, Errs: "ringo: bad data\n"}, []string{"names none"}},
		{"taken", nil, ending{Out: trained}, []string{"exit status 0"}},
		{"taken and told", []string{"20 bad"}, ending{Out: "20 bad lines left out\n" + trained}, nil},
		{"taken and not told", []string{"20 bad"}, ending{Out: trained}, []string{"told none"}},
		{"too much memory", nil, ending{Status: 1, PeakMiB: 5000, Errs: "ringo: train.tsv\n"}, []string{"5000 MiB"}},
		{"a hang", nil, ending{Overran: true, Status: -1}, []string{"did not end"}},
	} {
		checkVerdict(t, c.name, judgeInput(blame, c.mayTrain, c.e), c.want)
	}
}

func TestJudgePage(t *testing.T) {
	for status, right := range map[int]bool{0: true, 200: false, 204: false, 307: true, 400: true, 403: true, 431: true, 500: false, 501: true, 503: false} {
		var v verdict
		judgePage(&v, 0, hostileRequest{Kind: "a form"}, status, nil)
		if (len(v.Wrong) == 0) != right {
			t.Errorf("status %d: %q", status, v.Wrong)
		}
	}
}

// The first line that names the victim counts, not a later one.
func TestNamed(t *testing.T) {
	began := time.Now()
	var j job
	j.errs.lines = []line{{began.Add(time.Second), "[ps 0] ringo: rank 0 is slow"}, {began.Add(2 * time.Second), "ringo: rank 1 is lost"}, {began.Add(3 * time.Second), "ringo: rank 1 is lost"}}
	if got := j.named(victim{Number: 1, Ranks: 2}, began); got != 2*time.Second {
		t.Errorf("named after %v, want 2s", got)
	}
	if got := j.named(victim{Number: 0, Ranks: 2}, began); got != 0 {
		t.Errorf("rank 0 was named after %v", got)
	}
}

func TestTranscript(t *testing.T) {
	var tr transcript
	for _, part := range []string{"one\ntw", "o\nthr", "ee"} {
		if n, err := tr.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatal(n, err)
		}
	}
	if got := tr.String(); got != "one\ntwo\nthree" || len(tr.lines) != 2 {
		t.Errorf("%q, %d lines", got, len(tr.lines))
	}
}
