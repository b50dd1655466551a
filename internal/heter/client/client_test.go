package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/heter"
	"github.com/ringo-ml/ringo/internal/heter/service"
	"github.com/ringo-ml/ringo/internal/heter/sharedmem"
	"github.com/ringo-ml/ringo/internal/server/message"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/transport"
)

// batches are those of a trainer.
func (r *rig) batches(trainer int) (all []model.Batch) {
	of := rand.New(rand.NewPCG(uint64(trainer), 9))
	for range r.steps {
		all = append(all, batch(r.spec, of, 32))
	}
	return all
}

// oracle does all trainers' steps on one device in this process, and returns the losses by trainer and step, and the parameters.
func (r *rig) oracle() (losses [][]float32, values []float32) { return r.mutant(1, 32) }

// mutant is oracle with gradients multiplied by scale, and only the first samples of a batch.
func (r *rig) mutant(scale float32, samples int) (losses [][]float32, values []float32) {
	d := device(r.t, r.spec, r.cut, r.rule)
	r.t.Cleanup(d.Close)
	losses = make([][]float32, r.config.Trainers)
	var sides []*heter.Trainer
	for range losses {
		sides = append(sides, side(r.t, r.spec, r.cut, 1, heter.Local{Device: d}))
	}
	for step := range r.steps {
		for i, tr := range sides {
			pass, err := tr.Backward(head(r.batches(i)[step], samples), 0, nil)
			must(r.t, err)
			losses[i] = append(losses[i], pass.Loss.Mean.Data[0])
		}
		must(r.t, d.Update(rate, scale/float32(len(losses))))
	}
	return losses, d.Values()
}

// Trainers and heter-trainers in any mix, over links, compute what one process does: the same bits with one of each and one
// micro-batch, and nearly the same otherwise. All heter-trainers end with the same bits.
//
// invariant[heter-slot]: results are those of their micro-batch, with more micro-batches than slots, too.
func TestMixes(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) { testMixes(t, way.set) })
	}
}

func testMixes(t *testing.T, way func(*service.Config)) {
	for _, mix := range [][3]int{{1, 1, 1}, {1, 1, 5}, {2, 1, 1}, {1, 2, 1}, {1, 2, 4}, {3, 2, 2}, {2, 2, 32}} {
		t.Run(fmt.Sprint(mix), func(t *testing.T) {
			trainers, heters, micros := mix[0], mix[1], mix[2]
			r := newRig(t, trainers, heters, way)
			want, values := r.oracle()
			got := make([][]float32, trainers)
			r.all(func(i int) error {
				c := r.dial(i)
				tr := side(t, r.spec, r.cut, micros, c)
				for _, b := range r.batches(i) {
					pass, err := tr.Backward(b, 0, func(int) {})
					if err != nil {
						return err
					}
					got[i] = append(got[i], pass.Loss.Mean.Data[0])
					if err := tr.End(rate); err != nil {
						return err
					}
				}
				final := make([]float32, c.Len())
				if err := c.Values(final); err != nil {
					return err
				}
				if d := furthest(final, values); d > 1e-5 {
					return fmt.Errorf("parameters are %v off", d)
				}
				return c.Leave()
			})
			for _, end := range r.ends {
				must(t, <-end)
			}
			for i := range got {
				if d := furthest(got[i], want[i]); d > 1e-5 || mix == [3]int{1, 1, 1} && d != 0 {
					t.Errorf("losses of trainer %d: %v, want %v", i, got[i], want[i])
				}
			}
			for _, d := range r.devices {
				if !slices.Equal(d.Values(), r.devices[0].Values()) {
					t.Error("heter-trainers differ")
				}
			}
		})
	}
}

// head returns the first samples of a batch.
func head(b model.Batch, n int) model.Batch {
	b.IDs, b.Labels = b.IDs[:n*len(b.IDs)/b.N], b.Labels[:n*len(b.Labels)/b.N]
	width := len(b.Values.Data) / b.N
	b.Values = &nn.Tensor{Shape: []int{n, width}, Data: b.Values.Data[:n*width]}
	b.N = n
	return b
}

