// Package costmodel predicts the samples per second of a job with heter-trainers in bsp mode, from
// measured costs of its stages, for given numbers of trainers, servers and heter-trainers, their
// processors and links. It also predicts the rate of the unsplit model, and therefore whether
// splitting pays.
//
// The model is arithmetic on [Costs] and a [Mix]; see [Costs.Split] for the formulas.
package costmodel

import (
	"errors"
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/internal/quantity"
)

// Cost is the cost of a step with one rank's batch, in seconds of one processor, or in bytes.
type Cost struct {
	Step   float64 `json:"step"`   // fixed cost of a step
	Sample float64 `json:"sample"` // cost per sample
}

// Cost.Of returns the cost of the given number of samples.
func (c Cost) Of(samples float64) float64 { return c.Step + c.Sample*samples }

// Side is the cost of a step for servers and for a trainer without its layers. An unsplit model
// sends its dense parameters in each step, a split model does not.
type Side struct {
	// Serve is a server's time for one trainer's step, and Rows the trainer's time to request,
	// receive and push its rows.
	Serve Cost `json:"serve_s"`
	Rows  Cost `json:"rows_s"`
	// Bytes are the bytes between a trainer and its servers, both ways.
	Bytes Cost `json:"bytes"`
	// Wait is the time of a step that the formulas do not explain: thread wake-ups, messages
	// through a kernel.
	Wait float64 `json:"wait_s"`
}

// Costs are the costs of a model's stages, in seconds of one processor of the measured kind.
type Costs struct {
	Model string `json:"model"`
	// Batch is the batch of a rank, and Micros its number of micro-batches.
	Batch  int `json:"batch"`
	Micros int `json:"micro_batches"`
	// Read is the time to read samples in advance, which overlaps waits.
	Read Cost `json:"read_s"`
	// Pool is a trainer's time of a forward pass up to the cut, Back that of the backward pass from
	// it, with sending and receiving.
	Pool Cost `json:"pool_s"`
	Back Cost `json:"back_s"`
	// Part is a heter-trainer's time: Part.Sample for each sample, and Part.Step once per step.
	Part Cost `json:"part_s"`
	// Agree is the time per step to sum the gradients of two heter-trainers; m heter-trainers need
	// 2 (m-1)/m times Agree.
	Agree float64 `json:"agree_s"`
	// Pass is a trainer's time for all layers of the unsplit model.
	Pass Cost `json:"pass_s"`
	// OfSplit and OfWhole are the other costs of a split model, and of an unsplit model.
	OfSplit Side `json:"split"`
	OfWhole Side `json:"whole"`
	// RequestBytes and BackBytes are bytes per sample across the cut.
	RequestBytes float64 `json:"there_bytes"`
	BackBytes    float64 `json:"back_bytes"`
	// PartBytes are the bytes of the stage's parameters, summed by heter-trainers in each step.
	PartBytes float64 `json:"part_bytes"`
}

// Limits of Costs.
const (
	maxBatch  = 1 << 30
	maxMicros = 1 << 20
)

// Validate returns all errors of c together.
func (c Costs) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Batch < 1 || c.Batch > maxBatch {
		bad("batch %d: want 1 to %d", c.Batch, maxBatch)
	}
	if c.Micros < 1 || c.Micros > maxMicros {
		bad("%d micro-batches: want 1 to %d", c.Micros, maxMicros)
	}
	number := func(what string, x float64) {
		if !(x >= 0) || math.IsInf(x, 0) {
			bad("%s %s: want 0 or more", what, quantity.Exact(x))
		}
	}
	cost := func(what string, x Cost) {
		number(what+": step", x.Step)
		number(what+": sample", x.Sample)
	}
	cost("read", c.Read)
	cost("pool", c.Pool)
	cost("back", c.Back)
	cost("part", c.Part)
	cost("pass", c.Pass)
	for what, s := range map[string]Side{"split": c.OfSplit, "whole": c.OfWhole} {
		cost(what+": serve", s.Serve)
		cost(what+": rows", s.Rows)
		cost(what+": bytes", s.Bytes)
		number(what+": wait", s.Wait)
	}
	number("agree", c.Agree)
	number("there", c.RequestBytes)
	number("back", c.BackBytes)
	number("part's bytes", c.PartBytes)
	if c.Part.Of(1) == 0 || c.Pass.Of(1) == 0 {
		bad("the part or a whole pass takes no time: want what was measured")
	}
	if len(errs) > 0 {
		return fmt.Errorf("forecast: bad costs: %w", errors.Join(errs...))
	}
	return nil
}

// Link is the link between any two processes.
type Link struct {
	Rate    float64 // bytes per second, each way; +Inf: transfers take no time
	Latency float64 // seconds per message without its bytes
}

// Mix is a job: the processors of each process, perhaps fractional (quotas).
type Mix struct {
	Trainers, Servers, Heters []float64
	Link                      Link
	// Period is the period of quotas in seconds for processes with less than one processor: 0.1 in
	// containers. 0: a slower processor instead of a quota.
	Period float64
}

// Validate returns all errors of x together. Without heter-trainers x is an unsplit job.
func (x Mix) Validate() error {
	var errs []error
	for what, cores := range map[string][]float64{"trainer": x.Trainers, "server": x.Servers, "heter-trainer": x.Heters} {
		if len(cores) == 0 && what != "heter-trainer" {
			errs = append(errs, fmt.Errorf("no %s: want at least one", what))
		}
		for i, c := range cores {
			if !(c > 0) || math.IsInf(c, 0) {
				errs = append(errs, fmt.Errorf("%s %d has %s processors: want more than 0", what, i, quantity.Exact(c)))
			}
		}
	}
	if !(x.Period >= 0) || math.IsInf(x.Period, 0) {
		errs = append(errs, fmt.Errorf("quotas for periods of %s s: want 0 or more", quantity.Exact(x.Period)))
	}
	if !(x.Link.Rate > 0) || !(x.Link.Latency >= 0) || math.IsInf(x.Link.Latency, 0) {
		errs = append(errs, fmt.Errorf("links of %s bytes/s and %s s a message: want more than 0, and 0 or more", quantity.Exact(x.Link.Rate), quantity.Exact(x.Link.Latency)))
	}
	if len(errs) > 0 {
		return fmt.Errorf("forecast: bad mix: %w", errors.Join(errs...))
	}
	return nil
}
