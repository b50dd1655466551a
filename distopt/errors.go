package distopt

import (
	"fmt"

	"github.com/ringo-ml/ringo/internal/watch/failure"
)

// Error says in which step and bucket something failed. Err names the operation, the rank
// and the peer, or the parameter whose gradient cannot be sent.
type Error struct {
	// Step is how many steps had been completed, which is what Steps said.
	Step int64
	// Bucket is the bucket's number in the plan of Buckets, for PartialUpdate that of the
	// partition. Buckets is 0 where the fault is of no bucket.
	Bucket, Buckets int
	// First and Last are the layers that the bucket begins and ends with; "" for a partition.
	First, Last string
	Doing       string // what was being done; may be empty
	Err         error
}

// Error returns one line.
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

// fail keeps the first fault for Step to return.
func (o *Optimizer) fail(err error) {
	if o.fault == nil {
		o.fault = err
	}
}

// breakGroup is the fault, of which the other ranks were told. It has an effect where nobody knows
// of it: what failed in an exchange has broken the group already, and of what all ranks fail with,
// such as a norm that they agree on, none needs to be told.
func (o *Optimizer) breakGroup() error {
	if o.fault != nil && !o.alike && o.group.Size() > 1 {
		_ = o.group.Fail(o.fault)
	}
	return o.fault
}

// failStep fails with a fault of the step under way and of no bucket.
func (o *Optimizer) failStep(what string, err error) {
	o.fail(&Error{Step: o.step, Doing: what, Err: err})
}

// failBucket fails with a fault of a bucket of the plan.
func (o *Optimizer) failBucket(b int, what string, err error) {
	k := o.plan[b]
	o.fail(&Error{Step: o.step, Bucket: b, Buckets: len(o.plan), First: o.layers[k.First].Name, Last: o.layers[k.Last].Name, Doing: what, Err: err})
}
