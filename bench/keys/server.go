package main

import (
	"bufio"
	"context"
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
	"github.com/ringo-ml/ringo/internal/server"
	"github.com/ringo-ml/ringo/internal/server/engine"
	"github.com/ringo-ml/ringo/transport"
)

// serve is the server's process. The ticket comes on its standard input, so that nobody reads it among the processes' arguments.
// It applies pushes as they come, has all that it has acknowledged in its log, and keeps what memory has no room for in a folder. It ends
// when its trainer has left, with a last checkpoint.
func serve(ctx context.Context, o options) error {
	var text string
	if _, err := fmt.Fscan(os.Stdin, &text); err != nil {
		return fmt.Errorf("reading the ticket: %w", err)
	}
	ticket, err := transport.ParseTicket(text)
	if err != nil {
		return err
	}
	c := server.Defaults()
	if c.Listener, err = net.Listen("tcp", o.Address); err != nil {
		return err
	}
	c.Ticket, c.Version, c.Servers, c.Trainers = ticket, ringo.Version, 1, 1
	c.Mode, c.Durability, c.Dir, c.MemoryBytes = engine.Async, engine.WAL, o.Dir, o.Memory
	c.SaveEvery = o.SaveEvery
	c.Report = func(line string) { fmt.Fprintln(os.Stderr, line) }
	_, err = server.Run(ctx, c)
	return err
}

// keeper starts the server, kills it when it is told to, and starts it again with the same folder and at the same address, as a launcher
// would. Meanwhile it looks at what the server takes: its memory by the system's count of the most that the process ever had, so that
// nothing is missed between two looks, and its disk by the size of its files, now and then. Each start is a process of its own, and the
// figures are the most of all of them.
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
	c.Stdin = strings.NewReader(k.ticket.String())
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

// kill kills the server, by the signal that no process can catch, waits until it is gone, and starts it again. What it had not
// acknowledged by then the trainer's client sends again, by the numbers of its pushes.
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
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
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
