package ringo

import (
	"context"

	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/transport"
)

// JoinOver is Join of the rank that env names, over a mesh that is there already: one that tells what it does, and whose
// links a test cuts.
func JoinOver(ctx context.Context, env launch.RankEnv, cfg Config, mesh transport.Mesh) (*Job, error) {
	cfg.Times = cfg.Times.WithDefaults()
	j := &Job{rank: env.Rank, size: env.WorldSize, launched: env.Launched, outer: ctx}
	j.ctx, j.cancel = context.WithCancelCause(ctx)
	if err := j.enter(env, nil, cfg); err != nil {
		return nil, err
	}
	j.watching.Go(j.listen)
	return j, j.start(mesh, cfg)
}

// Subgroups is how many groups the job keeps to close them with itself.
func (j *Job) Subgroups() int {
	j.subs.mu.Lock()
	defer j.subs.mu.Unlock()
	return len(j.subs.all)
}
