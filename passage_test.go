package ringo

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/internal/bucket"
	sums "github.com/ringo-ml/ringo/internal/exchange"
	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/transport"
)

var update = flag.Bool("update", false, "write gradients.txt and loss.txt in docs/passages anew, to be read in review")

// The passage of a step's gradients from backward to the update, as each stage sees it on rank 0 of
// two: the text to read to learn what follows what, and the test that it does.
//
// Exchanges go on in the background of backward. Here each is waited for where it starts, so that
// the text is the same every time.
func TestPassageOfGradients(t *testing.T) {
	leakcheck.Check(t)
	var got bytes.Buffer
	for _, cfg := range []distopt.Config{
		{Plan: distopt.PlanFixed, BucketBytes: 200},
		{Strategy: distopt.FP16, Plan: distopt.PlanOne},
		{Strategy: distopt.SparseTopK, Spars: 0.1, Plan: distopt.PlanPerLayer},
	} {
		got.Write(passage(t, cfg))
	}
	compareGolden(t, "docs/passages/gradients.txt", got.Bytes())
}

// compareGolden compares a text with the one in a file, which -update writes anew.
func compareGolden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the passage is another now; if it is meant to be, go test -run %s -update . and read the difference:\n%s", t.Name(), got)
	}
}

// passage is the text of one step.
func passage(t *testing.T, cfg distopt.Config) []byte {
	lines := &story{messages: map[transport.Tag][]string{}}
	meshes := mem.New(2)
	meshes[0] = &toldMesh{meshes[0], lines}
	var ranks sync.WaitGroup
	for rank, mesh := range meshes {
		ranks.Go(func() {
			tell := lines
			if rank > 0 {
				tell = &story{messages: map[transport.Tag][]string{}} // nobody reads it
			}
			if err := oneStep(mesh, cfg, tell); err != nil {
				t.Errorf("rank %d: %v", rank, err)
				mesh.Abort(err)
			}
			mesh.Close()
		})
	}
	ranks.Wait()
	return lines.text.Bytes()
}

// oneStep trains for one step.
func oneStep(mesh transport.Mesh, cfg distopt.Config, tell *story) error {
	group, err := collective.New(mesh, collective.Config{Algorithm: collective.Ring})
	if err != nil {
		return err
	}
	defer group.Close()
	n, err := newTwoLayers(group, cfg, &toldSGD{optim.SGD{LR: 0.1}, tell}, func(inner sums.Reducer) sums.Reducer { return &toldReducer{inner, tell, nil} })
	if err != nil {
		return err
	}
	defer n.reducer.Close()
	if err := n.opt.Broadcast(); err != nil {
		return err
	}
	tell.begin("%s, plan %s; buckets: %d; messages are group/operation/part", cmp.Or(cfg.Strategy, distopt.FP32), cfg.Plan, len(n.opt.Plan()))
	n.backward(func(s nn.ParamRange) {
		tell.line("nn", "the gradient of %s is final: %d values at %d", s.Name, s.Len, s.Offset)
	})
	tell.line("nn", "backward has ended; Step is called")
	if err := n.opt.Step(); err != nil {
		return err
	}
	tell.line("distopt", "step %d is complete", n.opt.Steps()-1)
	return n.opt.Close()
}

// twoLayers is a model of two layers, each rank's with a batch of its own.
type twoLayers struct {
	params  *nn.Params
	tape    *nn.Tape
	forward func(*nn.Tape) *nn.Tensor
	reducer sums.Reducer // below what told made of it
	opt     *distopt.Optimizer
}

// newTwoLayers makes the model and its optimizer, whose exchanges go through what told makes of a
// Reducer.
func newTwoLayers(group *collective.Group, cfg distopt.Config, update optim.Optimizer, told func(sums.Reducer) sums.Reducer) (*twoLayers, error) {
	params := nn.NewParams(1)
	hidden, out := params.Dense("hidden", 3, 16), params.Dense("out", 16, 2)
	x, labels := nn.NewTensor(4, 3), []int32{0, 1, 1, 0}
	for i := range x.Data {
		x.Data[i] = float32((i+group.Rank())%5) - 2
	}
	n := &twoLayers{params: params, tape: nn.NewTape(nn.TapeConfig{})}
	n.forward = func(tape *nn.Tape) *nn.Tensor {
		loss, _ := tape.SoftmaxCrossEntropy(tape.Dense(tape.Dense(x, hidden, nn.Tanh), out, nn.Identity), labels)
		return loss
	}
	if err := params.Arrange(n.forward); err != nil {
		return nil, err
	}
	var layers []bucket.Param
	for _, s := range params.Slots() {
		layers = append(layers, bucket.Param{Name: s.Name, Offset: s.Offset, Len: s.Padded, Pad: s.Padded - s.Len})
	}
	var err error
	if n.reducer, err = sums.NewGroupReducer(group, sums.Config{}); err != nil {
		return nil, err
	}
	cfg.Reducer = told(n.reducer)
	n.opt, err = distopt.New(group, update, layers, params.Values(), params.Grads(), nil, cfg)
	return n, err
}