// hundredSteps are the rules of TestHundredSteps, with the largest distance of losses and
// parameters from those of one process.
var hundredSteps = map[string]struct {
	rule func() optim.Optimizer
	near float64
}{
	"sgd":     {sgd, 1e-6},
	"adagrad": {func() optim.Optimizer { return &optim.Adagrad{LR: rate, Eps: 1e-8} }, 1e-4},
}

// TestHundredSteps compares losses and parameters of 100 steps with those of one process, for any
// mix and any number of micro-batches: to 1e-6 with SGD and to 1e-4 with Adagrad. A lost
// micro-batch ends it after patience, by name.
func TestHundredSteps(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for mix, micros := range map[[2]int][]int{{1, 1}: {64}, {1, 2}: {2}, {3, 2}: {2, 64}} {
		for _, micros := range micros {
			for name, c := range hundredSteps {
				well := t.Run(fmt.Sprint(mix, micros, name), func(t *testing.T) {
					r := newRigOf(t, mix[0], mix[1], c.rule, nil)
					r.steps, r.near = 100, c.near
					r.run(micros, func(int, string) {})
					r.checkLeft()
				})
				if !well {
					return // a fault of one mix is one of the next ones, each after the same wait
				}
			}
		}
	}
}

// TestHundredStepsDetectsWrongGradients checks that gradients of another scale, and a sample of
// each batch that is dropped, are further from one process than TestHundredSteps allows. Adagrad
// hides a scale by its rule: for it the sample is dropped.
func TestHundredStepsDetectsWrongGradients(t *testing.T) {
	for name, c := range hundredSteps {
		r := &rig{t: t, spec: spec(t), rule: c.rule, steps: 100, config: Config{Trainers: 2}}
		var err error
		r.cut, err = heter.Find(r.spec, model.Options{}, nil)
		must(t, err)
		losses, values := r.oracle()
		for wrong, of := range map[string]struct {
			scale   float32
			samples int
		}{"scaled by 1.01": {1.01, 32}, "without a sample": {1, 31}} {
			if name == "adagrad" && of.scale != 1 {
				continue
			}
			l, v := r.mutant(of.scale, of.samples)
			loss, value := furthest(slices.Concat(l...), slices.Concat(losses...)), furthest(v, values)
			if loss < 10*c.near || value < 10*c.near {
				t.Errorf("%s, gradients %s: losses are %.2g off and parameters %.2g, TestHundredSteps allows %.2g", name, wrong, loss, value, c.near)
			}
		}
	}
}

func furthest(x, y []float32) (most float64) {
	for i := range x {
		most = max(most, math.Abs(float64(x[i]-y[i])))
	}
	return most
}

// In fewer bits the losses are near those of float32, and the same in each way.
func TestCodes(t *testing.T) {
	for code, nearly := range map[message.Code]float64{message.FP32: 1e-6, message.BF16: 5e-3, message.FP16: 1e-3, message.Int8: 1e-2} {
		var all [][]float32
		for _, way := range ways[:2] {
			r := newRig(t, 1, 1, way.set)
			r.config.Code = code
			want, _ := r.oracle()
			c := r.dial(0)
			tr := side(t, r.spec, r.cut, 2, c)
			var got []float32
			for i, b := range r.batches(0) {
				pass, err := tr.Backward(b, 0, func(int) {})
				must(t, err)
				got = append(got, pass.Loss.Mean.Data[0])
				if d := math.Abs(float64(got[i] - want[0][i])); d > nearly || d == 0 && code != message.FP32 {
					t.Errorf("%v, step %d: loss %v, as float32 %v", code, i+1, got[i], want[0][i])
				}
				must(t, tr.End(rate))
			}
			pass, err := tr.Evaluate(r.batches(0)[0])
			must(t, err)
			if pass.Outputs[0].Shape[0] != 32 || !(pass.Loss.Mean.Data[0] < want[0][0]) {
				t.Errorf("%v: an evaluation of outputs %v has the loss %v", code, pass.Outputs[0].Shape, pass.Loss.Mean.Data[0])
			}
			got = append(append(got, pass.Loss.Mean.Data[0]), pass.Outputs[0].Data...)
			final := make([]float32, c.Len())
			must(t, c.Values(final))
			all = append(all, append(got, final...))
			must(t, c.Leave())
			must(t, <-r.ends[0])
		}
		if !slices.Equal(all[0], all[1]) {
			t.Errorf("%v: through memory losses, outputs or parameters are not those over the link", code)
		}
	}
}

