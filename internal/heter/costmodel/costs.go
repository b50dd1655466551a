// Package costmodel predicts how many samples a second a job with heter-trainers trains in step
// (bsp), from what its stages were measured to take: for so many trainers, servers and
// heter-trainers with so many processors each, over given links. It also tells what the same model
// trains at in one piece, and so whether splitting it pays.
//
// All is arithmetic on [Costs] and a [Mix]; see [Costs.Split] for the formulas.
package costmodel

import (
	"errors"
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/internal/quantity"
)

// Cost is what a step takes of one rank's batch, in seconds of one processor, or in bytes.
type Cost struct {
	Step   float64 `json:"step"`   // however large the batch is
	Sample float64 `json:"sample"` // each sample more
}

// Of is the cost of so many samples.
func (c Cost) Of(samples float64) float64 { return c.Step + c.Sample*samples }

// Side is what a step takes of servers and of a trainer besides its layers. It differs between a model in one piece, whose dense
// parameters travel in each step, and one that is split.
type Side struct {
	// Serve is a server's time for one trainer's step, and Rows the trainer's own for the same: to ask, to take and to push.
	Serve Cost `json:"serve_s"`
	Rows  Cost `json:"rows_s"`
	// Bytes travel between a trainer and its servers, both ways together.
	Bytes Cost `json:"bytes"`
	// Wait is how long a step takes besides all that the formulas know of: threads that are woken, messages through a kernel.
	Wait float64 `json:"wait_s"`
}

// Costs are those of a model's stages. Times are seconds of one processor of the kind that they were measured on.
type Costs struct {
	Model string `json:"model"`
	// Batch is that of a rank, and Micros the number of micro-batches that it went in.
	Batch  int `json:"batch"`
	Micros int `json:"micro_batches"`
	// Read is the time of what a trainer does while it waits, too: reading samples ahead.
	Read Cost `json:"read_s"`
	// Pool and Back are the time of a trainer up to the cut and from it backward, with what it takes to send and to receive.
	Pool Cost `json:"pool_s"`
	Back Cost `json:"back_s"`
	// Part is a heter-trainer's time: with each rank's batch that of its samples, and once in each step, whoever sent it, Part.Step.
	Part Cost `json:"part_s"`
	// Agree is a heter-trainer's time in a step to sum its gradients with those of one other: of m it is 2 (m-1)/m times that.
	Agree float64 `json:"agree_s"`
	// Pass is a trainer's time for all layers where the model is in one piece.
	Pass Cost `json:"pass_s"`
	// OfSplit and OfWhole are what else there is in a model that is split, and in one piece.
	OfSplit Side `json:"split"`
	OfWhole Side `json:"whole"`
	// RequestBytes and BackBytes are bytes of a sample across the cut.
	RequestBytes float64 `json:"there_bytes"`
	BackBytes    float64 `json:"back_bytes"`
	// PartBytes are those of the part's parameters, which heter-trainers sum in each step.
	PartBytes float64 `json:"part_bytes"`
}

// Limits of what Costs may hold.
const (
	maxBatch  = 1 << 30
	maxMicros = 1 << 20
)

// Validate reports every fault of c at once.
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

// Link is what each process has to the others.
type Link struct {
	Rate    float64 // bytes a second, each way; +Inf: bytes take no time
	Latency float64 // seconds that a message takes besides its bytes
}

// Mix is a job: the processors of each of its processes, of any fraction, such as a container's quota.
type Mix struct {
	Trainers, Servers, Heters []float64
	Link                      Link
	// Period is how long, in seconds, the periods are for which a process with less than one processor has its quota: 0.1 in containers.
	// 0: it has a slower processor.
	Period float64
}

// Validate reports every fault of x at once. No heter-trainers are a job of a model in one piece.
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
