// Package jobregistry finds the jobs of this user on this host: each job has a folder, readable by
// the user only, with a socket of the launcher. No daemon and no permanent file is needed. Any
// process that finds the folder of a killed job removes the folder.
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
	prefix = "ringo-job-" // followed by the user's number
	socket = "answers"
	// mostText limits the bytes of a reply: 1,024 ranks take 0.5 MB.
	mostText = 8 << 20
	// mostJobs limits the number of listed jobs.
	mostJobs = 256
)

// Base returns the parent of the jobs' folders, in memory or else for temporary files.
func Base() string {
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		return "/dev/shm"
	}
	return os.TempDir()
}

// ours returns the prefix of the folders of this user's jobs.
func ours(base string) string { return filepath.Join(base, fmt.Sprintf("%s%d-", prefix, os.Getuid())) }

// Entry is a job of this process.
type Entry struct {
	visit *dirlock.Visit
	name  string
}

// Enter creates the folder of a job of this process, and removes the folders of killed jobs.
func Enter(base string) (*Entry, error) {
	Jobs(base)
	name := fmt.Sprintf("%d-%s", os.Getpid(), strings.ToLower(rand.Text()[:4])) // process numbers are reused, and containers have separate numbers
	v, err := dirlock.Enter(ours(base) + name)
	if err != nil {
		return nil, err
	}
	return &Entry{v, name}, nil
}

// Name returns the job's name.
func (e *Entry) Name() string { return e.name }

// Socket returns the path of the job's socket.
func (e *Entry) Socket() string { return filepath.Join(e.visit.Path(), socket) }

// Listen creates the socket, for this user only.
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

// Leave removes the job.
func (e *Entry) Leave() { _ = e.visit.Leave() }

// Job is an entered job.
type Job struct {
	Name   string
	socket string
}

// Jobs returns this user's jobs on this host, by name, at most 256, and cleans up killed jobs.
func Jobs(base string) (out []Job) {
	paths, _ := filepath.Glob(ours(base) + "*")
	slices.Sort(paths)
	for _, path := range paths {
		if !dirlock.OwnedByUser(path) || dirlock.Clear(path) || !dirlock.OwnedByUser(path) || len(out) == mostJobs { // other users may create folders here
			continue
		}
		out = append(out, Job{strings.TrimPrefix(path, ours(base)), filepath.Join(path, socket)})
	}
	return out
}

// Ask requests a path from the job, and returns the reply. ctx limits the whole request.
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

// Wait is the maximum wait for a job's reply: a stopped launcher never replies.
const Wait = 3 * time.Second
