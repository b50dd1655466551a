package placement

import (
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// bindsItself marks the test binary's run as a process that binds itself.
const bindsItself = "PLACEMENT_TEST_BINDS"

// init keeps the first thread, whose affinity is the process's, for the main goroutine.
func init() {
	if os.Getenv(bindsItself) != "" {
		runtime.LockOSThread()
	}
}

func TestMain(m *testing.M) {
	if os.Getenv(bindsItself) != "" {
		os.Exit(bindAll())
	}
	os.Exit(m.Run())
}

// bindAll binds all threads of a process while more threads start, and checks their affinity.
func bindAll() int {
	all := Allowed()
	if len(all) < 2 {
		return 0
	}
	own, apart := all[:1], all[1:2]
	bound, done := make(chan int), make(chan struct{})
	var started sync.WaitGroup
	go func() { // a thread bound by itself keeps its processors
		runtime.LockOSThread()
		set := setOf(apart)
		_ = unix.SchedSetaffinity(0, &set)
		bound <- unix.Gettid()
		<-done
	}()
	alone := <-bound
	for range 20 {
		started.Add(1)
		go func() {
			runtime.LockOSThread() // one thread each
			started.Done()
			<-done
		}()
	}
	if err := BindProcess(os.Getpid(), own); err != nil {
		return 2
	}
	started.Wait()
	threads, _ := os.ReadDir("/proc/self/task")
	for _, thread := range threads {
		id, want := 0, own
		for _, digit := range thread.Name() {
			id = 10*id + int(digit-'0')
		}
		if id == alone {
			want = apart
		}
		if !slices.Equal(allowed(id), want) {
			return 3
		}
	}
	close(done)
	if !slices.Equal(Allowed(), own) {
		return 4
	}
	return 0
}

// A process binds all of its threads, including threads started during the call.
func TestBindProcess(t *testing.T) {
	for range 5 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), bindsItself+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
}

// undo restores a thread's processors, and only existing processors can be bound.
func TestBindThread(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	all := allowed(0)
	undo, err := BindThread(all[:1])
	if err != nil {
		t.Fatal(err)
	}
	if got := allowed(0); !slices.Equal(got, all[:1]) {
		t.Errorf("bound to %v, want %v", got, all[:1])
	}
	if undo(); !slices.Equal(allowed(0), all) {
		t.Errorf("afterwards %v, want %v", allowed(0), all)
	}
	if _, err := BindThread([]int{1000}); err == nil || !slices.Equal(allowed(0), all) {
		t.Errorf("bound to a processor that does not exist: %v, on %v", err, allowed(0))
	}
}

// Memory preferred on a node works as other memory.
func TestPrefer(t *testing.T) {
	fd, err := unix.MemfdCreate("placement", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	const n = 1 << 20
	if err := unix.Ftruncate(fd, n); err != nil {
		t.Fatal(err)
	}
	memory, err := unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(memory)
	if err := Prefer(memory, 0); err != nil {
		t.Skipf("this system places no memory: %v", err)
	}
	for i := 0; i < n; i += 4096 {
		memory[i] = 1
	}
	if err := Prefer(memory, 63); err == nil {
		t.Error("memory of a node that does not exist was promised")
	}
	for _, node := range []int{-1, 64} { // no node
		if err := Prefer(memory, node); err != nil {
			t.Error(err)
		}
	}
}

func TestHere(t *testing.T) {
	m := LocalMachine()
	if !slices.Equal(m.Numbers(), Allowed()) || len(m.CPUs) == 0 {
		t.Errorf("%+v", m)
	}
}
