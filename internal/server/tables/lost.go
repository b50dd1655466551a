package tables

// Lost is what happens to the others when a trainer is lost.
type Lost string

// What may happen. Empty is LostEnds.
const (
	LostEnds   Lost = "end"   // the job ends with an error that names the trainer
	LostGoesOn Lost = "go-on" // the others go on as if the trainer had left
)
