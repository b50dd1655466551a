package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/heter"
	"github.com/ringo-ml/ringo/internal/heter/message"
	"github.com/ringo-ml/ringo/internal/heter/service"
	"github.com/ringo-ml/ringo/internal/wire"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/transport"
)

// quick are times of a test in which a frozen one is found.
var quick = cluster.Times{Heartbeat: 20 * time.Millisecond, DeadAfter: 300 * time.Millisecond}

// run does all steps of all trainers; at is called by the first trainer at each place of a step.
func (r *rig) run(micros int, at func(step int, place string)) {
	r.t.Helper()
	want, values := r.oracle()
	r.all(func(i int) error {
		c := r.early[i]
		if c == nil {
			c = r.dial(i)
		}
		tell := func(step int, place string) {
			if i == 0 {
				at(step, place)
			}
		}
		tr := r.side(micros, &told{c, 0, tell})
		for step, b := range r.batches(i) {
			pass, err := tr.Backward(b, 0, func(int) {})
			if err != nil {
				return err
			}
			if got := pass.Loss.Mean.Data[0]; furthest([]float32{got}, want[i][step:step+1]) > r.near {
				return fmt.Errorf("step %d: loss %v, want %v", step+1, got, want[i][step])
			}
			if err := tr.End(rate); err != nil {
				return err
			}
		}
		final := make([]float32, c.Len())
		if err := c.Values(final); err != nil {
			return err
		}
		if d := furthest(final, values); d > r.near {
			return fmt.Errorf("parameters are %v off", d)
		}
		return c.Leave()
	})
}

// told is a RemoteStage that tells where its trainer is.
type told struct {
	heter.RemoteStage
	step int
	at   func(step int, place string)
}

func (d *told) Send(m *heter.MicroBatch) error {
	defer d.at(d.step, "sent")
	return d.RemoteStage.Send(m)
}

func (d *told) Wait(m *heter.MicroBatch) error {
	defer d.at(d.step, "back")
	return d.RemoteStage.Wait(m)
}

func (d *told) End(rate float64) error {
	d.at(d.step, "all")
	defer d.at(d.step, "ended")
	d.step++
	return d.RemoteStage.End(rate)
}

// stop ends a heter-trainer, and waits until it has ended.
func (r *rig) stop(i int) {
	r.stops[i]()
	r.ends[i] <- <-r.ends[i]
}

// checkLeft checks that the heter-trainers that were not lost have ended well, with the same bits.
func (r *rig) checkLeft(lost ...int) {
	r.t.Helper()
	first := -1
	for i, end := range r.ends {
		err := <-end
		if slices.Contains(lost, i) {
			if err == nil {
				r.t.Errorf("heter-trainer %d is lost and has ended well", i)
			}
			continue
		}
		if err != nil {
			r.t.Errorf("heter-trainer %d: %v", i, err)
		}
		if first < 0 {
			first = i
		}
		if !slices.Equal(r.devices[i].Values(), r.devices[first].Values()) {
			r.t.Errorf("heter-trainers %d and %d differ", first, i)
		}
	}
}

// A heter-trainer that is lost, wherever its step is, costs nothing: what it had is computed by others, and counted once.
func TestGoesOn(t *testing.T) { inAllWays(t, testGoesOn) }

func testGoesOn(t *testing.T, way func(*service.Config)) {
	for _, place := range []string{"sent", "back", "all", "ended"} {
		for _, mix := range [][3]int{{1, 2, 4}, {2, 3, 12}, {3, 2, 1}} {
			t.Run(fmt.Sprint(place, mix), func(t *testing.T) {
				r := newRig(t, mix[0], mix[1], way)
				reports := make(chan string, 16)
				r.config.Report = func(line string) { reports <- line }
				lost, dead := mix[1]-1, false
				r.run(mix[2], func(step int, where string) {
					if step == 2 && where == place && !dead {
						dead = true
						r.stop(lost)
					}
				})
				r.checkLeft(lost)
				if line := <-reports; !strings.Contains(line, fmt.Sprintf("heter-trainer %d", lost)) || !strings.Contains(line, "of this trainer's micro-batches go to others") {
					t.Error(line)
				}
			})
		}
	}
}

// One after the other is lost, in one step, and the last one does it all.
func TestLastOneLeft(t *testing.T) {
	r := newRig(t, 2, 4, nil)
	n := 0
	r.run(8, func(step int, where string) {
		if step == 1 && where == "back" && n < 3 {
			r.stop(n)
			n++
		}
	})
	r.checkLeft(0, 1, 2)
}

