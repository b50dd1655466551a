package distopt

import (
	"fmt"

	"github.com/ringo-ml/ringo/internal/watch/failure"
)

// Error adds the step and the bucket to an error. Err has the operation, the rank and the peer, or
// the parameter with a gradient that cannot be sent.
type Error struct {
	// Step is the number of steps completed before, as Steps returns it.
	Step int64
	// Bucket is the bucket's number in the plan of Buckets, or the partition under PartialUpdate.
	// Buckets is 0 if the error belongs to no bucket.
	Bucket, Buckets int
	// First and Last are the first and the last layer of the bucket; "" for a partition.
	First, Last string
	Doing       string // activity; may be empty
	Err         error
}

// Error returns a single line.
func (e *Error) Error() string {
	text := fmt.Sprintf("distopt: step %d", e.Step)
	if at := e.bucket(); at != "" {
		text += ", " + at
	}
	if e.Doing != "" {
		text += ": " + e.Doing
	}
	return fmt.Sprintf("%s: %v", text, e.Err)
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Place is the step and the bucket in words.
func (e *Error) Place() failure.Position {
	return failure.Position{Where: fmt.Sprintf("in step %d", e.Step), Bucket: e.bucket()}
}

func (e *Error) bucket() string {
	switch {
	case e.Buckets == 0:
		return ""
	case e.First == "":
		return fmt.Sprintf("partition %d of %d", e.Bucket, e.Buckets)
	}
	return failure.Bucket(fmt.Sprintf("bucket %d", e.Bucket), e.First, e.Last)
}

// fail stores the first error of a step, for Step to return.
func (o *Optimizer) fail(err error) {
	if o.fault == nil {
		o.fault = err
	}
}

// breakGroup reports this rank's error to the other ranks and returns it. No report is necessary if
// a failed exchange has already broken the group, or if all ranks have the same error, such as a
// norm that is not finite.
func (o *Optimizer) breakGroup() error {
	if o.fault != nil && !o.alike && o.group.Size() > 1 {
		_ = o.group.Fail(o.fault)
	}
	return o.fault
}

// failStep fails the step in progress with an error that concerns no bucket.
func (o *Optimizer) failStep(what string, err error) {
	o.fail(&Error{Step: o.step, Doing: what, Err: err})
}

// failBucket fails the step with an error of a bucket of the plan.
func (o *Optimizer) failBucket(b int, what string, err error) {
	k := o.plan[b]
	o.fail(&Error{Step: o.step, Bucket: b, Buckets: len(o.plan), First: o.layers[k.First].Name, Last: o.layers[k.Last].Name, Doing: what, Err: err})
}
