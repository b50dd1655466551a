package ringo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/distopt"
	sums "github.com/ringo-ml/ringo/internal/exchange"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/transport"
)

// The way of one lost rank from a link to the terminal: the text to read to learn who sees what of
// it, who decides, and what a person is told.
//
// The launcher is `ringo run`, and its coordinator decides. So that each stage can be told, and the
// order is the same every time, the ranks are here, over a mesh in memory; the processes that the
// launcher watches only stand in for them.
func TestPassageOfALoss(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the command")
	}
	s := newLossScene(t)
	sees := [2]*lossStory{{}, {}}
	meshes := mem.New(3)
	var ranks sync.WaitGroup
	for rank := range sees {
		meshes[rank] = &countingMesh{Mesh: meshes[rank], sends: make(chan int, 100)}
		ranks.Go(func() { s.survive(meshes[rank], rank, sees[rank]) })
	}
	ranks.Go(func() { s.perish(meshes[2]) })
	ranks.Wait()
	s.stands[0].say("exit 1")
	s.stands[1].say("exit 1")
	status, said := s.end()
	said = regexp.MustCompile(`(?m)^ringo: ranks are (not )?bound.*\n`).ReplaceAll(said, nil) // the machine's affair

	var got bytes.Buffer
	fmt.Fprintf(&got, "Rank 2 of 3 ends in step %d, before it sends anything of bucket %d: first its links break, then its launcher sees it.\n", lostStep, lastBucket)
	for rank := range sees {
		fmt.Fprintf(&got, "\n# rank %d\n\n%s", rank, sees[rank].text.Bytes())
	}
	fmt.Fprintf(&got, "\n# the terminal\n\n%s\n$? is %d\n", bytes.TrimSpace(said), status)
	compareGolden(t, "docs/passages/loss.txt", got.Bytes())
}

// lossScene is `ringo run` with three processes that stand in for the ranks.
type lossScene struct {
	t       *testing.T
	command *exec.Cmd
	out     bytes.Buffer
	stands  [3]*standIn
	stuck   [2]chan struct{} // a survivor can do no more without the lost rank
	failed  [2]chan struct{} // it has failed
}

// standIn is one of these processes.
type standIn struct {
	conn net.Conn
	standsFor
}

// standsFor is what it tells.
type standsFor struct {
	PID int
	Env launch.RankEnv
}

// say has it write a line, or "exit N".
func (s *standIn) say(order string) {
	fmt.Fprintln(s.conn, order)
	_, _ = s.conn.Read(make([]byte, 1)) // until it has, or has ended
}

const standVar = "LOSS_TEST_ADDRESS"

func newLossScene(t *testing.T) *lossScene {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "ringo")
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", binary, "./cmd/ringo")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	s := &lossScene{t: t, command: exec.Command(binary, "run", "--np", "3", "--", os.Args[0], "-test.run", "^TestStandIn$")}
	for i := range s.stuck {
		s.stuck[i], s.failed[i] = make(chan struct{}), make(chan struct{})
	}
	s.command.Env = append(os.Environ(), standVar+"="+listener.Addr().String())
	s.command.Stdout, s.command.Stderr = &s.out, &s.out
	if err := s.command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.command.Process.Kill() })
	for range s.stands {
		conn, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		stand := &standIn{conn: conn}
		if err := json.NewDecoder(conn).Decode(&stand.standsFor); err != nil {
			t.Fatal(err)
		}
		s.stands[stand.Env.Rank] = stand
	}
	return s
}

