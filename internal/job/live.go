package job

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/ringo-ml/ringo/internal/cluster/rendezvous"
	"github.com/ringo-ml/ringo/internal/dirlock"
	"github.com/ringo-ml/ringo/train"
	"github.com/ringo-ml/ringo/transport"
)

// liveFile is the name of a notice in an attempt's folder. It begins with a dot, because it is no
// part of a checkpoint.
const liveFile = ".servers"

// LiveServers is a notice of running parameter servers, for readers of their rows: a file that only
// this user can read.
type LiveServers struct {
	Addresses []string `json:"addresses"`
	Ticket    string   `json:"ticket"`
}

// Publish writes the notice to an attempt's folder. withdraw removes the notice.
func (n LiveServers) Publish(dir string) (withdraw func(), err error) {
	path := filepath.Join(dir, liveFile)
	text, _ := json.Marshal(n) // texts
	f, err := dirlock.CreateSecret(path)
	if err != nil {
		return func() {}, err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return func() {}, errors.Join(err, os.Remove(f.Name()))
	}
	return func() { _ = os.Remove(path) }, nil
}

// FindLiveServers returns the servers of the newest attempt of a run's folder. The servers may have
// ended: a killed server 0 leaves its notice.
func FindLiveServers(dir string) (addresses []string, ticket transport.Ticket, err error) {
	all, err := train.Attempts(dir)
	if err != nil {
		return nil, nil, err
	}
	newest := slices.Max(append(all, 0))
	text, err := rendezvous.Secret(filepath.Join(train.AttemptDir(dir, newest), liveFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("%s: no parameter servers of `ringo train --servers N --checkpoint` are running: wait for them, or serve the rows of the checkpoint without --live", dir)
	}
	var n LiveServers
	if err == nil {
		err = json.Unmarshal([]byte(text), &n)
	}
	if err == nil && len(n.Addresses) == 0 {
		err = errors.New("no addresses")
	}
	if err == nil {
		ticket, err = transport.ParseTicket(n.Ticket)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("the notice of the running servers in %s: %w", train.AttemptDir(dir, newest), err)
	}
	return n.Addresses, ticket, nil
}