// What is encrypted on its way stays so: who asks for TLS on one host gets it for micro-batches, which then do not lie in shared memory, and the same bits.
func TestEncrypted(t *testing.T) {
	tls := transport.TLS{Mode: transport.TLSOn}
	r := newRig(t, 1, 1, func(c *service.Config) { c.Ticket = c.Ticket.(transport.Ticket).Under(tls) })
	r.config.Ticket = r.config.Ticket.(transport.Ticket).Under(tls)
	want, values := r.oracle()
	c := r.dial(0)
	if k := c.links[0]; k.welcome.ShmSocket != (sharedmem.Name{}) || k.welcome.Key != (sharedmem.Key{}) || k.view != nil {
		t.Errorf("it is offered memory: %+v", k.welcome)
	}
	tr := side(t, r.spec, r.cut, 1, c)
	for i, b := range r.batches(0) {
		pass, err := tr.Backward(b, 0, func(int) {})
		must(t, err)
		if got := pass.Loss.Mean.Data[0]; got != want[0][i] {
			t.Errorf("step %d: loss %v, want %v", i+1, got, want[0][i])
		}
		must(t, tr.End(rate))
	}
	final := make([]float32, c.Len())
	must(t, c.Values(final))
	if !slices.Equal(final, values) {
		t.Error("parameters differ")
	}
	must(t, c.Leave())
	must(t, <-r.ends[0])
}

