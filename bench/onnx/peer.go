package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
)

// peer is ONNX Runtime in a process of its own: peer.js.
type peer struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// request is a line to it, and answer a line from it.
type request struct {
	Ask         string  `json:"ask"`
	Path        string  `json:"path,omitempty"`
	Folder      string  `json:"folder,omitempty"`
	Nanoseconds int64   `json:"nanoseconds,omitempty"`
	Inputs      []input `json:"inputs,omitempty"`
	// Outputs are those to compute.
	Outputs []string `json:"outputs,omitempty"`
}

// input is a tensor in a file, little-endian.
type input struct {
	Name string `json:"name"`
	Type string `json:"type"`
	Dims []int  `json:"dims"`
	File string `json:"file"`
}

type answer struct {
	Error       string           `json:"error"`
	Version     string           `json:"version"`
	Nanoseconds float64          `json:"nanoseconds"`
	Dims        map[string][]int `json:"dims"`
}

// start starts it with the runtime that folder/node_modules has.
func start(script, folder string, stderr io.Writer) (*peer, error) {
	p := &peer{cmd: exec.Command("node", script, folder)}
	p.cmd.Stderr = stderr
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.in, p.out = in, bufio.NewReader(out)
	return p, p.cmd.Start()
}

func (p *peer) ask(r request) (a answer, err error) {
	line, err := json.Marshal(r)
	if err != nil {
		return a, err
	}
	if _, err := p.in.Write(append(line, '\n')); err != nil {
		return a, fmt.Errorf("%s has ended: %w", p.cmd, err)
	}
	text, err := p.out.ReadBytes('\n')
	if err != nil {
		return a, fmt.Errorf("%s has ended: %w", p.cmd, err)
	}
	if err = json.Unmarshal(text, &a); err == nil && a.Error != "" {
		err = fmt.Errorf("ONNX Runtime: %s: %s", r.Ask, a.Error)
	}
	return a, err
}

func (p *peer) close() error { return errors.Join(p.in.Close(), p.cmd.Wait()) }
