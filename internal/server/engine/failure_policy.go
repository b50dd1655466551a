package engine

// FailurePolicy is what happens to the others when a trainer is lost.
type FailurePolicy string

// What may happen. Empty is FailJob.
const (
	FailJob     FailurePolicy = "fail"     // the job ends with an error that names the trainer
	ContinueJob FailurePolicy = "continue" // the others go on as if the trainer had left
)
