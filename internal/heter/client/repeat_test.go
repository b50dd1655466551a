package client

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/heter"
	"github.com/ringo-ml/ringo/internal/heter/service"
	"github.com/ringo-ml/ringo/internal/simd"
	"github.com/ringo-ml/ringo/optim"
)

// apiece is a RemoteStage that stores the gradient of each micro-batch.
type apiece struct {
	heter.Local
	device *heter.CPU
	grads  [][]float32
}

func (a *apiece) Send(m *heter.MicroBatch) error {
	a.device.Reset()
	err := a.Local.Send(m)
	a.grads = append(a.grads, slices.Clone(a.device.Gradients()))
	return err
}

// inOrder does all steps in this process, and adds gradients by the definition of their order: by
// lane, number of the micro-batch, and trainer.
func (r *rig) inOrder(micros int) []float32 {
	d := device(r.t, r.spec, r.cut, r.rule)
	r.t.Cleanup(d.Close)
	stages, sides := make([]*apiece, r.config.Trainers), make([]*heter.Trainer, r.config.Trainers)
	for i := range sides {
		stages[i] = &apiece{Local: heter.Local{Device: d}, device: d}
		sides[i] = r.side(micros, stages[i])
	}
	for step := range r.steps {
		for i, tr := range sides {
			stages[i].grads = nil
			_, err := tr.Backward(r.batches(i)[step], 0, nil)
			must(r.t, err)
		}
		var lanes [][]float32
		for lane := range r.config.Addrs {
			var sum []float32
			for index := range micros {
				for i, s := range stages {
					switch {
					case (index+i)%len(r.config.Addrs) != lane:
					case sum == nil:
						sum = s.grads[index]
					default:
						simd.Host().Add(sum, s.grads[index])
					}
				}
			}
			if sum != nil {
				lanes = append(lanes, sum)
			}
		}
		g := d.Gradients()
		copy(g, lanes[0])
		for _, x := range lanes[1:] {
			simd.Host().Add(g, x)
		}
		must(r.t, d.Update(rate, 1/float32(len(sides))))
	}
	return slices.Clone(d.Values())
}

// TestRepeats: runs on any processes have the bits of gradients added in a fixed order in one
// process, also when a heter-trainer is lost within a step or at its end.
//
// invariant[heter-order]: the order of arrival, and the heter-trainers that compute, change no bit.
func TestRepeats(t *testing.T) {
	rules := map[string]func() optim.Optimizer{
		"adagrad": func() optim.Optimizer { return &optim.Adagrad{LR: rate, Eps: 1e-8} },
		"adam":    func() optim.Optimizer { return optim.NewAdam(rate) },
	}
	bf16, err := simd.BF16()
	if err == nil {
		rules["adagrad in bf16"] = rules["adagrad"]
	}
	for name, rule := range rules {
		for _, trainers := range []int{1, 2, 4} {
			for _, heters := range []int{1, 2, 3} {
				for run, loss := range []string{"", "", "sent", "back", "all", "ended"} {
					if loss != "" && heters == 1 || name == "adagrad" && trainers != 2 || testing.Short() && (run == 1 || trainers == 4) {
						continue
					}
					t.Run(fmt.Sprint(name, trainers, heters, run, loss), func(t *testing.T) {
						r := newRigOf(t, trainers, heters, rule, func(c *service.Config) { c.LinkOnly = c.Index == run%2 })
						r.near = 1 // the bits are compared below
						want := r.inOrder(5)
						if strings.HasSuffix(name, "bf16") {
							single := want
							r.kernels = bf16
							if want = r.inOrder(5); slices.Equal(want, single) {
								t.Error("bf16 has the bits of fp32")
							}
						}
						var lost []int
						r.run(5, func(step int, place string) {
							if step == 2 && place == loss && lost == nil {
								lost = []int{heters - 1}
								r.stop(heters - 1)
							}
						})
						r.checkLeft(lost...)
						if !slices.Equal(r.devices[0].Values(), want) {
							t.Errorf("the parameters have other bits than those of gradients in order: %v off", furthest(r.devices[0].Values(), want))
						}
					})
				}
			}
		}
	}
}
