package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/internal/bindings"
	"github.com/ringo-ml/ringo/internal/job"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/train"
)

// Unless heter.device is cpu, the process of a heter-trainer resolves its settings and then becomes
// a program of PyTorch, by exec: the process ID, the variables and the launcher's files remain. The
// program is the user's, or module ringo.torch.part.

const torchPart = "ringo.torch.part"

// usesTorch reports whether heter-trainers are programs of PyTorch.
func usesTorch(s *job.Spec) bool { return s.Train.Heter.Count > 0 && s.HeterDevice != "cpu" }

// checkTorch reports that heter-trainers on this host could not compute with PyTorch, before any
// process starts.
func checkTorch(ctx context.Context, s *job.Spec) error {
	if !usesTorch(s) || s.Hosts != "" || s.ByHand() {
		return nil
	}
	device, is := strings.CutPrefix(s.HeterDevice, "torch-")
	if !is {
		device = "cpu"
		if _, err := os.Stat(s.HeterDevice); err != nil {
			return setting.Errorf("heter.device", "%w", err)
		}
	}
	const limit = 2 * time.Minute // the first import reads a GB
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "python3", "-m", torchPart, "--check", "--device", device)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if version := strings.TrimSpace(string(out)); err == nil && version != ringo.Version {
		err = fmt.Errorf("package ringo of python3 is of release %q, this program of %s", version, ringo.Version)
	} else if lines := strings.Split(strings.TrimSpace(errs.String()), "\n"); err != nil && lines[len(lines)-1] != "" {
		err = errors.New(lines[len(lines)-1])
	}
	if err != nil {
		return setting.Errorf("heter.device", "%s: %w: for the first python3 in PATH, install PyTorch and ringo's wheel (docs/python.md), or use cpu", s.HeterDevice, err)
	}
	return nil
}

// becomeTorch replaces this process by the heter-trainer in PyTorch. It returns errors only.
func (c *heterRole) becomeTorch() error {
	training := c.Training(0)
	settings, err := json.Marshal(bindings.PartSettings{
		Stateless: c.Sync != job.BSP, TrainerThreads: training.Servers.Threads, ContinueOnLoss: c.ContinueOnLoss(),
		Transport: c.transport(), Algorithm: c.Collective.Algorithm, Timeout: c.Collective.Timeout, Times: c.Times, Network: c.Network,
	})
	if err != nil {
		return err
	}
	rule := map[string]any{"name": training.Optimizer, "lr": training.LR, "momentum": training.Momentum, "weight_decay": training.WeightDecay, "eps": training.Eps}
	if training.Optimizer == train.OptimizerClick { // a rule for rows
		rule["name"] = "adagrad"
	}
	optimizer, err := json.Marshal(rule)
	if err != nil {
		return err
	}
	path, err := exec.LookPath("python3")
	if err != nil {
		return setting.Errorf("heter.device", "%s: %w", c.HeterDevice, err)
	}
	args := []string{"python3", c.HeterDevice}
	if device, is := strings.CutPrefix(c.HeterDevice, "torch-"); is {
		args = []string{"python3", "-m", torchPart, "--device", device, "--threads", strconv.Itoa(max(1, training.Threads)), "--optimizer", string(optimizer)}
		if c.quiet {
			args = append(args, "--quiet")
		}
	}
	env := map[string]string{bindings.PartSettingsVar: string(settings)}
	if !c.launched {
		env[launch.HeterVar], env[launch.HetersVar], env[launch.WorldSizeVar] = strconv.Itoa(c.index), strings.Join(c.HeterAddresses, ","), strconv.Itoa(c.Ranks)
		if c.TicketFile != "" {
			env[launch.TicketFileVar], env[launch.TicketVar] = c.TicketFile, ""
		}
	}
	for name, value := range env { // of two variables with one name, the first counts
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	return fmt.Errorf("starting %s: %w", path, syscall.Exec(path, args, os.Environ()))
}
