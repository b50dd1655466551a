package ringo

import (
	"context"
	"fmt"

	"github.com/ringo-ml/ringo/internal/exchange/aggregate"
)

// Serve makes this process a server of its job, which sums gradients for the ranks
// that train, and returns when all of these have left, with what it has done. Its
// place is what a launcher says, or, with cfg.Size, server cfg.Rank of cfg.Servers.
// up, if not nil, is called when all ranks and servers of the job are there. An
// error names what is missing or who is lost.
func Serve(ctx context.Context, cfg Config, up func(s Serving)) (aggregate.Stats, error) {
	cfg.serves = true
	env, _, err := cfg.rankEnv(cfg.lookup())
	if err != nil {
		return aggregate.Stats{}, fmt.Errorf("joining the job: %w", err)
	}
	j, err := join(ctx, env, cfg)
	if err != nil {
		return aggregate.Stats{}, err
	}
	if up != nil {
		up(Serving{Index: j.rank - j.size, Servers: j.servers, Rank: j.rank, Trainers: j.size})
	}
	if err := j.serve(); err != nil {
		return j.server.Stats(), j.Fail(err)
	}
	return j.server.Stats(), j.Close()
}

// Serving is a server's place in its job.
type Serving struct {
	Index, Servers int // which server it is, of how many
	Rank           int // its number among all members, as errors name it
	Trainers       int // how many ranks train
}

// serve is what a server does.
func (j *Job) serve() error {
	j.SetStatus(fmt.Sprintf("server %d", j.rank-j.size))
	return j.server.Run(j.ctx)
}

// serves says that this is a server.
func (j *Job) serves() bool { return j.rank >= j.size }

// name is how errors call this member.
func (j *Job) name() string {
	if j.heter != nil {
		return fmt.Sprintf("heter-trainer %d", j.heter.Index)
	}
	if j.serves() {
		return fmt.Sprintf("server %d", j.rank-j.size)
	}
	return fmt.Sprintf("rank %d", j.rank)
}
