package tables

// Lost is what happens to the others when a trainer is lost.
type Lost string

// What may happen. Empty is LostEnds.
const (
	LostEnds   Lost = "fail"     // the job ends with an error that names the trainer
	LostGoesOn Lost = "continue" // the others go on as if the trainer had left
)
