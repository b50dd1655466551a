package ringo

import (
	"context"

	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/transport"
)

// JoinOver is Join of the rank that env names, over a given mesh: one that reports its calls, and
// links that a test cuts.
func JoinOver(ctx context.Context, env launch.RankEnv, cfg Config, mesh transport.Mesh) (*Job, error) {
	cfg.Times = cfg.Times.WithDefaults()
	j := &Job{identity: identity{rank: env.Rank, size: env.WorldSize, launched: env.Launched}}
	j.life.parent = ctx
	j.life.begin(ctx)
	if err := j.findRankZero(&env, cfg); err != nil {
		return nil, err
	}
	if err := j.enterCluster(&env, cfg); err != nil {
		return nil, err
	}
	return j, j.start(mesh, cfg)
}