// Strangers, and who has another part, are refused by name.
func TestRefused(t *testing.T) {
	r := newRig(t, 1, 1, nil)
	for want, change := range map[string]func(*Config){
		"heter: trainer 0: heter-trainer 0 at " + r.config.Addrs[0] + " is lost: it failed: this heter-trainer has another part of a model (that of ctr-dnn": func(c *Config) {
			other := *c.Cut
			other.Hash[0]++
			c.Cut = &other
		},
		"looks for heter-trainer 0 of 1; this is 0 of 1, for 1 trainers": func(c *Config) { c.Trainers = 2 },
		transport.ErrTicket.Error():                                      func(c *Config) { c.Ticket = transport.NewTicket() },
	} {
		cfg := r.config
		change(&cfg)
		if _, err := Dial(context.Background(), cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	c := r.dial(0)
	if _, err := Dial(context.Background(), r.config); err == nil || !strings.Contains(err.Error(), "connected already") {
		t.Errorf("a second trainer 0: %v", err)
	}
	other := r.config
	cut := *other.Cut
	cut.Hash[0]++
	other.Cut = &cut
	if _, err := Dial(context.Background(), other); err == nil || !strings.Contains(err.Error(), "trainer 0 has another part of a model") || errors.As(err, new(*transport.ServerLostError)) {
		t.Errorf("a trainer of another part than one before it: %v", err)
	}
	other = r.config
	other.About = []byte("more rows")
	if _, err := Dial(context.Background(), other); err == nil || !strings.Contains(err.Error(), "says otherwise than other trainers") {
		t.Errorf("a trainer of another model: %v", err)
	}
	must(t, c.Leave())
	must(t, <-r.ends[0])
}

// Who waits for a welcome stops when the context ends.
func TestStopsWaitingForWelcome(t *testing.T) {
	opening, stopped := make(chan struct{}), make(chan struct{})
	r := newRig(t, 1, 1, func(c *service.Config) {
		open := c.Open
		c.Open = func(about []byte) (*heter.Cut, heter.Device, error) {
			close(opening)
			<-stopped
			return open(about)
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-opening
		cancel()
	}()
	late := time.AfterFunc(10*time.Second, func() {
		t.Error("it still waits")
		close(stopped)
	})
	if _, err := Dial(ctx, r.config); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if late.Stop() {
		close(stopped)
	}
	r.stops[0]()
	<-r.ends[0]
}

// held is a device that computes when it is let.
type held struct {
	*heter.CPU
	begun, let chan struct{}
}

func (d held) Run(m *heter.MicroBatch) error {
	close(d.begun)
	<-d.let
	return d.CPU.Run(m)
}

// Values that come when their caller has given up are not written to its memory, and not taken for those of the next one.
func TestLateValues(t *testing.T) {
	begun, let := make(chan struct{}), make(chan struct{})
	r := newRig(t, 1, 1, func(c *service.Config) {
		open := c.Open
		c.Open = func(about []byte) (*heter.Cut, heter.Device, error) {
			cut, d, err := open(about)
			return cut, held{d.(*heter.CPU), begun, let}, err
		}
	})
	c := r.dial(0)
	m := &heter.MicroBatch{}
	m.Size(r.cut, 1)
	must(t, c.Send(m))
	<-begun
	late, now, usual := make([]float32, c.Len()), make([]float32, c.Len()), c.cfg.Timeout
	c.cfg.Timeout = 20 * time.Millisecond
	if err := c.Values(late); !errors.Is(err, transport.ErrTimeout) {
		t.Error(err)
	}
	c.cfg.Timeout = usual
	close(let)
	must(t, c.Wait(m))
	must(t, c.Values(now))
	if furthest(late, make([]float32, len(late))) != 0 || furthest(now, r.devices[0].Values()) != 0 {
		t.Error("values were written to the memory of who had given up, or are others")
	}
	must(t, c.Leave())
	must(t, <-r.ends[0])
}

// A batch that is larger than heter-trainers take is refused with what to do.
func TestTooManySamples(t *testing.T) {
	r := newRig(t, 1, 1, func(c *service.Config) { c.Samples = 10 })
	c := r.dial(0)
	_, err := side(t, r.spec, r.cut, 2, c).Backward(r.batches(0)[0], 0, nil)
	if err == nil || !strings.Contains(err.Error(), "a micro-batch of 16 samples: heter-trainer 0 takes 10 at most; use more micro-batches") {
		t.Error(err)
	}
}

// With fewer credits than micro-batches all come through.
func TestCredits(t *testing.T) {
	r := newRig(t, 1, 2, func(c *service.Config) { c.Micros, c.Bytes = 2, 1 })
	c := r.dial(0)
	tr := side(t, r.spec, r.cut, 16, c)
	for _, b := range r.batches(0) {
		_, err := tr.Backward(b, 0, func(int) {})
		must(t, err)
		must(t, tr.End(rate))
	}
	if times := tr.Times(); times.Pool.Busy == 0 || times.Back.Busy == 0 || times.Back.Starved == 0 || times.Send.Busy == 0 || times.Send.Blocked == 0 {
		t.Errorf("times %+v", times)
	}
	must(t, c.Leave())
	for _, end := range r.ends {
		must(t, <-end)
	}
}

// A heter-trainer that ends is named, with its step, and so is a trainer that ends, with its reason.
func TestLost(t *testing.T) {
	r := newRig(t, 1, 1, nil)
	c := r.dial(0)
	tr := side(t, r.spec, r.cut, 2, c)
	_, err := tr.Backward(r.batches(0)[0], 0, func(int) {})
	must(t, err)
	must(t, tr.End(rate))
	r.stops[0]()
	if err := <-r.ends[0]; err == nil || !strings.Contains(err.Error(), "heter-trainer 0: context canceled") {
		t.Error(err)
	}
	if _, err := tr.Backward(r.batches(0)[1], 0, func(int) {}); err == nil || !strings.Contains(err.Error(), "context canceled") {
		t.Errorf("after its end: %v", err)
	}
	c.Abort(nil)

	r = newRig(t, 2, 1, nil)
	one, two := r.dial(0), r.dial(1)
	two.Abort(errors.New("rank 7 is lost"))
	if err := <-r.ends[0]; err == nil || !strings.Contains(err.Error(), "heter-trainer 0: trainer 1: it has ended: rank 7 is lost") {
		t.Error(err)
	}
	_, err = side(t, r.spec, r.cut, 2, one).Backward(r.batches(0)[0], 0, nil)
	if err == nil || !strings.Contains(err.Error(), "trainer 1: it has ended: rank 7 is lost") {
		t.Errorf("the other trainer: %v", err)
	}
}

// The next micro-batch goes where it will be done first.
func TestChoose(t *testing.T) {
	ms := time.Millisecond
	for _, c := range []struct {
		loads []load
		last  int
		want  int
	}{
		{[]load{{}, {}, {}}, 0, 1},
		{[]load{{}, {}, {}}, 2, 0},
		{[]load{{under: 10}, {}, {under: 5}}, 0, 1},
		{[]load{{each: ms}, {each: 3 * ms}}, 0, 0},
		{[]load{{each: ms, under: 19}, {each: 3 * ms}}, 0, 0},
		{[]load{{each: ms, under: 30}, {each: 3 * ms}}, 0, 1},
		{[]load{{each: ms, full: true}, {each: 30 * ms}}, 0, 1},
		{[]load{{lost: true}, {full: true}}, 0, -1},
		{[]load{{each: ms, under: 10}, {each: ms, transferTime: 9 * ms}}, 0, 1},
		{[]load{{each: ms, under: 10}, {each: ms, transferTime: 11 * ms}}, 0, 0},
	} {
		if got := choose(c.loads, (c.last+1)%len(c.loads), 10, 1, 0); got != c.want {
			t.Errorf("%+v after %d: %d, want %d", c.loads, c.last, got, c.want)
		}
	}
	for _, c := range []struct {
		under    int // samples at home, 0
		gradient time.Duration
		want     int
	}{{9, 0, 0}, {11, 0, 1}, {11, 10 * ms, 1}, {11, 12 * ms, 0}, {30, 29 * ms, 1}, {30, 31 * ms, 0}} {
		if got := choose([]load{{each: ms, under: c.under}, {each: ms}}, 0, 10, 2, c.gradient); got != c.want {
			t.Errorf("%d samples at home, a gradient takes %v: %d, want %d", c.under, c.gradient, got, c.want)
		}
	}
	dealt := [2]int{} // of two, one thrice as fast, it gets three of four
	loads := []load{{each: ms}, {each: 3 * ms}}
	for range 400 {
		i := choose(loads, 1, 1, 1, 0)
		dealt[i]++
		loads[i].under++
	}
	if dealt[0] < 295 || dealt[0] > 305 {
		t.Errorf("dealt %v", dealt)
	}
}

// A trainer that has said goodbye to one member has left well, whatever became of the others: two errors of one do not count twice, and one that came
// late is no member.
func TestParted(t *testing.T) {
	fault := errors.New("cut off")
	for _, c := range []struct {
		members []bool
		errs    []error
		ok      bool
	}{
		{[]bool{true, true}, []error{fault, nil}, true},
		{[]bool{true, true}, []error{fault, fault}, false},
		{[]bool{true, false}, []error{fault, nil}, false},
		{[]bool{true, false}, []error{nil, fault}, true},
	} {
		if err := parted(c.members, c.errs); (err == nil) != c.ok {
			t.Errorf("%v, %v: %v", c.members, c.errs, err)
		}
	}
}
