package train

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/ringo-ml/ringo/internal/modeltext"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/nn"
)

// values returns the run's settings for a checkpoint, with those of the job.
func (e *runEnv) values(scopes ...setting.Scope) (setting.Values, error) {
	t, err := setting.New(e.cfg.Settings()...)
	if err != nil {
		return nil, err
	}
	v := t.Values(scopes...)
	if scopes[0] != setting.JobFixed {
		return v, nil
	}
	v["model"], v["job.ranks"], v["job.collective-algorithm"] = e.spec.Name, strconv.Itoa(e.job.Size()), cmp.Or(e.job.Group().Algorithm(), "auto")
	if !e.cfg.Tuning.Measure { // measurements differ each time
		v["tuning.algorithms"] = e.job.Group().Rules().String()
	}
	v["sync"] = cmp.Or(e.cfg.Servers.Consistency, "allreduce")
	if e.job.Servers() > 0 {
		v["sync"] = "aggregate"
	}
	if c := e.cfg.Exchange.Chain; c != nil {
		v[chainOfOnesOwn] = c.String()
	}
	return v, nil
}

// chainOfOnesOwn stands for a custom chain, which is compared like a setting.
const chainOfOnesOwn = "chain"

// agreeConfig reports ranks with other settings, because sums would be wrong or operations would
// not match. Settings of a process, such as folders, are set on all ranks or on none.
func (e *runEnv) agreeConfig() error {
	v, err := e.values(setting.JobFixed, setting.JobMutable)
	if err != nil {
		return err
	}
	v["checkpoint.resume"], v["tuning.tune"] = strconv.FormatBool(e.cfg.Checkpoint.Resume), strconv.FormatBool(e.cfg.Tuning.Measure)
	if e.cfg.Checkpoint.Dir != "" {
		v["checkpoint.dir"] = "a folder"
	}
	if e.cfg.Start.From != "" {
		v["training.init-from"] = "a file"
	}
	v["callbacks"] = e.cfg.names()
	if e.cfg.Traced {
		v["output.trace"] = "a file"
	}
	if p := e.cfg.Tuning.Profile; p != nil {
		text, err := json.Marshal(p)
		if err != nil {
			return fmt.Errorf("the profile cannot be compared: %w", err)
		}
		v["tuning.profile"] = fmt.Sprintf("of sha256 %.4x…", sha256.Sum256(text))
	}
	own, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("the settings cannot be compared: %w", err)
	}
	all, err := e.peers.gather(own)
	if err != nil {
		return fmt.Errorf("comparing the ranks' settings: %w", err)
	}
	for rank, text := range all {
		if text == nil {
			continue // lost
		}
		if err := sameSettings(rank, text, all[0]); err != nil {
			return err
		}
	}
	return nil
}

// agreeModel reports ranks whose model has other parameters or tables than rank 0's, by the first
// differing name or shape. Package distopt compares replicas that exchange gradients.
func agreeModel(ranks communicator, ps *nn.Params) error {
	var text modeltext.Text
	for _, p := range ps.List() {
		text.Parameter(p.Name, p.Shape...)
	}
	for _, t := range ps.Tables() {
		text.Table(t.Name, fmt.Sprintf("rows of %d values", t.Dim))
	}
	sum := sha256.Sum256(text)
	hashes, err := ranks.gather(sum[:])
	if err != nil {
		return fmt.Errorf("comparing the models: %w", err)
	}
	if !slices.ContainsFunc(hashes, func(h []byte) bool { return h != nil && !bytes.Equal(h, hashes[0]) }) {
		return nil
	}
	texts, err := ranks.gather(text)
	if err != nil {
		return fmt.Errorf("comparing the models: %w", err)
	}
	all := make([]modeltext.Text, len(texts))
	for rank, t := range texts {
		all[rank] = t
	}
	return modeltext.Compare(all)
}

func sameSettings(rank int, text, first []byte) error {
	var theirs, zeros setting.Values
	if err := errors.Join(json.Unmarshal(text, &theirs), json.Unmarshal(first, &zeros)); err != nil {
		return fmt.Errorf("the settings of ranks 0 and %d cannot be read: %w", rank, err)
	}
	var faults setting.ErrorList
	for _, d := range theirs.Differences(zeros) {
		faults = append(faults, setting.Errorf(d.Path, "%s on rank %d and %s on rank 0", shown(d.Mine), rank, shown(d.Theirs)))
	}
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("start all ranks with the same settings: %w", faults.Err())
}

func shown(value string) string {
	if value == "" {
		return "none"
	}
	return value
}