// TestStandIn is no test, but one of the processes that `ringo run` starts.
func TestStandIn(t *testing.T) {
	address, told := os.LookupEnv(standVar)
	if !told {
		t.Skip("only for another test")
	}
	env, _, err := launch.RankFromEnv(os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewEncoder(conn).Encode(standsFor{os.Getpid(), env}); err != nil {
		t.Fatal(err)
	}
	for orders := bufio.NewScanner(conn); orders.Scan(); {
		status := 0
		if n, _ := fmt.Sscanf(orders.Text(), "exit %d", &status); n == 1 {
			os.Exit(status)
		}
		fmt.Println(orders.Text())
		_, _ = conn.Write([]byte{'.'})
	}
}

// end waits for the launcher.
func (s *lossScene) end() (status int, said []byte) {
	late := time.AfterFunc(time.Minute, func() { _ = s.command.Process.Kill() })
	defer late.Stop()
	_ = s.command.Wait() // its state says how it ended
	return s.command.ProcessState.ExitCode(), s.out.Bytes()
}

// lossStory is what is told of one rank.
type lossStory struct{ text bytes.Buffer }

func (s *lossStory) line(stage, format string, args ...any) {
	fmt.Fprintf(&s.text, "%-10s %s\n", stage, fmt.Sprintf(format, args...))
}

// lastBucket is the bucket of step 1 that is never summed.
const lostStep, lastBucket = 1, 1

// survive is a rank that meets the loss, and tells layer by layer what it sees.
func (s *lossScene) survive(mesh transport.Mesh, rank int, tell *lossStory) {
	job, err := joinOver(s.t.Context(), s.stands[rank].Env, Config{Collective: collective.Config{Algorithm: collective.Ring}}, mesh)
	if err != nil {
		s.t.Error(err)
		return
	}
	counting := mesh.(*countingMesh)
	err = s.train(job, func() {
		counting.armed.Store(true)
		go func() { // a ring of three: rank 0 waits for rank 2 when it has sent one chunk, rank 1 for rank 0 after two
			for range rank + 1 {
				<-counting.sends
			}
			close(s.stuck[rank])
		}()
	})
	tellLayers(tell, err)
	tell.line("cluster", "the coordinator is told that rank %d cannot be reached", transport.Culprit(err, -1))
	close(s.failed[rank])
	best := job.Fail(err)
	tell.line("cluster", "the verdict: %v", context.Cause(job.Context()))
	tell.line("ringo", "the program's error: %v", best)
	if !Reported(best) {
		s.t.Errorf("the launcher of rank %d was not told", rank)
	}
	tell.line("launch", "it is told of this, and tells it once for all: the program is silent")
}

// perish is the rank that is lost.
func (s *lossScene) perish(mesh transport.Mesh) {
	job, err := joinOver(s.t.Context(), s.stands[2].Env, Config{Collective: collective.Config{Algorithm: collective.Ring}}, mesh)
	if err != nil {
		s.t.Error(err)
		return
	}
	_ = s.train(job, func() { // from here on it does nothing more
		for rank := range s.stuck {
			<-s.stuck[rank]
		}
		s.stands[2].say("the last line of rank 2")
		for rank := range s.failed {
			mesh.(transport.Cutter).Cut(rank)
		}
		for rank := range s.failed {
			<-s.failed[rank]
		}
		if err := syscall.Kill(s.stands[2].PID, syscall.SIGKILL); err != nil {
			s.t.Error(err)
		}
		<-job.Context().Done()
	})
	_ = job.Close()
}

// train trains for two steps of two buckets, each exchanged before the next begins, and calls at
// where the last one of all is to start.
func (s *lossScene) train(job *Job, at func()) error {
	gate := &gatedReducer{at: at}
	n, err := newTwoLayers(job.Group(), distopt.Config{Plan: distopt.PlanFixed, BucketBytes: 200}, &optim.SGD{LR: 0.1}, func(inner sums.Reducer) sums.Reducer {
		gate.Reducer = inner
		return gate
	})
	if err != nil {
		return err
	}
	defer n.reducer.Close()
	if err := n.opt.Broadcast(); err != nil {
		return err
	}
	for ; ; gate.step++ {
		n.backward(func(nn.ParamRange) {})
		if err := n.opt.Step(); err != nil {
			return err
		}
	}
}

// gatedReducer waits for each exchange where it starts.
type gatedReducer struct {
	sums.Reducer
	at         func()
	step, next int
	errs       []error
}

func (r *gatedReducer) Start(op *sums.Request) {
	if r.next == 0 {
		r.errs = r.errs[:0]
	}
	if r.step == lostStep && r.next == lastBucket {
		r.at()
	}
	r.Reducer.Start(op)
	_, err := r.Reducer.Wait(op)
	r.errs = append(r.errs, err)
	r.next = (r.next + 1) % (lastBucket + 1)
}

func (r *gatedReducer) Wait(*sums.Request) (time.Time, error) {
	err := r.errs[0]
	r.errs = r.errs[1:]
	return time.Now(), err
}

// countingMesh tells of messages that were sent.
type countingMesh struct {
	transport.Mesh
	armed atomic.Bool
	sends chan int
}

func (m *countingMesh) Send(to int, tag transport.Tag, p []byte, timeout time.Duration) error {
	err := m.Mesh.Send(to, tag, p, timeout)
	if m.armed.Load() {
		m.sends <- to
	}
	return err
}

// tellLayers tells what each layer says of a fault, the lowest first.
func tellLayers(tell *lossStory, err error) {
	var abort *transport.AbortError
	var link *transport.Error
	var op *collective.OpError
	var step *distopt.Error
	if errors.As(err, &link) {
		why := link.Err.Error()
		if errors.As(err, &abort) {
			why = "it has given up, too"
		}
		tell.line("transport", "%s, message %v, from rank %d: %s", link.Op, link.Tag, link.Peer, why)
	}
	if abort != nil {
		tell.line("transport", "rank %d has said why: %s", abort.Rank, abort.Reason)
	}
	if errors.As(err, &op) {
		tell.line("collective", "%s %d fails, and with it the group; to blame is rank %d", op.Op, op.Seq, op.Peer)
	}
	if errors.As(err, &step) {
		tell.line("distopt", "step %d, bucket %d of %d, which is %s", step.Step, step.Bucket, step.Buckets, step.First)
	}
}

// joinOver is Join of the rank that env names, over a given mesh: one that reports its calls, and
// links that a test cuts.
func joinOver(ctx context.Context, env launch.RankEnv, cfg Config, mesh transport.Mesh) (*Job, error) {
	cfg.Times = cfg.Times.WithDefaults()
	j := &Job{identity: identity{rank: env.Rank, size: env.WorldSize, launched: env.Launched}}
	j.life.parent = ctx
	j.life.begin(ctx)
	if err := j.findRankZero(&env, cfg); err != nil {
		return nil, err
	}
	if err := j.enterCluster(&env, cfg); err != nil {
		return nil, err
	}
	return j, j.start(mesh, cfg)
}
