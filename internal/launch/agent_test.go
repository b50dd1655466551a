package launch

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/leakcheck"
)

// talk is a test in the place of a job's launcher, and what it has with a host's.
type talk struct {
	t     *testing.T
	say   io.WriteCloser
	out   map[int]string // what processes have written
	ended chan error
	heard chan frame
	stop  context.CancelFunc
}

// attended starts a host's launcher, which a test tells what to do.
func attended(t *testing.T, cfg AgentConfig) *talk {
	t.Helper()
	leakcheck.Check(t)
	in, say := io.Pipe()
	hear, out := io.Pipe()
	ctx, stop := context.WithCancel(context.Background())
	k := &talk{t: t, say: say, out: map[int]string{}, ended: make(chan error, 1), heard: make(chan frame, 1000), stop: stop}
	go func() {
		k.ended <- RunAgent(ctx, in, out, cfg)
		_ = out.Close()
	}()
	go func() {
		defer close(k.heard)
		for {
			f, err := readFrame(hear)
			if err != nil {
				return
			}
			k.heard <- f
		}
	}()
	t.Cleanup(func() { stop(); _ = say.Close() })
	return k
}

func (k *talk) tell(f frame) {
	k.t.Helper()
	if err := writeFrame(k.say, f); err != nil {
		k.t.Fatal(err)
	}
}

// want is the next frame of a kind; output before it is kept, and signs of life are not counted.
func (k *talk) want(kind frameKind, into any) frame {
	k.t.Helper()
	for {
		select {
		case f, ok := <-k.heard:
			switch {
			case !ok:
				k.t.Fatalf("it has ended before %q", kind)
			case f.kind == kind:
				if into != nil {
					if err := f.read(into); err != nil {
						k.t.Fatal(err)
					}
				}
				return f
			case f.kind == frameOut, f.kind == frameErr:
				k.out[f.number] += string(f.body)
			case f.kind != frameHeartbeat:
				k.t.Fatalf("%q %q comes, want %q", f.kind, f.body, kind)
			}
		case <-time.After(patience):
			k.t.Fatalf("no %q comes", kind)
		}
	}
}

// begins says the first words, and that processes work in a folder.
func (k *talk) begins(dir string, silent time.Duration) {
	k.t.Helper()
	k.want(frameHost, nil)
	k.tell(jsonFrame(frameBegin, 0, agentHello{Dir: dir, Env: []string{"SAID=by the launcher"}, Beat: 20 * time.Millisecond, Silent: silent, Join: time.Minute}))
}

// shell has roles of so many processes each, which are a shell's scripts.
func (k *talk) shell(script string, counts ...int) readiness {
	k.t.Helper()
	var roles []agentRole
	for _, n := range counts {
		roles = append(roles, agentRole{Role: Role{Name: "worker", Command: []string{"sh", "-c", script}, Listens: true}, Count: n})
	}
	k.tell(jsonFrame(frameRoles, 0, roles))
	var r readiness
	k.want(frameReady, &r)
	return r
}

// ends closes the launcher's side, and wants the host's to end.
func (k *talk) ends() error {
	k.t.Helper()
	_ = k.say.Close()
	select {
	case err := <-k.ended:
		return err
	case <-time.After(patience):
		k.t.Fatal("it does not end")
	}
	return nil
}

// A host's launcher makes sockets, starts processes with both environments in the folder that it is told, sends what they write, and says
// how they have ended.
func TestAttend(t *testing.T) {
	dir := t.TempDir()
	k := attended(t, AgentConfig{Version: "1", Hash: "h", Env: append(os.Environ(), "HERE=there", RankVar+"=9"), Reached: "10.0.0.1 1 127.0.0.1 22"})
	k.begins(dir, time.Minute)
	r := k.shell("printf '%s\\n' \"$HERE, $SAID, $MORE, $"+RankVar+"\" \"$(pwd)\"; echo oh >&2; exit 3", 2, 1)
	if r.Fault != "" || len(r.Addrs) != 2 || len(r.Addrs[0]) != 2 || len(r.Addrs[1]) != 1 || !strings.HasPrefix(r.Addrs[0][1], "127.0.0.1:") {
		t.Fatalf("%+v", r)
	}
	k.tell(jsonFrame(frameStart, 7, startOrder{Role: 0, Seat: 1, Env: []string{"MORE=of this one"}}))
	var s started
	if k.want(frameStarted, &s); s.Fault != "" || s.PID < 2 {
		t.Fatalf("%+v", s)
	}
	var e exit
	if f := k.want(frameExit, &e); f.number != 7 || e.ExitStatus != "exit status 3" {
		t.Errorf("%d: %+v", f.number, e)
	}
	k.want(frameDrained, nil)
	real, _ := filepath.EvalSymlinks(dir)
	for _, want := range []string{"there, by the launcher, of this one, \n" + real + "\n", "oh\n"} {
		if !strings.Contains(k.out[7], want) {
			t.Errorf("%q is not in %q", want, k.out[7])
		}
	}
	k.tell(frame{kind: frameRecord, number: 7}) // it has recorded nothing, and that is told
	if f := k.want(frameMemory, nil); f.number != 7 {
		t.Errorf("%+v", f)
	}
	if err := k.ends(); err != nil {
		t.Error(err)
	}
}

