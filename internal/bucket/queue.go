package bucket

import "fmt"

// Queue is a step's ready queue. Layers are marked in any order.
// invariant[plan-order]: buckets come out in plan order, each as soon as it and all
// before it are complete. That order is the same on every rank, which is what lets
// ranks match their operations by sequence number alone.
//
// A Queue is for one goroutine and allocates nothing after NewQueue.
type Queue struct {
	plan    Plan
	bucket  []int  // bucket by layer
	marked  []bool // final in this step, by layer
	missing []int  // bucket -> layers not yet final
	next    int    // next bucket to return
}

// NewQueue returns an empty queue for a valid plan.
func NewQueue(plan Plan) *Queue {
	q := &Queue{missing: make([]int, len(plan)), plan: plan}
	for b := range plan {
		for range plan[b].Last - plan[b].First + 1 {
			q.bucket = append(q.bucket, b)
		}
	}
	q.marked = make([]bool, len(q.bucket))
	q.Reset()
	return q
}

// Reset begins a new step: no layer is final.
func (q *Queue) Reset() {
	clear(q.marked)
	for b, k := range q.plan {
		q.missing[b] = k.Last - k.First + 1
	}
	q.next = 0
}

// Mark marks a layer's gradient as final. A repeated or unknown layer is an error: a gradient would
// be sent ahead of its last contribution.
func (q *Queue) Mark(layer int) error {
	if layer < 0 || layer >= len(q.marked) {
		return fmt.Errorf("bucket: layer %d is ready, but the plan has layers 0 to %d", layer, len(q.marked)-1)
	}
	if q.marked[layer] {
		return fmt.Errorf("bucket: layer %d is ready twice in one step", layer)
	}
	q.marked[layer] = true
	q.missing[q.bucket[layer]]--
	return nil
}

// Next returns the index of the next bucket to send, or false if a gradient of the bucket is
// missing.
func (q *Queue) Next() (int, bool) {
	if q.next == len(q.plan) || q.missing[q.next] > 0 {
		return 0, false
	}
	q.next++
	return q.next - 1, true
}

// Begun reports whether a layer has been marked since Reset.
func (q *Queue) Begun() bool {
	for _, m := range q.marked {
		if m {
			return true
		}
	}
	return false
}

// Waiting returns the first unmarked layer, and false if all layers are marked.
func (q *Queue) Waiting() (layer int, ok bool) {
	for i, m := range q.marked {
		if !m {
			return i, true
		}
	}
	return 0, false
}
