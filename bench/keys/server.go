package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/ps/server"
	"github.com/ringo-ml/ringo/ps/tables"
	"github.com/ringo-ml/ringo/transport"
)

// ticketVar has the job's ticket, for the server's process.
const ticketVar = "KEYS_TICKET"

// serve is the server's process.
func serve(ctx context.Context, o options) error {
	secret, err := hex.DecodeString(os.Getenv(ticketVar))
	if err != nil {
		return fmt.Errorf("%s: %w", ticketVar, err)
	}
	c := server.Defaults()
	if c.Listener, err = net.Listen("tcp", o.Address); err != nil {
		return err
	}
	c.Ticket, c.Version, c.Servers, c.Trainers = transport.Ticket(secret), ringo.Version, 1, 1
	c.Mode, c.Durability, c.Dir, c.MemoryBytes = tables.Async, tables.WAL, o.Dir, o.Memory
	c.SaveEvery = o.SaveEvery
	c.Report = func(line string) { fmt.Fprintln(os.Stderr, line) }
	_, err = server.Run(ctx, c)
	return err
}

// keeper starts the server, kills it when it is told to, and starts it again.
type keeper struct {
	o      options
	ticket transport.Ticket

	mu          sync.Mutex
	process     *exec.Cmd
	ended       chan error // of the process that nobody has killed
	peak, disk  int64
	stopLooking chan struct{}
	looking     sync.WaitGroup
}

func (k *keeper) start() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c := exec.Command(self, "-serve", "-address", k.o.Address, "-dir", k.o.Dir, "-memory", strconv.FormatInt(k.o.Memory, 10), "-save-every", k.o.SaveEvery.String())
	c.Env = append(os.Environ(), ticketVar+"="+k.ticket.String())
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.process, k.ended = c, make(chan error, 1)
	go func(ended chan error) { ended <- c.Wait() }(k.ended)
	return nil
}

// kill kills the server and starts it again.
func (k *keeper) kill() error {
	k.look()
	k.mu.Lock()
	process, ended := k.process, k.ended
	k.mu.Unlock()
	if err := process.Process.Kill(); err != nil {
		return fmt.Errorf("killing the server: %w", err)
	}
	<-ended
	return k.start()
}

// watch looks at the server's memory and disk now and then.
func (k *keeper) watch() {
	k.stopLooking = make(chan struct{})
	k.looking.Go(func() {
		for {
			k.look()
			select {
			case <-k.stopLooking:
				return
			case <-time.After(2 * time.Second):
			}
		}
	})
}

func (k *keeper) look() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.peak, k.disk = max(k.peak, peakOf(k.process.Process.Pid)), max(k.disk, sizeOf(k.o.Dir))
}

// end waits until the server has saved everything.
func (k *keeper) end() error {
	err := <-k.ended
	close(k.stopLooking)
	k.looking.Wait()
	return err
}

// peakOf is the most memory that a process has had, in bytes; 0 where nobody says.
func peakOf(pid int) int64 {
	f, err := os.Open(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, is := strings.CutPrefix(lines.Text(), "VmHWM:"); is {
			kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kib << 10
		}
	}
	return 0
}

// sizeOf is what the files of a folder take. Some may go meanwhile.
func sizeOf(dir string) (sum int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			if info, err := e.Info(); err == nil {
				sum += info.Size()
			}
		}
		return nil
	})
	return sum
}
