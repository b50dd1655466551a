/* The library as a guest of a process: forks, signals, threads, starts and stops. One rank, that finds others by hand or none. */
#include <errno.h>
#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/wait.h>

#include "check.h"

/* ---- forks ---- */

static void ends_with(const char *what, pid_t pid, int want) {
  int status = 0;
  while (waitpid(pid, &status, 0) != pid) CHECK(errno == EINTR, "%s: %s", what, strerror(errno)); /* SIGCHLD has a handler */
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == want, "%s: status %x, want exit %d", what, status, want);
}

static void *spin(void *stop) { /* allreduces without end while the other thread forks */
  ringo_job *job = NULL;
  OK(ringo_join(NULL, &job));
  float x[64] = {0};
  while (!__atomic_load_n((int *)stop, __ATOMIC_ACQUIRE)) {
    ringo_work *w;
    OK(ringo_start_allreduce(ringo_world(job), x, 64, RINGO_FLOAT32, RINGO_SUM, &w));
    OK(ringo_wait(w, -1));
  }
  OK(ringo_leave(job));
  return NULL;
}

static void forks(ringo_job *job) {
  int stop = 0;
  pthread_t t;
  float x[4] = {1};
  pthread_create(&t, NULL, spin, &stop);
  for (int i = 0; i < 20; i++) {
    pid_t quiet = fork();
    if (quiet == 0) exit(21); /* handlers of exit() run, too */
    pid_t loud = fork();
    if (loud == 0) {
      alarm(20); /* a hang ends */
      ringo_work *w;
      void *m;
      ringo_job *other;
      WANT(RINGO_ERROR_FORKED, ringo_allreduce(ringo_world(job), x, 4, RINGO_FLOAT32, RINGO_SUM));
      CHECK(strstr(ringo_last_error(), "fork") && ringo_last_error_rank() == -1, "that it is a fork is not told");
      WANT(RINGO_ERROR_FORKED, ringo_start_barrier((ringo_group *)job, &w));
      WANT(RINGO_ERROR_FORKED, ringo_wait(NULL, -1));
      WANT(RINGO_ERROR_FORKED, ringo_rank(job));
      WANT(RINGO_ERROR_FORKED, ringo_alloc(job, 8, &m));
      WANT(RINGO_ERROR_FORKED, ringo_leave(job));
      WANT(RINGO_ERROR_FORKED, ringo_join(NULL, &other));
      CHECK(ringo_transport(job) == NULL && ringo_world(job) == NULL, "a fork is told more");
      pid_t grandchild = fork();
      if (grandchild == 0) _exit(ringo_barrier(NULL) == RINGO_ERROR_FORKED ? 23 : 1);
      ends_with("a fork of a fork", grandchild, 23);
      exit(22);
    }
    pid_t other = fork();
    if (other == 0) execl("/bin/sh", "sh", "-c", "exit 24", (char *)NULL);
    ends_with("a fork that makes no call", quiet, 21);
    ends_with("a fork that calls", loud, 22);
    ends_with("a fork that runs another program", other, 24);
    OK(ringo_allreduce(ringo_world(job), x, 4, RINGO_FLOAT32, RINGO_SUM));
  }
  __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
  pthread_join(t, NULL);
}

/* ---- signals ---- */

static volatile sig_atomic_t came[65], guests; /* guests: handlers that have run on threads of the library */
static pthread_t hosts[2];
static sigjmp_buf back;

static void note(int sig) {
  came[sig]++;
  if (sig == SIGURG || sig == SIGPROF) return; /* those the library's threads take, see ringo.h */
  if (!pthread_equal(pthread_self(), hosts[0]) && !pthread_equal(pthread_self(), hosts[1])) guests++;
}

static void jump(int sig) { siglongjmp(back, sig); }

static void *keep_busy(void *stop) { return spin(stop); }

static const int handled[] = {SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGCHLD, SIGPIPE, SIGALRM, SIGWINCH, SIGURG, SIGPROF};

/* handlers sets them as old programs do, without a stack of their own. */
static void handlers(void) {
  struct sigaction a;
  memset(&a, 0, sizeof a);
  a.sa_handler = note;
  for (size_t i = 0; i < sizeof handled / sizeof *handled; i++) sigaction(handled[i], &a, NULL);
}

