package engine

// FailurePolicy decides the job's reaction to a lost trainer.
type FailurePolicy string

// Policies; empty means FailJob.
const (
	FailJob     FailurePolicy = "fail"     // end the job with an error that names the trainer
	ContinueJob FailurePolicy = "continue" // continue as if the trainer had left
)
