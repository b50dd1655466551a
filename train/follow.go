package train

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/data/table"
	"github.com/ringo-ml/ringo/weights"
)

// follow makes a table be encoded as that of the checkpoint that the run starts from, because its
// weights are for that encoding. A run that continues reads its own checkpoint instead, as the
// other one may be gone. Rank 0 alone reads it, unless ranks have no mesh: then each does. It is a
// collective call.
func (c *Config) follow(job *ringo.Job) error {
	if c.Start.From == "" || c.encoder != nil {
		return nil
	}
	var e *table.Encoder
	if job.Rank() == 0 || job.ServersOnly() {
		var err error
		if e, err = c.startEncoder(); err != nil {
			return err
		}
	}
	text, err := json.Marshal(e)
	if err == nil && !job.ServersOnly() {
		text, err = broadcastBytes(job.Group(), text)
	}
	if err == nil {
		err = json.Unmarshal(text, &c.previous)
	}
	if err != nil {
		return fmt.Errorf("sending all ranks the encoding of %s: %w", c.Start.From, err)
	}
	return nil
}

// startEncoder reads the encoding of a table from the checkpoint that a run starts or continues
// from. It is nil if there is none.
func (c *Config) startEncoder() (*table.Encoder, error) {
	path := c.Start.From
	if c.Checkpoint.Resume {
		switch own, err := checkpoint.Of(c.Checkpoint.Dir); {
		case err == nil:
			path = own
		case !errors.Is(err, checkpoint.ErrNone):
			return nil, err
		}
	}
	f, err := weights.OpenSource(path)
	if err != nil {
		return nil, err
	}
	d, err := descriptionOf(f.Saved)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return d.Encoder, nil
}
