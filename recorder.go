package ringo

import (
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/watch/record"
)

// record makes the recorder of a process in the place env: in memory that its launcher holds, or in a file where there is none.
func (j *Job) record(env launch.Env, cfg Config) {
	if j.recorder = env.Recorder(); env.Record == 0 && !env.Launched {
		j.left = launch.LeaveIn(cfg.BlackBox, env.Ticket)
		j.recorder = j.left.Recorder(j.who())
	}
}

// unrecord lets another job of this process have the memory. A file is of use where the job has failed.
func (j *Job) unrecord() {
	j.recorder.Release()
	if !j.failed.Load() {
		j.left.Forget(j.recorder)
	}
}

// Recorder is where this process records what it does in the job. Metrics, timelines and whoever else wants to know follow it.
func (j *Job) Recorder() *record.Recorder { return j.recorder }

// who is this process, for those who find what it has recorded.
func (j *Job) who() record.Who {
	if j.heter != nil {
		return record.Who{}
	}
	if j.serves() {
		return record.Who{Role: record.SumServer, Number: j.rank}
	}
	return record.Who{Role: record.Rank, Number: j.rank}
}