// A loss while heter-trainers agree: some have the sum, and some have not. Who has it gives the others its parameters; no gradient is
// counted twice.
func TestLostWhileAgreeing(t *testing.T) { inAllWays(t, testLostWhileAgreeing) }

func testLostWhileAgreeing(t *testing.T, way func(*service.Config)) {
	for name, spoil := range map[string]func(r *rig, heter int, sum func() error) error{
		"one has the sum": func(r *rig, heter int, sum func() error) error {
			if heter == 2 {
				defer r.stops[2]()
			}
			if err := sum(); err != nil || heter == 0 {
				return err
			}
			return errors.New("what came last did not come")
		},
		"none has it": func(r *rig, heter int, sum func() error) error {
			if heter == 2 {
				r.stops[2]()
				return errors.New("the end")
			}
			return sum()
		},
		"nobody is lost": func(r *rig, heter int, sum func() error) error {
			if err := sum(); err != nil || heter == 1 {
				return err
			}
			return errors.New("a link failed")
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 2, 3, way)
			r.hub.spoil = func(heter, sums int, sum func() error) error {
				if sums == 3 {
					return spoil(r, heter, sum)
				}
				return sum()
			}
			r.run(4, func(int, string) {})
			if name == "nobody is lost" {
				r.checkLeft()
			} else {
				r.checkLeft(2)
			}
		})
	}
}

// A step whose orphans nobody takes is not ended without them.
func TestNobodyTakesOrphans(t *testing.T) {
	r := newRig(t, 1, 2, func(c *service.Config) {
		c.LinkOnly = true
		if c.Index == 1 {
			c.Samples = 10
		}
	})
	r.hub.spoil = func(heter, _ int, sum func() error) error {
		if heter == 0 {
			r.stops[0]()
			return errors.New("the end")
		}
		return sum()
	}
	c := r.dial(0)
	_, err := side(t, r.spec, r.cut, 1, c).Backward(r.batches(0)[0], 0, nil) // which goes to the first one
	must(t, err)
	must(t, c.End(rate))
	if err := c.Leave(); err == nil || !strings.Contains(err.Error(), "heter-trainer 1 takes 10 at most") {
		t.Error(err)
	}
	<-c.posted
	c.mu.Lock()
	if e := c.ended; !e.Open {
		t.Errorf("the end of the step is said: %+v", e)
	}
	c.mu.Unlock()
	c.Abort(nil)
	for _, end := range r.ends {
		<-end
	}
}

// One that hangs is lost when it has been silent for too long.
func TestFrozen(t *testing.T) { inAllWays(t, testFrozen) }

func testFrozen(t *testing.T, way func(*service.Config)) {
	r := newRig(t, 2, 2, func(c *service.Config) { way(c); c.Times = quick })
	r.hub.spoil = func(heter, sums int, sum func() error) error {
		if sums == 2 && heter == 1 {
			r.stops[1]()
		}
		return sum()
	}
	r.run(4, func(int, string) {})
	r.checkLeft(1)
}

// again starts one in the place of one that has ended.
func (r *rig) again(i int) {
	l, err := net.Listen("tcp", r.config.Addrs[i])
	must(r.t, err)
	r.serve[i](l)
}

// One that is started again in the place of a lost one is given the others' state, and takes part: when it is there the others may be lost.
func TestComesBack(t *testing.T) { inAllWays(t, testComesBack) }

func testComesBack(t *testing.T, way func(*service.Config)) {
	for _, mix := range [][3]int{{1, 2, 4}, {2, 3, 12}, {3, 2, 1}} {
		for _, place := range []string{"sent", "ended"} {
			t.Run(fmt.Sprint(place, mix), func(t *testing.T) {
				r := newRigOf(t, mix[0], mix[1], func() optim.Optimizer { return optim.NewAdam(rate) }, way)
				r.steps, r.near = 60, 1e-3
				back := make(chan struct{}, 64) // from each trainer
				r.config.Report = func(line string) {
					if strings.Contains(line, "is there again") {
						back <- struct{}{}
					}
				}
				lost := 0
				r.run(mix[2], func(step int, where string) {
					if where != place || step < 2 || lost == mix[1] || len(back) < mix[0]*lost {
						if where == "all" && len(back) < mix[0]*lost {
							time.Sleep(10 * time.Millisecond) // else the steps are over before it is found
						}
						return
					}
					r.stop(lost)
					r.again(lost)
					lost++
				})
				if lost < mix[1] {
					t.Errorf("%d of %d were lost and started again", lost, mix[1])
				}
				r.checkLeft()
			})
		}
	}
}

