package shm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringo-ml/ringo/internal/freeport"
	"github.com/ringo-ml/ringo/internal/shmwait"
	"github.com/ringo-ml/ringo/internal/transport/tcp"
	"github.com/ringo-ml/ringo/transport"
)

// The test binary is also a rank of a mesh of processes. roleVar holds its rank,
// the addresses of all, the ticket, and what it does besides:
//
//	share      waits for all, leaves
//	start      is killed before New
//	formed     is killed after New
//	N          is killed N us after New began
//	survive R  waits for rank R, which is killed
//	limit      may map little
//	files      may make small files only
//	tell       says what New found out
//
// It prints one line and ends well if all is as it should be.
const roleVar = "SHM_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVar); role != "" {
		line, err := play(strings.Fields(role))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(line)
		return
	}
	os.Exit(m.Run())
}

func die() {
	_ = unix.Kill(os.Getpid(), unix.SIGKILL)
	select {}
}

func play(role []string) (line string, err error) {
	rank, err := strconv.Atoi(role[0])
	if err != nil {
		return "", err
	}
	addrs := strings.Split(role[1], ",")
	ticket, err := transport.ParseTicket(role[2])
	if err != nil {
		return "", err
	}
	l, err := net.Listen("tcp", addrs[rank])
	if err != nil {
		return "", err
	}
	inner, err := tcp.New(context.Background(), tcp.Config{
		Rank: rank, Size: len(addrs), Ticket: ticket, Version: version, Listener: l, Addrs: addrs, JoinTimeout: time.Minute,
	})
	if err != nil {
		return "", err
	}
	switch do := role[3]; do {
	case "start":
		die()
	case "limit", "files":
		which := map[string]int{"limit": unix.RLIMIT_AS, "files": unix.RLIMIT_FSIZE}[do]
		if err := unix.Setrlimit(which, &unix.Rlimit{Cur: 8 << 30, Max: 8 << 30}); err != nil {
			return "", err
		}
	default:
		if us, err := strconv.Atoi(do); err == nil {
			time.AfterFunc(time.Duration(us)*time.Microsecond, die)
		}
	}
	m, err := New(context.Background(), inner, Config{Ticket: ticket, Version: version, JoinTimeout: time.Minute})
	if role[3] == "survive" {
		return survive(m, err, role[4])
	}
	if err != nil {
		return "", err
	}
	if role[3] == "formed" {
		die()
	}
	if role[3] == "share" {
		if err := meet(m); err != nil {
			return "", err
		}
	} else if _, err := strconv.Atoi(role[3]); err == nil {
		select {} // until it is killed
	}
	line = fmt.Sprint(m.Hosts(), " ", reasonOf(m), " ", m.SharedMemory() != nil)
	return line, leave(m)
}

// meet is a barrier in shared memory, and then what was written before it.
func meet(m *Mesh) error {
	w := m.SharedMemory()
	if w == nil {
		return errors.New("no memory is shared: " + reasonOf(m))
	}
	if err := cleanExceptMaps(); err != nil {
		return err
	}
	wait := shmwait.New(shmwait.Config{Ranks: len(w.Ranks), Cores: w.Cores})
	for round := uint64(1); round <= 1000; round++ {
		w.Arena()[len(w.Arena())-1] = byte(round)
		shmwait.FlagAt(w.Control, w.Index*shmwait.FlagBytes).Raise(2 * round)
		for i, r := range w.Ranks {
			if err := wait.AtLeast(shmwait.FlagAt(w.Control, i*shmwait.FlagBytes), 2*round, m, r, time.Minute); err != nil && i != w.Index {
				return fmt.Errorf("round %d: waiting for rank %d: %w", round, r, err)
			}
			if a := w.Arenas[i]; a[len(a)-1] != byte(round) {
				return fmt.Errorf("round %d: rank %d wrote %d", round, r, a[len(a)-1])
			}
		}
		shmwait.FlagAt(w.Control, w.Index*shmwait.FlagBytes).Raise(2*round + 1)
		for i, r := range w.Ranks {
			if err := wait.AtLeast(shmwait.FlagAt(w.Control, i*shmwait.FlagBytes), 2*round+1, m, r, time.Minute); err != nil && i != w.Index {
				return fmt.Errorf("round %d: waiting for rank %d: %w", round, r, err)
			}
		}
	}
	return nil
}

