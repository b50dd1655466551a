package ringo

import (
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/watch/record"
)

// record makes the recorder of a process in the place env: in memory that its launcher holds, or in a file where there is none.
func (j *Job) record(env launch.RankEnv, cfg Config) {
	if j.recorder = env.Recorder(); env.Record == 0 && !env.Launched {
		j.recordFiles = launch.NewRecordFiles(cfg.BlackBox, env.Ticket)
		j.recorder = j.recordFiles.Recorder(j.process())
	}
}

// unrecord lets another job of this process have the memory. A file is of use where the job has failed.
func (j *Job) unrecord() {
	j.recorder.Release()
	if !j.failed.Load() {
		j.recordFiles.Remove(j.recorder)
	}
}

// Recorder is where this process records what it does in the job. Metrics, timelines and whoever else wants to know follow it.
func (j *Job) Recorder() *record.Recorder { return j.recorder }

// process is this process, for those who find what it has recorded.
func (j *Job) process() record.Identity {
	if j.heter != nil {
		return record.Identity{}
	}
	if j.serves() {
		return record.Identity{Role: record.AggregationServer, Number: j.rank}
	}
	return record.Identity{Role: record.Rank, Number: j.rank}
}