// One that is lost before all trainers have come is lost to those that come later, too, whomever its successor hears first, and all take it back.
func TestLostBeforeAllCame(t *testing.T) {
	for lost := range 2 {
		for _, order := range []string{"found first", "found last"} { // by who has lost it
			t.Run(fmt.Sprint(order, lost), func(t *testing.T) {
				r := newRig(t, 2, 2, nil)
				r.steps = 120 // some are over before it is found where the machine is busy
				back, told := make(chan struct{}, 64), make(chan string, 64)
				r.config.Report = func(line string) {
					if told <- line; strings.Contains(line, "is there again") {
						back <- struct{}{}
					}
				}
				before := r.dial(1)
				r.stop(lost)
				hears(t, told, "of this trainer's micro-batches go to others")
				if r.early = map[int]*Client{1: before}; order == "found first" {
					r.again(lost)
					eventually(t, func() bool { return !before.links[lost].isLost }, before)
				} else {
					<-before.links[lost].over // else it may begin to look after the wait
					before.stop()
					before.seekers.Wait()
					r.again(lost)
					r.early[0] = r.dial(0)
					before.ctx, before.stop = context.WithCancel(context.Background())
					before.seekers.Go(func() { before.reconnectLoop(lost, r.config.Addrs[lost]) })
					hears(t, told, "is not taken back: trainer 1 says otherwise than others whether")
				}
				r.run(4, func(_ int, where string) {
					if where != "all" || len(back) == 2 {
						return
					}
					select {
					case err := <-r.ends[lost]: // what one has lost all must lose
						if order == "found first" {
							t.Error(err)
						}
						r.again(lost)
					case <-time.After(10 * time.Millisecond): // else the steps are over before it is found
					}
				})
				if order == "found first" {
					hears(t, told, fmt.Sprintf("heter: trainer 0: heter-trainer %d at %s was lost before this trainer came", lost, r.config.Addrs[lost]))
				}
				if len(back) != 2 {
					t.Errorf("%d trainers have taken it back, want 2", len(back))
				}
				r.checkLeft()
			})
		}
	}
}

// hears waits for a line.
func hears(t *testing.T, lines <-chan string, want string) {
	t.Helper()
	for late := time.After(time.Minute); ; {
		select {
		case line := <-lines:
			if strings.Contains(line, want) {
				return
			}
		case <-late:
			t.Fatalf("no line with %q", want)
		}
	}
}

// eventually waits for what is true of a client.
func eventually(t *testing.T, is func() bool, c *Client) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		c.mu.Lock()
		ok := is()
		c.mu.Unlock()
		if ok {
			return
		}
		if time.Now().After(end) {
			t.Fatal("it has waited for a minute")
		}
	}
}

// Where all heter-trainers stand in for lost ones nobody has the part's parameters, and who comes then is told so.
func TestAllLostBefore(t *testing.T) {
	r := newRig(t, 3, 2, nil)
	for i, addr := range r.config.Addrs {
		l, _, err := transport.Dial(context.Background(), addr, r.config.Ticket, transport.Hello{Version: "1", Purpose: transport.Heter, Rank: i + 1, WorldSize: 3})
		must(t, err)
		defer l.Close()
		hello := message.Hello{Trainer: i + 1, Trainers: 3, Index: i, Count: 2, Joining: true, Hash: r.cut.Hash}
		must(t, l.WriteFrame(wire.Header{Type: message.TypeHello}, hello.Append(nil), time.Second))
		f, err := l.ReadHeader()
		if must(t, err); f.Type != message.TypeWelcome {
			t.Fatalf("heter-trainer %d answers with a %s", i, message.Name(f.Type))
		}
	}
	cfg := r.config
	cfg.Timeout = time.Minute
	_, err := Dial(context.Background(), cfg)
	for _, stop := range r.stops {
		stop()
	}
	for _, end := range r.ends {
		<-end
	}
	if want := "heter: trainer 0: heter-trainer 1 at " + r.config.Addrs[1] + ": this heter-trainer stands in for one that is lost by another trainer than trainer 0"; err == nil || err.Error() != want {
		t.Errorf("%v, want %q", err, want)
	}
}