// survive expects a rank's end during New or after it, by name.
func survive(m *Mesh, err error, victim string) (string, error) {
	if err == nil && m.SharedMemory() != nil {
		w := m.SharedMemory()
		wait := shmwait.New(shmwait.Config{Ranks: len(w.Ranks), Cores: w.Cores})
		dead, _ := strconv.Atoi(victim)
		err = wait.AtLeast(shmwait.FlagAt(w.Control, 0), 1, m, dead, time.Minute)
	}
	var lost *transport.LostError
	if !errors.As(err, &lost) {
		return "", fmt.Errorf("the end of rank %s shows as: %v", victim, err)
	}
	if m != nil {
		return fmt.Sprint("lost ", lost.Rank), leave(m)
	}
	return fmt.Sprint("lost ", lost.Rank), errors.Join(cleanExceptMaps(), cleanMaps())
}

func leave(m *Mesh) error {
	if err := m.Close(); err != nil {
		return err
	}
	return errors.Join(cleanExceptMaps(), cleanMaps())
}

// cleanExceptMaps reports descriptors of memory and unix sockets.
func cleanExceptMaps() error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range entries {
		fd, _ := strconv.Atoi(e.Name())
		target, _ := os.Readlink("/proc/self/fd/" + e.Name())
		domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
		if strings.Contains(target, "memfd") || err == nil && domain == unix.AF_UNIX {
			return fmt.Errorf("descriptor %d is left open: %s", fd, target)
		}
	}
	return nil
}

func cleanMaps() error {
	text, err := os.ReadFile("/proc/self/maps")
	if i := bytes.Index(text, []byte("memfd:ringo")); i >= 0 {
		return fmt.Errorf("shared memory is still mapped: ...%.100s", text[max(0, i-80):])
	}
	return err
}

// reasonOf is Reason as one value.
func reasonOf(m *Mesh) string {
	why, failed := m.Reason()
	return fmt.Sprintf("%q %v", why, failed)
}

// processes starts a rank for each role and returns what they print, and their
// errors.
func processes(t *testing.T, addrs []string, wrap func(rank int) []string, roles ...string) ([]string, []error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	ticket := transport.NewTicket()
	lines, errs := make([]string, len(roles)), make([]error, len(roles))
	var all sync.WaitGroup
	for rank, do := range roles {
		all.Go(func() {
			argv := []string{os.Args[0]}
			if wrap != nil {
				argv = append(wrap(rank), argv...)
			}
			cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
			cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s %v %s", roleVar, rank, strings.Join(addrs, ","), ticket, do))
			var out, complaint bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &complaint
			errs[rank] = cmd.Run()
			lines[rank] = strings.TrimSpace(out.String())
			if complaint.Len() > 0 {
				errs[rank] = fmt.Errorf("%w: %s", errs[rank], complaint.String())
			}
		})
	}
	all.Wait()
	return lines, errs
}

// loopback returns n free addresses.
func loopback(t *testing.T, n int) (addrs []string) {
	t.Helper()
	for len(addrs) < n {
		if a := freeport.Address(t); !slices.Contains(addrs, a) {
			addrs = append(addrs, a)
		}
	}
	return addrs
}

func TestProcessesShare(t *testing.T) {
	for _, n := range []int{2, 3, 5} {
		roles := make([]string, n)
		for r := range roles {
			roles[r] = "share"
		}
		lines, errs := processes(t, loopback(t, n), nil, roles...)
		want := fmt.Sprint(make([]int, n), ` "" false true`)
		for r := range roles {
			if errs[r] != nil || lines[r] != want {
				t.Errorf("rank %d of %d: %q, %v; want %q", r, n, lines[r], errs[r], want)
			}
		}
	}
}

