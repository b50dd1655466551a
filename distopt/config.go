package distopt

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/bucket"
)

// Strategy names what the ranks exchange in a step.
type Strategy string

const (
	// FP32 averages every gradient over the ranks in single precision while
	// backward still runs, then updates. The zero value means FP32.
	FP32 Strategy = "fp32"
	// PartialUpdate updates all parameters with the rank's own gradients, then
	// averages one partition of the parameters, the next one each step.
	// Replicas differ between averages; Sync brings them together.
	PartialUpdate Strategy = "partialUpdate"
)

// Strategies are the names that SetStrategy and Config accept.
func Strategies() []Strategy { return []Strategy{FP32, PartialUpdate} }

// Plan kinds accepted by Config.Plan.
const (
	PlanOne      = "one"
	PlanPerLayer = "per-layer"
	PlanFixed    = "fixed"
)

// Plans are the names that Config.Plan accepts.
func Plans() []string { return []string{PlanOne, PlanPerLayer, PlanFixed} }

// Config says how a step's gradients are agreed on. The zero value is fp32 in
// buckets of the default size.
type Config struct {
	// Strategy is FP32 if empty.
	Strategy Strategy
	// Plan is how layers are merged: "one", "per-layer" or "fixed" (if empty).
	Plan string
	// BucketBytes is the size of a bucket under "fixed"; 0 means
	// bucket.DefaultBytes. It is refused with another plan.
	BucketBytes int
	// ClipNorm bounds the Euclidean norm of the whole agreed gradient; 0 is off.
	ClipNorm float64
	// Accumulation is how many backwards make one step; their gradients are
	// averaged. 0 means 1.
	Accumulation int
	// Partitions is how many parts PartialUpdate cuts the parameters into;
	// 0 means 4.
	Partitions int
}

// Validate reports every fault of c at once.
func (c Config) Validate() error {
	var errs []error
	if _, err := ParseStrategy(string(c.Strategy)); err != nil {
		errs = append(errs, err)
	}
	if c.Plan != "" && !slices.Contains(Plans(), c.Plan) {
		errs = append(errs, fmt.Errorf("plan %q is not known: use one of %s", c.Plan, strings.Join(Plans(), ", ")))
	}
	if c.BucketBytes < 0 || c.BucketBytes > 0 && c.BucketBytes < 4 {
		errs = append(errs, fmt.Errorf("bucket size %d bytes: want 0 (default) or at least 4", c.BucketBytes))
	}
	if c.BucketBytes > 0 && c.Plan != "" && c.Plan != PlanFixed {
		errs = append(errs, fmt.Errorf("bucket size %d bytes has no effect on plan %q: use plan %q or leave it out", c.BucketBytes, c.Plan, PlanFixed))
	}
	if math.IsNaN(c.ClipNorm) || math.IsInf(c.ClipNorm, 0) || c.ClipNorm < 0 {
		errs = append(errs, fmt.Errorf("clip norm %v: want 0 (off) or a positive number", c.ClipNorm))
	}
	if c.Accumulation < 0 {
		errs = append(errs, fmt.Errorf("accumulation %d: want 0 or more backwards a step", c.Accumulation))
	}
	if c.Partitions < 0 {
		errs = append(errs, fmt.Errorf("partitions %d: want 0 (default) or more", c.Partitions))
	}
	return errors.Join(errs...)
}

// ParseStrategy returns the strategy of that name; the empty name is FP32.
func ParseStrategy(name string) (Strategy, error) {
	if name == "" {
		return FP32, nil
	}
	if s := Strategy(name); slices.Contains(Strategies(), s) {
		return s, nil
	}
	var known []string
	for _, s := range Strategies() {
		known = append(known, string(s))
	}
	return "", fmt.Errorf("strategy %q is not known: use one of %s", name, strings.Join(known, ", "))
}

// plan cuts layers as c says.
func (c Config) plan(layers []bucket.Layer) bucket.Plan {
	switch c.Plan {
	case PlanOne:
		return bucket.One(layers)
	case PlanPerLayer:
		return bucket.PerLayer(layers)
	default:
		return bucket.Fixed(layers, c.BucketBytes)
	}
}
