package train

import (
	"fmt"

	"github.com/ringo-ml/ringo/internal/heter"
	"github.com/ringo-ml/ringo/internal/quantity"
)

// Stage is how a stage of a rank's pipeline to heter-trainers has spent its time, in seconds.
type Stage struct {
	BusyS    float64 `json:"busy_s"`
	StarvedS float64 `json:"starved_s"` // the stage before had nothing for it
	BlockedS float64 `json:"blocked_s"` // the stage behind had no room
}

func stageOf(t heter.StageTimes) Stage {
	return Stage{t.Busy.Seconds(), t.Starved.Seconds(), t.Blocked.Seconds()}
}

func (s Stage) plus(o Stage) Stage {
	return Stage{s.BusyS + o.BusyS, s.StarvedS + o.StarvedS, s.BlockedS + o.BlockedS}
}

// String tells of the parts that took time.
func (s Stage) String() string {
	text := ""
	for _, part := range []struct {
		what    string
		seconds float64
	}{{"busy", s.BusyS}, {"starved", s.StarvedS}, {"blocked", s.BlockedS}} {
		if part.seconds >= 0.0005 {
			text += fmt.Sprintf(" %s %s", part.what, quantity.Seconds(part.seconds))
		}
	}
	return text
}

// Stages are those of a rank whose model's dense part heter-trainers have, while it trained. Rows are pulled, pooled up to the cut and sent,
// and from the gradients that come back the rank goes on backward. Sending overlaps all others, which take turns.
type Stages struct {
	Pull Stage `json:"pull"` // starved: rows were not here yet
	Pool Stage `json:"pool"`
	Send Stage `json:"send"` // blocked: heter-trainers had no room, or were at the step before
	Back Stage `json:"back"` // starved: gradients had not come back yet
}

func (s *Stages) add(o Stages) {
	s.Pull, s.Pool, s.Send, s.Back = s.Pull.plus(o.Pull), s.Pool.plus(o.Pool), s.Send.plus(o.Send), s.Back.plus(o.Back)
}

// String tells where the time went, stage by stage.
func (s Stages) String() string {
	return fmt.Sprintf("pull%v; pool%v; send%v; back%v", s.Pull, s.Pool, s.Send, s.Back)
}