// Of a process that ends at once the start is told before the end: who starts it would wait for that in vain.
func TestAttendTellsTheStartFirst(t *testing.T) {
	k := attended(t, AgentConfig{Version: "1", Hash: "h", Env: os.Environ()})
	k.begins(t.TempDir(), time.Minute)
	k.shell("exit", 1)
	for range 50 {
		k.tell(jsonFrame(frameStart, 1, startOrder{}))
		for _, kind := range []frameKind{frameStarted, frameExit, frameDrained} {
			k.want(kind, nil)
		}
	}
	if err := k.ends(); err != nil {
		t.Error(err)
	}
}

// Orders that make no sense are refused, one by one, and what comes later is done.
func TestAttendRefuses(t *testing.T) {
	k := attended(t, AgentConfig{Env: os.Environ(), Reached: "10.0.0.1 1 127.0.0.1 22"})
	k.begins(t.TempDir(), time.Minute)
	var s started
	start := func(order any, want string) {
		t.Helper()
		k.tell(jsonFrame(frameStart, 1, order))
		if k.want(frameStarted, &s); !strings.Contains(s.Fault, want) {
			t.Errorf("%v: %q, want %q", order, s.Fault, want)
		}
		s = started{}
	}
	start(startOrder{}, "process 0 of role 0 was not prepared")
	if r := k.shell("exit 0", 1); r.Fault != "" {
		t.Fatal(r.Fault)
	}
	start(startOrder{Seat: 1}, "process 1 of role 0 was not prepared")
	start(startOrder{Seat: -1}, "process -1 of role 0")
	start(startOrder{Role: 1}, "process 0 of role 1")
	start(startOrder{Role: -1}, "process 0 of role -1")
	start("what?", "cannot unmarshal")
	k.tell(frame{kind: frameSignal, number: 5, body: []byte{byte(syscall.SIGTERM)}}) // to nobody
	k.tell(frame{kind: frameKind('?')})                                              // of a later version
	start(startOrder{}, "")
	k.want(frameExit, nil)
	k.want(frameDrained, nil)
	k.tell(jsonFrame(frameRoles, 0, []agentRole{{Role: Role{Name: "none", Command: []string{"no-such-program"}}, Count: 1}}))
	var r readiness
	if k.want(frameReady, &r); !strings.Contains(r.Fault, "no-such-program") {
		t.Errorf("%+v", r)
	}
	k.tell(frame{kind: frameRoles, body: []byte("[")})
	if k.want(frameReady, &r); !strings.Contains(r.Fault, "frame 'R' of a launcher") {
		t.Errorf("%+v", r)
	}
	if err := k.ends(); err != nil {
		t.Error(err)
	}
}

// First words that make no sense end it, and so does silence; a folder that is not there does not.
func TestAttendEnds(t *testing.T) {
	for name, body := range map[string]string{"none": "", "no JSON": "hello", "no heartbeat": "{}", "no limit": `{"Beat": 1000}`} {
		k := attended(t, AgentConfig{Env: os.Environ()})
		k.want(frameHost, nil)
		k.tell(frame{kind: frameBegin, body: []byte(body)})
		if err := k.ends(); err == nil || !strings.Contains(err.Error(), "cannot be read") {
			t.Errorf("%s: %v", name, err)
		}
	}
	k := attended(t, AgentConfig{Env: os.Environ()})
	k.begins("/no/such/folder", 200*time.Millisecond)
	if f := k.want(frameReport, nil); !strings.Contains(string(f.body), "there is no folder /no/such/folder there: its processes work in /") {
		t.Errorf("%q", f.body)
	}
	select {
	case err := <-k.ended:
		if err == nil || err.Error() != "the job's launcher shows no sign of life for 200ms" {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("silence does not end it")
	}
	k = attended(t, AgentConfig{Env: os.Environ()})
	k.begins(t.TempDir(), time.Minute)
	k.stop()
	if err := <-k.ended; err != context.Canceled {
		t.Error(err)
	}
}

// A process is signalled by its number, and how each ends is told.
func TestAttendSignals(t *testing.T) {
	k := attended(t, AgentConfig{Env: os.Environ(), Reached: "10.0.0.1 1 127.0.0.1 22"})
	k.begins(t.TempDir(), time.Minute)
	k.shell(`trap "echo told; exit 4" TERM; echo up; while :; do sleep 0.01; done`, 2)
	for seat := range 2 {
		k.tell(jsonFrame(frameStart, seat+1, startOrder{Seat: seat}))
		k.want(frameStarted, nil)
	}
	for !strings.Contains(k.out[1], "up\n") { // the trap is set before
		f := k.want(frameOut, nil)
		k.out[f.number] += string(f.body)
	}
	k.tell(frame{frameSignal, 1, []byte{byte(syscall.SIGTERM)}})
	var e exit
	for e.ExitStatus == "" {
		f := <-k.heard
		switch k.out[f.number] += string(f.body); f.kind {
		case frameExit:
			if err := f.read(&e); err != nil || f.number != 1 || e.ExitStatus != "exit status 4" {
				t.Errorf("%d: %+v, %v", f.number, e, err)
			}
		}
	}
	k.want(frameDrained, nil)
	k.tell(frame{frameSignal, 2, []byte{byte(syscall.SIGKILL)}})
	if f := k.want(frameExit, &e); f.number != 2 || e.ExitStatus != "killed by signal 9 (SIGKILL)" {
		t.Errorf("%d: %+v", f.number, e)
	}
	if err := k.ends(); err != nil {
		t.Error(err)
	}
}
