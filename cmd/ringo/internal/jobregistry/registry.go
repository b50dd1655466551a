// Package jobregistry is where the jobs of this user on this host are found: each has a folder that
// only its user can read, with a socket at which its launcher answers. Nothing else is needed to
// find a job: no daemon, no file that is kept. The folder of a job that was killed is removed by
// whoever comes upon it.
//
//	entry, err := jobregistry.Enter(jobregistry.Base()) // a launcher
//	defer entry.Leave()
//	listener, err := entry.Listen()
//
//	for _, job := range jobregistry.Jobs(jobregistry.Base()) { // who asks
//		text, err := job.Ask(ctx, "/status")
package jobregistry

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/internal/dirlock"
)

const (
	prefix = "ringo-job-" // and the user's number
	socket = "answers"
	// mostText bounds what is read of an answer: 1,024 ranks take 0.5 MB.
	mostText = 8 << 20
	// mostJobs bounds how many jobs are told of.
	mostJobs = 256
)

// Base is where the folders are: in memory where the system has a place for that, or in its folder for temporary files.
func Base() string {
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		return "/dev/shm"
	}
	return os.TempDir()
}

// ours are the folders of this user's jobs.
func ours(base string) string { return filepath.Join(base, fmt.Sprintf("%s%d-", prefix, os.Getuid())) }

// Entry is a job of this process.
type Entry struct {
	visit *dirlock.Visit
	name  string
}

// Enter makes the folder of a job of this process, and removes those of jobs that were killed.
func Enter(base string) (*Entry, error) {
	Jobs(base)
	name := fmt.Sprintf("%d-%s", os.Getpid(), strings.ToLower(rand.Text()[:4])) // numbers of processes come again, and containers have their own
	v, err := dirlock.Enter(ours(base) + name)
	if err != nil {
		return nil, err
	}
	return &Entry{v, name}, nil
}

// Name is what a person calls the job.
func (e *Entry) Name() string { return e.name }

// Socket is where it answers.
func (e *Entry) Socket() string { return filepath.Join(e.visit.Path(), socket) }

// Listen makes the socket, which only this user can connect to.
func (e *Entry) Listen() (net.Listener, error) {
	l, err := net.Listen("unix", e.Socket())
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(e.Socket(), 0o600); err != nil {
		_ = l.Close()
		return nil, err
	}
	return l, nil
}

// Leave takes the job out.
func (e *Entry) Leave() { _ = e.visit.Leave() }

// Job is a job that somebody has entered.
type Job struct {
	Name   string
	socket string
}

// Jobs are those of this user on this host, by name, at most 256. Folders of jobs that were killed are removed on the way.
func Jobs(base string) (out []Job) {
	paths, _ := filepath.Glob(ours(base) + "*")
	slices.Sort(paths)
	for _, path := range paths {
		if !dirlock.OwnedByUser(path) || dirlock.Clear(path) || !dirlock.OwnedByUser(path) || len(out) == mostJobs { // anybody may make others
			continue
		}
		out = append(out, Job{strings.TrimPrefix(path, ours(base)), filepath.Join(path, socket)})
	}
	return out
}

// Ask asks the job for a path, and returns its answer. ctx bounds how long all of it may take.
func (j Job) Ask(ctx context.Context, path string) ([]byte, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", j.socket)
	}}}
	req, err := http.NewRequestWithContext(ctx, "GET", "http://job"+path, nil)
	if err != nil {
		return nil, err
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, mostText))
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("it answers %s", res.Status)
	}
	return text, err
}

// Wait is how long somebody who asks is to wait for a job: one whose launcher is stopped answers never.
const Wait = 3 * time.Second