/* blocked blocks a signal in this thread and those that it starts. */
static sigset_t blocked(int sig) {
  sigset_t s;
  sigemptyset(&s);
  sigaddset(&s, sig);
  pthread_sigmask(SIG_BLOCK, &s, NULL);
  return s;
}

/* Who waits for a signal that all threads of the program block gets it: no thread of the library takes it before. */
static void waited_for(sigset_t s) {
  for (int i = 0; i < 50; i++) {
    struct timespec patience = {20, 0};
    kill(getpid(), SIGRTMIN + 5); /* its default would end the process */
    CHECK(sigtimedwait(&s, NULL, &patience) == SIGRTMIN + 5, "the signal that was waited for: %s", strerror(errno));
  }
}

static void signals(void) {
  pthread_t t;
  int stop = 0;
  sigset_t s = blocked(SIGRTMIN + 5);
  hosts[0] = hosts[1] = pthread_self();
  pthread_create(&t, NULL, keep_busy, &stop);
  hosts[1] = t;
  for (int round = 0; round < 200; round++)
    for (size_t i = 0; i < sizeof handled / sizeof *handled; i++) {
      int sig = handled[i], before = came[sig];
      kill(getpid(), sig);
      double begun = seconds();
      while (came[sig] == before) CHECK(seconds() - begun < 20, "signal %d does not come", sig);
    }
  CHECK(guests == 0, "%d handlers ran on threads of the library", (int)guests);
  waited_for(s);
  struct sigaction a;
  memset(&a, 0, sizeof a);
  a.sa_handler = jump;
  a.sa_flags = SA_NODEFER;
  sigaction(SIGSEGV, &a, NULL);
  volatile int faults = 0;
  if (sigsetjmp(back, 1) == 0) *(volatile int *)8 = 1;
  else faults++;
  CHECK(faults == 1, "a fault of the host is not the host's");
  __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
  pthread_join(t, NULL);
  for (size_t i = 0; i < sizeof handled / sizeof *handled; i++) {
    sigaction(handled[i], NULL, &a);
    CHECK(a.sa_handler == note, "the handler of signal %d was replaced", handled[i]);
  }
}

/* ---- starts and stops ---- */

static int entries(const char *folder) {
  DIR *d = opendir(folder);
  int n = 0;
  CHECK(d != NULL, "%s", folder);
  while (readdir(d) != NULL) n++;
  closedir(d);
  return n;
}

#ifdef __SANITIZE_ADDRESS__ /* it keeps what was freed for a while */
static const long slack = 1 << 20;
#else
static const long slack = 16384; /* KiB: the memory of Go grows in such steps at first */
#endif