// backward computes the gradients and hands each out when it is final, after see has seen it.
func (n *twoLayers) backward(see func(nn.ParamRange)) {
	n.tape.Backward(n.forward(n.tape), func(slot int) {
		see(n.params.Slots()[slot])
		n.opt.GradReady(slot)
	})
	n.tape.Reset()
}

// story is what stages tell, and the messages of what is under way.
type story struct {
	mu       sync.Mutex
	text     bytes.Buffer
	messages map[transport.Tag][]string
}

// begin forgets what came before: making the optimizer has messages, too.
func (s *story) begin(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.messages)
	fmt.Fprintf(&s.text, "# %s\n\n", fmt.Sprintf(format, args...))
}

func (s *story) line(stage, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(&s.text, "%-10s %s\n", stage, fmt.Sprintf(format, args...))
	if strings.HasSuffix(format, "complete") {
		s.text.WriteByte('\n')
	}
}

func (s *story) message(tag transport.Tag, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.messages[tag] = append(s.messages[tag], fmt.Sprintf(format, args...))
}

// tellMessages tells those of an exchange that has ended, in the order of operations and of their
// parts: they come in any.
func (s *story) tellMessages() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var tags []transport.Tag
	for tag := range s.messages {
		tags = append(tags, tag)
	}
	slices.SortFunc(tags, func(a, b transport.Tag) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Part, b.Part))
	})
	for _, tag := range tags {
		slices.Sort(s.messages[tag])
		for _, what := range s.messages[tag] {
			fmt.Fprintf(&s.text, "%-10s     message %v: %s\n", "transport", tag, what)
		}
	}
	clear(s.messages)
}

// toldMesh tells of messages.
type toldMesh struct {
	transport.Mesh
	tell *story
}

func (m *toldMesh) Send(to int, tag transport.Tag, p []byte, timeout time.Duration) error {
	m.tell.message(tag, "sends %d bytes to rank %d", len(p), to)
	return m.Mesh.Send(to, tag, p, timeout)
}

func (m *toldMesh) Post(r *transport.Recv, from int, tag transport.Tag, dst []byte) {
	m.tell.message(tag, "receives %d bytes from rank %d", len(dst), from)
	m.Mesh.Post(r, from, tag, dst)
}

// toldReducer tells of exchanges, and waits for each where it starts.
type toldReducer struct {
	sums.Reducer
	tell *story
	done map[*sums.Request]error
}

func (r *toldReducer) Start(op *sums.Request) {
	what, code := "all its values leave as %s", "fp32"
	if op.Code != nil {
		code = op.Code.Name()
	}
	if op.Sparse != nil {
		what = fmt.Sprintf("of its values the %d largest leave as %%s, the others are kept for later steps", op.Sparse.Count())
	}
	r.tell.line("exchange", "the bucket from %d to %d is complete: %s", op.Lo, op.Lo+len(op.X), fmt.Sprintf(what, code))
	r.Reducer.Start(op)
	_, err := r.Reducer.Wait(op)
	r.tell.tellMessages()
	if r.done == nil {
		r.done = map[*sums.Request]error{}
	}
	r.done[op] = err
}

func (r *toldReducer) Wait(op *sums.Request) (time.Time, error) {
	r.tell.line("exchange", "the bucket from %d to %d is summed: %s, %d bytes sent", op.Lo, op.Lo+len(op.X), op.Sent.Algorithm, op.Sent.Bytes)
	return time.Now(), r.done[op]
}

// toldSGD tells of updates.
type toldSGD struct {
	optim.SGD
	tell *story
}

func (o *toldSGD) Update(lo int, params, grads []float32, scale float32) {
	o.tell.line("optim", "sgd updates the parameters from %d to %d by %v of the sums", lo, lo+len(params), scale)
	o.SGD.Update(lo, params, grads, scale)
}