// TestOneProcessMayNot: its limit is everybody's reason.
func TestOneProcessMayNot(t *testing.T) {
	for _, c := range []struct {
		roles     []string
		who, hint string
	}{
		{[]string{"tell", "tell", "limit"}, "rank 2: ", "ulimit -v"},
		{[]string{"limit", "tell", "tell"}, "rank 0: ", "ulimit -v"},
		{[]string{"files", "tell", "tell"}, "rank 0: ", "ulimit -f"},
	} {
		lines, errs := processes(t, loopback(t, 3), nil, c.roles...)
		for r, line := range lines {
			if errs[r] != nil || !strings.HasPrefix(line, `[0 0 0] "ranks 0 to 2 (`+c.who) || !strings.HasSuffix(line, `)" true false`) || !strings.Contains(line, c.hint) {
				t.Errorf("%v: rank %d: %q, %v", c.roles, r, line, errs[r])
			}
		}
	}
}

// TestProcessIsKilled, each rank in turn and at many moments: the others name it
// in time, and nothing is left with them.
func TestProcessIsKilled(t *testing.T) {
	moments := []string{"start", "0", "200", "500", "1000", "2000", "5000", "formed"}
	if testing.Short() {
		moments = []string{"start", "500", "formed"}
	}
	for _, when := range moments {
		for victim := range 3 {
			roles := []string{"", "", ""}
			for r := range roles {
				roles[r] = fmt.Sprint("survive ", victim)
			}
			roles[victim] = when
			lines, errs := processes(t, loopback(t, 3), nil, roles...)
			for r := range roles {
				var exit *exec.ExitError
				if r == victim {
					if !errors.As(errs[r], &exit) || exit.Exited() {
						t.Errorf("killed at %s: rank %d was not killed: %v", when, r, errs[r])
					}
				} else if errs[r] != nil || lines[r] != fmt.Sprint("lost ", victim) {
					t.Errorf("rank %d killed at %s: rank %d says %q, %v", victim, when, r, lines[r], errs[r])
				}
			}
		}
	}
}

// namespaces makes two network namespaces joined by a link and returns their
// names and addresses.
func namespaces(t *testing.T) (names, hosts []string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	ip, err := exec.LookPath("ip")
	if err != nil {
		t.Skip("needs iproute2")
	}
	run := func(args ...string) error {
		out, err := exec.Command(ip, args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
		}
		return nil
	}
	for i := range 2 {
		name := fmt.Sprintf("ringo-shm-%d-%d", os.Getpid(), i)
		if err := run("netns", "add", name); err != nil {
			t.Skip(err)
		}
		t.Cleanup(func() {
			if err := run("netns", "del", name); err != nil {
				t.Error(err)
			}
		})
		names, hosts = append(names, name), append(hosts, fmt.Sprintf("10.199.0.%d", i+1))
	}
	if err := run("link", "add", "shm0", "netns", names[0], "type", "veth", "peer", "name", "shm1", "netns", names[1]); err != nil {
		t.Skip(err)
	}
	for i, name := range names {
		for _, args := range [][]string{
			{"addr", "add", hosts[i] + "/24", "dev", fmt.Sprint("shm", i)},
			{"link", "set", fmt.Sprint("shm", i), "up"},
			{"link", "set", "lo", "up"},
		} {
			if err := run(append([]string{"-n", name}, args...)...); err != nil {
				t.Fatal(err)
			}
		}
	}
	return names, hosts
}

// TestNamespaces: ranks that cannot reach each other's sockets are of different
// hosts, and those of one share memory.
func TestNamespaces(t *testing.T) {
	names, hosts := namespaces(t)
	inside := func(of []int) func(int) []string {
		return func(rank int) []string { return []string{"ip", "netns", "exec", names[of[rank]]} }
	}
	for _, c := range []struct {
		of   []int // the namespace of each rank
		want string
	}{
		{[]int{0, 1}, `[0 1] "ranks 0 and 1 are on one machine, but in different network namespaces (containers): every rank counts as a host of its own" false false`},
		{[]int{0, 1, 1, 0}, `[0 1 1 0] "" false true`},
	} {
		var addrs, roles []string
		for r, ns := range c.of {
			addrs = append(addrs, fmt.Sprintf("%s:%d", hosts[ns], 20000+r))
			roles = append(roles, map[bool]string{true: "share", false: "tell"}[len(c.of) == 4])
		}
		lines, errs := processes(t, addrs, inside(c.of), roles...)
		for r := range roles {
			if errs[r] != nil || lines[r] != c.want {
				t.Errorf("rank %d of %v: %q, %v", r, c.of, lines[r], errs[r])
			}
		}
	}
}