/* memory is what the process has, in KiB. */
static long memory(void) {
  long pages = 0, all;
  FILE *f = fopen("/proc/self/statm", "r");
  CHECK(f && fscanf(f, "%ld %ld", &all, &pages) == 2, "statm");
  fclose(f);
  return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void once(const ringo_options *o) {
  ringo_job *job = NULL;
  OK(ringo_join(o, &job));
  float *x;
  OK(ringo_alloc(job, 4 * 100000, (void **)&x));
  for (int i = 0; i < 100000; i++) x[i] = 1;
  OK(ringo_allreduce(ringo_world(job), x, 100000, RINGO_FLOAT32, RINGO_SUM));
  CHECK(x[99999] == ringo_size(job), "%g", x[99999]);
  ringo_work *w;
  OK(ringo_start_barrier(ringo_world(job), &w));
  OK(ringo_wait(w, -1));
  OK(ringo_leave(job));
}

/* addresses are where the ranks of one start meet, "": nowhere. Each start has another, as who starts anew may be ahead of who still leaves. */
static void starts_and_stops(ringo_options o, int times, char *addresses) {
  char *where[8];
  int places = 0, threads = 0, files = 0;
  long kib = 0;
  for (char *next = strtok(addresses, ","); next != NULL && places < 8; next = strtok(NULL, ",")) where[places++] = next;
  for (int i = 0; i < times; i++) {
    if (places > 0) o.rendezvous = where[i % places];
    if (i == (times + 3) / 4) threads = entries("/proc/self/task"), files = entries("/proc/self/fd"), kib = memory();
    once(&o);
  }
  int more = entries("/proc/self/task") - threads;
  CHECK(entries("/proc/self/fd") <= files, "%d open files, %d before", entries("/proc/self/fd"), files);
  CHECK(more <= 4, "%d threads more", more); /* Go keeps idle ones, and now and then makes another */
  CHECK(memory() - kib < slack, "%ld KiB more", memory() - kib);
}

/* ranks are this program again, as many times, placed by hand: with a ticket, or with a file that holds it. */
static void by_hand(const char *self, int n, int times, int file) {
  char ticket[65], address[64], addresses[8 * 64] = "", name[] = "/tmp/ringo-ticket-XXXXXX", text[3][16];
  OK(ringo_ticket(ticket));
  CHECK(strlen(ticket) == 64, "%s", ticket);
  for (int i = 0; i < 8; i++) {
    OK(ringo_address("127.0.0.1", address, sizeof address));
    strcat(strcat(addresses, address), ",");
  }
  WANT(RINGO_ERROR_INVALID, ringo_address("127.0.0.1", address, 3));
  if (file) {
    int fd = mkstemp(name);
    CHECK(fd >= 0 && write(fd, ticket, 64) == 64 && write(fd, "\n", 1) == 1 && close(fd) == 0, "%s", name);
  }
  pid_t pids[8];
  for (int r = 0; r < n; r++) {
    snprintf(text[0], 16, "%d", n), snprintf(text[1], 16, "%d", r), snprintf(text[2], 16, "%d", times);
    pids[r] = fork();
    if (pids[r] == 0) execl(self, self, "rank", text[0], text[1], text[2], addresses, file ? "file" : "ticket", file ? name : ticket, (char *)NULL);
  }
  for (int r = 0; r < n; r++) ends_with("a rank by hand", pids[r], 0);
  if (file) unlink(name);
}

static int rank_by_hand(char **argv) {
  ringo_options o = RINGO_OPTIONS_INIT;
  o.size = atoi(argv[2]), o.rank = check_rank = atoi(argv[3]);
  *(strcmp(argv[6], "file") == 0 ? &o.ticket_file : &o.ticket) = argv[7];
  starts_and_stops(o, atoi(argv[4]), argv[5]);
  return 0;
}

int main(int argc, char **argv) {
  if (argc > 7) return rank_by_hand(argv);
  int times = argc > 1 ? atoi(argv[1]) : 40;
  handlers();
  ringo_job *job = join(NULL);
  CHECK(strcmp(ringo_transport(job), "mem") == 0 && ringo_size(job) == 1, "%s", ringo_transport(job));
  signals();
  forks(job);
  char nowhere[] = "";
  ringo_options alone = RINGO_OPTIONS_INIT;
  starts_and_stops(alone, 5 * times, nowhere);
  by_hand(argv[0], 2, times, 0);
  by_hand(argv[0], 3, 4, 1);
  ringo_options o = RINGO_OPTIONS_INIT;
  ringo_job *none = NULL;
  o.size = 2, o.rank = 1, o.rendezvous = "127.0.0.1:1", o.join_timeout_ms = 300;
  o.ticket = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
  int code = ringo_join(&o, &none);
  CHECK(code < 0 && none == NULL && strstr(ringo_last_error(), "127.0.0.1:1"), "code %d of a job that is not there", code);
  o.ticket = NULL, o.ticket_file = "/nowhere/ticket";
  CHECK(ringo_join(&o, &none) < 0 && strstr(ringo_last_error(), "/nowhere/ticket"), "a file that is not there is not named");
  setenv("RINGO_RANK", "0", 1); /* what is set after the library was loaded counts */
  CHECK(ringo_join(NULL, &none) < 0 && strstr(ringo_last_error(), "RINGO_WORLD_SIZE"), "a variable that is missing is not named");
  unsetenv("RINGO_RANK");
  ringo_work *open; /* exit() in the middle of an operation and with a job that was not left */
  float x[4] = {0};
  OK(ringo_start_allreduce(ringo_world(job), x, 4, RINGO_FLOAT32, RINGO_SUM, &open));
  return 0;
}
