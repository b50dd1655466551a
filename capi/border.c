/* border.c - the functions of ringo.h. Each refuses what a forked child asks, which must not enter Go: of Go's threads none is
 * there, and whatever waits for one would wait for ever. What is left is Go's. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "_cgo_export.h"
#include "border.h"

/* ---- faults ----
 *
 * Each thread has its own last one, in memory that it gets when it first fails and that is freed when it ends. It does not lie in the thread's
 * storage itself: Go has that laid out statically, where a library that is loaded late finds room for a few words alone. */

static border_fault spare = {-1, ""}; /* of who has not failed, or finds no memory */
static _Thread_local border_fault *own;
static pthread_key_t ending;

static void forget(void *fault) {
  own = NULL;
  free(fault);
}

static border_fault *last(void) {
  if (own == NULL) {
    own = calloc(1, sizeof *own);
    if (own != NULL) pthread_setspecific(ending, own);
  }
  return own == NULL ? &spare : own;
}

/* ---- forks ---- */

static volatile sig_atomic_t forked; /* in a child that fork() has made */

static void note_fork(void) { forked = 1; }

static int refuse(int code, const char *why) {
  border_fault *fault = last();
  fault->rank = -1;
  strncpy(fault->text, why, sizeof fault->text - 1);
  return code;
}

static int refuse_forked(void) {
  return refuse(RINGO_ERROR_FORKED,
                "this process is a fork of the one that has loaded libringo, which cannot be used here: load it after the fork, or exec()");
}

/* ---- signals ----
 *
 * Go's runtime starts its threads when the library is loaded, and they keep the mask of signals that the loading thread has then. With all
 * blocked, signals to the process go to threads of the program: Go's would run handlers on their small stacks, and take signals that the
 * program waits for with sigwait(). Constructors with a priority run before Go's, which has none; this file's other one comes after. */

static sigset_t mask_before;
static volatile sig_atomic_t masked;

__attribute__((constructor(101))) static void before_go(void) {
  sigset_t all;
  sigfillset(&all);
  masked = pthread_sigmask(SIG_SETMASK, &all, &mask_before) == 0;
  pthread_atfork(NULL, NULL, note_fork);
  pthread_key_create(&ending, forget);
}

__attribute__((constructor)) static void after_go(void) {
  if (masked) pthread_sigmask(SIG_SETMASK, &mask_before, NULL);
}

/* A handler may interrupt a thread that is in Go, on a stack of a few KiB: there it needs the stack for signals that Go has for each
 * thread. */
static void handlers_on_their_stack(void) {
  for (int sig = 1; sig < NSIG; sig++) {
    struct sigaction a;
    if (sigaction(sig, NULL, &a) != 0 || a.sa_flags & SA_ONSTACK) continue;
    if (!(a.sa_flags & SA_SIGINFO) && (a.sa_handler == SIG_DFL || a.sa_handler == SIG_IGN)) continue;
    a.sa_flags |= SA_ONSTACK;
    sigaction(sig, &a, NULL);
  }
}

/* ---- versions and faults ---- */

int ringo_abi(void) { return RINGO_ABI; }
const char *ringo_version(void) { return RINGO_VERSION; }
const char *ringo_last_error(void) { return own == NULL ? spare.text : own->text; }
int ringo_last_error_rank(void) { return own == NULL ? spare.rank : own->rank; }

/* ---- jobs ---- */

/* taken copies what a program gives as a struct that begins with its own size: a later version's is taken if what this one does not
 * know is 0. */
static int taken(void *known, size_t size, const void *given, size_t theirs) {
  if (theirs < sizeof theirs) return 0;
  for (size_t i = size; i < theirs; i++)
    if (((const char *)given)[i] != 0) return 0;
  memcpy(known, given, theirs < size ? theirs : size);
  return 1;
}

int ringo_join(const ringo_options *options, ringo_job **job) {
  if (forked) return refuse_forked();
  if (job == NULL) return refuse(RINGO_ERROR_INVALID, "ringo_join: job is NULL");
  *job = NULL;
  ringo_options o = RINGO_OPTIONS_INIT;
  if (options != NULL && !taken(&o, sizeof o, options, options->struct_size))
    return refuse(RINGO_ERROR_INVALID, "ringo_join: struct_size of the options is not set, begin with RINGO_OPTIONS_INIT, or they are of a later version of libringo");
  handlers_on_their_stack();
  return borderJoin(&o, job, last());
}

int ringo_leave(ringo_job *job) { return forked ? refuse_forked() : borderLeave(job, last()); }

int ringo_fail(ringo_job *job, const char *why, int *told) {
  if (told != NULL) *told = 0;
  return forked ? refuse_forked() : borderFail(job, (char *)(why == NULL ? "no reason was given" : why), told, last());
}

static int ask(ringo_job *job, int what) { return forked ? refuse_forked() : borderAsk(job, what, last()); }

int ringo_rank(ringo_job *job) { return ask(job, BORDER_RANK); }
int ringo_size(ringo_job *job) { return ask(job, BORDER_SIZE); }
int ringo_local_rank(ringo_job *job) { return ask(job, BORDER_LOCAL_RANK); }

const char *ringo_transport(ringo_job *job) {
  static const char *const names[] = {"mem", "tcp", "shm"};
  int i = ask(job, BORDER_TRANSPORT);
  return i < 0 ? NULL : names[i];
}

int ringo_ticket(char ticket[65]) {
  if (ticket == NULL) return refuse(RINGO_ERROR_INVALID, "ringo_ticket: ticket is NULL");
  return forked ? refuse_forked() : borderTicket(ticket, last());
}

int ringo_address(const char *host, char *address, size_t room) {
  if (host == NULL || address == NULL) return refuse(RINGO_ERROR_INVALID, "ringo_address: host or address is NULL");
  return forked ? refuse_forked() : borderAddress((char *)host, address, room, last());
}

/* ---- groups and memory ---- */

ringo_group *ringo_world(ringo_job *job) {
  ringo_group *group = NULL;
  if (forked) {
    refuse_forked();
    return NULL;
  }
  return borderWorld(job, &group, last()) == RINGO_OK ? group : NULL;
}

int ringo_subgroup(ringo_job *job, const int *ranks, size_t n, ringo_group **group) {
  if (forked) return refuse_forked();
  if (group == NULL || ranks == NULL || n == 0) return refuse(RINGO_ERROR_INVALID, "ringo_subgroup: no ranks, or group is NULL");
  *group = NULL;
  return borderSubgroup(job, (int *)ranks, n, group, last());
}

int ringo_group_close(ringo_group *group) { return forked ? refuse_forked() : borderCloseGroup(group, last()); }
int ringo_group_rank(ringo_group *group) { return forked ? refuse_forked() : borderAskGroup(group, BORDER_RANK, last()); }
int ringo_group_size(ringo_group *group) { return forked ? refuse_forked() : borderAskGroup(group, BORDER_SIZE, last()); }

const char *ringo_group_algorithm(ringo_group *group) { /* the numbers of collective.Algorithms, from 1 */
  static const char *const names[] = {"auto", "ring", "doubling", "halving", "tree", "hierarchical", "exchange", "direct", "pairwise", "naive"};
  int i = forked ? refuse_forked() : borderAskGroup(group, BORDER_ALGORITHM, last());
  return i < 0 ? NULL : names[i];
}

int ringo_alloc(ringo_job *job, size_t bytes, void **memory) {
  if (forked) return refuse_forked();
  if (memory == NULL) return refuse(RINGO_ERROR_INVALID, "ringo_alloc: memory is NULL");
  *memory = NULL;
  return borderAlloc(job, bytes, memory, last());
}

int ringo_free(ringo_job *job, void *memory) {
  if (memory == NULL) return RINGO_OK;
  return forked ? refuse_forked() : borderFree(job, memory, last());
}

/* ---- operations ---- */

static int run(ringo_group *group, border_request r) {
  return forked ? refuse_forked() : borderRun(group, &r, last());
}

static int start(ringo_group *group, border_request r, ringo_work **work) {
  if (forked) return refuse_forked();
  if (work == NULL) return refuse(RINGO_ERROR_INVALID, "work is NULL");
  *work = NULL;
  return borderStart(group, &r, work, last());
}

/* BOTH defines an operation and its start: (parameters), and the request that they make. Parentheses keep commas together. */
#define JUST(...) __VA_ARGS__
#define BOTH(name, parameters, request)                                                                        \
  int ringo_##name(ringo_group *group, JUST parameters) { return run(group, (border_request){JUST request}); } \
  int ringo_start_##name(ringo_group *group, JUST parameters, ringo_work **work) {                             \
    return start(group, (border_request){JUST request}, work);                                                 \
  }

BOTH(allreduce, (void *x, size_t n, ringo_type type, ringo_op op), (.kind = BORDER_ALLREDUCE, .type = type, .op = op, .dst = x, .n = n))
BOTH(reduce, (void *x, size_t n, ringo_type type, ringo_op op, int root),
     (.kind = BORDER_REDUCE, .type = type, .op = op, .peer = root, .dst = x, .n = n))
BOTH(broadcast, (void *x, size_t n, ringo_type type, int root), (.kind = BORDER_BROADCAST, .type = type, .peer = root, .dst = x, .n = n))
BOTH(reduce_scatter, (void *dst, const void *src, size_t n, ringo_type type, ringo_op op),
     (.kind = BORDER_REDUCE_SCATTER, .type = type, .op = op, .dst = dst, .src = src, .n = n))
BOTH(allgather, (void *dst, const void *src, size_t n, ringo_type type), (.kind = BORDER_ALLGATHER, .type = type, .dst = dst, .src = src, .n = n))
BOTH(allgather_to, (void *const *dst, const void *src, size_t n, ringo_type type), (.kind = BORDER_ALLGATHER_TO, .type = type, .parts = dst, .src = src, .n = n))
BOTH(allgatherv, (void *dst, const void *src, const size_t *counts, ringo_type type),
     (.kind = BORDER_ALLGATHERV, .type = type, .dst = dst, .src = src, .dst_counts = counts))
BOTH(gather, (void *dst, const void *src, size_t n, ringo_type type, int root),
     (.kind = BORDER_GATHER, .type = type, .peer = root, .dst = dst, .src = src, .n = n))
BOTH(scatter, (void *dst, const void *src, size_t n, ringo_type type, int root),
     (.kind = BORDER_SCATTER, .type = type, .peer = root, .dst = dst, .src = src, .n = n))
BOTH(alltoall, (void *dst, const void *src, size_t n, ringo_type type), (.kind = BORDER_ALLTOALL, .type = type, .dst = dst, .src = src, .n = n))
BOTH(alltoallv, (void *dst, const size_t *dst_counts, const void *src, const size_t *src_counts, ringo_type type),
     (.kind = BORDER_ALLTOALLV, .type = type, .dst = dst, .src = src, .dst_counts = dst_counts, .src_counts = src_counts))
BOTH(send, (const void *x, size_t n, ringo_type type, int to), (.kind = BORDER_SEND, .type = type, .peer = to, .dst = (void *)x, .n = n))
BOTH(receive, (void *x, size_t n, ringo_type type, int from), (.kind = BORDER_RECEIVE, .type = type, .peer = from, .dst = x, .n = n))
BOTH(listen, (void *x, size_t n, ringo_type type, int from), (.kind = BORDER_LISTEN, .type = type, .peer = from, .dst = x, .n = n))

int ringo_barrier(ringo_group *group) { return run(group, (border_request){.kind = BORDER_BARRIER}); }
int ringo_start_barrier(ringo_group *group, ringo_work **work) { return start(group, (border_request){.kind = BORDER_BARRIER}, work); }

/* ---- strategies ---- */

int ringo_strategy_open(ringo_group *group, const char *name, double density, const char *const *names, const size_t *lengths, size_t n,
                        ringo_strategy **strategy) {
  if (forked) return refuse_forked();
  if (strategy == NULL || name == NULL || names == NULL || lengths == NULL || n == 0)
    return refuse(RINGO_ERROR_INVALID, "ringo_strategy_open: no parameters, or a pointer is NULL");
  *strategy = NULL;
  return borderStrategyOpen(group, (char *)name, density, (char **)names, (size_t *)lengths, n, strategy, last());
}

int ringo_strategy_arrange(ringo_strategy *strategy, const size_t *order, size_t n, const size_t *ends, size_t buckets) {
  if (forked) return refuse_forked();
  if (order == NULL || ends == NULL) return refuse(RINGO_ERROR_INVALID, "ringo_strategy_arrange: order or ends is NULL");
  return borderStrategyArrange(strategy, (size_t *)order, n, (size_t *)ends, buckets, last());
}

int ringo_strategy_tune(ringo_strategy *strategy, const ringo_tuning *tuning, const size_t *order, size_t n, const size_t *ends, size_t layers) {
  if (forked) return refuse_forked();
  if (order == NULL || ends == NULL) return refuse(RINGO_ERROR_INVALID, "ringo_strategy_tune: order or ends is NULL");
  ringo_tuning t = RINGO_TUNING_INIT;
  if (tuning != NULL && !taken(&t, sizeof t, tuning, tuning->struct_size))
    return refuse(RINGO_ERROR_INVALID, "ringo_strategy_tune: struct_size of the tuning is not set, begin with RINGO_TUNING_INIT, or it is of a later version of libringo");
  return borderStrategyTune(strategy, &t, (size_t *)order, n, (size_t *)ends, layers, last());
}

int ringo_strategy_ready(ringo_strategy *strategy, size_t layer) {
  return forked ? refuse_forked() : borderStrategyReady(strategy, layer, last());
}

int ringo_strategy_step(ringo_strategy *strategy) { return forked ? refuse_forked() : borderStrategyStep(strategy, last()); }

int ringo_strategy_buckets(ringo_strategy *strategy, size_t *ends, size_t room) {
  if (forked) return refuse_forked();
  return borderStrategyBuckets(strategy, ends, ends == NULL ? 0 : room, last());
}

int ringo_strategy_report(ringo_strategy *strategy, char *text, size_t room) {
  if (forked) return refuse_forked();
  return borderStrategyReport(strategy, text, text == NULL ? 0 : room, last());
}

int ringo_strategy_close(ringo_strategy *strategy) { return forked ? refuse_forked() : borderStrategyClose(strategy, last()); }

int ringo_start_exchange(ringo_strategy *strategy, size_t bucket, float *gradients, size_t n, ringo_work **work) {
  if (forked) return refuse_forked();
  if (work == NULL) return refuse(RINGO_ERROR_INVALID, "work is NULL");
  *work = NULL;
  return borderStartExchange(strategy, bucket, gradients, n, work, last());
}

int ringo_exchange(ringo_strategy *strategy, size_t bucket, float *gradients, size_t n) {
  ringo_work *work;
  int code = ringo_start_exchange(strategy, bucket, gradients, n, &work);
  return code == RINGO_OK ? ringo_wait(work, -1) : code;
}

int ringo_residual(ringo_strategy *strategy, size_t parameter, float *values, size_t n) {
  return forked ? refuse_forked() : borderResidual(strategy, parameter, values, n, 0, last());
}

int ringo_set_residual(ringo_strategy *strategy, size_t parameter, const float *values, size_t n) {
  return forked ? refuse_forked() : borderResidual(strategy, parameter, (float *)values, n, 1, last());
}

/* ---- tables ---- */

int ringo_servers(ringo_job *job) { return ask(job, BORDER_SERVERS); }

int ringo_tables_open(ringo_job *job, const char *schema, ringo_tables **tables) {
  if (forked) return refuse_forked();
  if (tables == NULL || schema == NULL) return refuse(RINGO_ERROR_INVALID, "ringo_tables_open: schema or tables is NULL");
  *tables = NULL;
  return borderTablesOpen(job, (char *)schema, tables, last());
}

static int start_pull(ringo_tables *tables, size_t table, int peek, uint64_t step, const uint64_t *keys, size_t n, float *rows, ringo_work **work) {
  if (forked) return refuse_forked();
  if (work == NULL) return refuse(RINGO_ERROR_INVALID, "work is NULL");
  *work = NULL;
  return borderStartPull(tables, table, peek, step, (uint64_t *)keys, n, rows, work, last());
}

int ringo_start_pull(ringo_tables *tables, size_t table, uint64_t step, const uint64_t *keys, size_t n, float *rows, ringo_work **work) {
  return start_pull(tables, table, 0, step, keys, n, rows, work);
}

int ringo_start_peek(ringo_tables *tables, size_t table, uint64_t step, const uint64_t *keys, size_t n, float *rows, ringo_work **work) {
  return start_pull(tables, table, 1, step, keys, n, rows, work);
}

static int pull(ringo_tables *tables, size_t table, int peek, uint64_t step, const uint64_t *keys, size_t n, float *rows) {
  ringo_work *work;
  int code = start_pull(tables, table, peek, step, keys, n, rows, &work);
  return code == RINGO_OK ? ringo_wait(work, -1) : code;
}

int ringo_pull(ringo_tables *tables, size_t table, uint64_t step, const uint64_t *keys, size_t n, float *rows) {
  return pull(tables, table, 0, step, keys, n, rows);
}

int ringo_peek(ringo_tables *tables, size_t table, uint64_t step, const uint64_t *keys, size_t n, float *rows) {
  return pull(tables, table, 1, step, keys, n, rows);
}

int ringo_push(ringo_tables *tables, size_t table, uint64_t step, const uint64_t *keys, size_t n, const float *gradients) {
  return forked ? refuse_forked() : borderPush(tables, table, step, (uint64_t *)keys, n, (float *)gradients, last());
}

int ringo_clock(ringo_tables *tables, uint64_t step, double rate) { return forked ? refuse_forked() : borderClock(tables, step, rate, last()); }
int ringo_flush(ringo_tables *tables) { return forked ? refuse_forked() : borderFlush(tables, last()); }

int ringo_save(ringo_tables *tables, uint64_t step, uint64_t oldest, uint64_t *numbers, size_t servers) {
  return forked ? refuse_forked() : borderSave(tables, step, oldest, numbers, servers, last());
}

int ringo_tables_close(ringo_tables *tables) { return forked ? refuse_forked() : borderTablesClose(tables, last()); }

int ringo_test(ringo_work *work) { return ringo_wait(work, 0); }
int ringo_wait(ringo_work *work, int64_t timeout_ms) { return forked ? refuse_forked() : borderWait(work, timeout_ms, last()); }

/* ---- heter-trainers ---- */

int border_part_open(const ringo_part *p, const char *about, ringo_part_memory *memory, char *error, size_t room) {
  return p->open(p->context, about, memory, error, room);
}

int border_part_run(const ringo_part *p, ringo_micro_batch *m, char *error, size_t room) { return p->run(p->context, m, error, room); }

int border_part_update(const ringo_part *p, double rate, float scale, char *error, size_t room) {
  return p->update(p->context, rate, scale, error, room);
}

int border_part_sync(const ringo_part *p, int action, char *error, size_t room) { return p->sync(p->context, action, error, room); }

void border_part_close(const ringo_part *p) {
  if (p->close != NULL) p->close(p->context);
}

void border_part_report(const ringo_part *p, const char *line) {
  if (p->report != NULL) p->report(p->context, line);
}

int ringo_serve_part(const ringo_options *options, const char *settings, const ringo_part *part) {
  if (forked) return refuse_forked();
  ringo_options o = RINGO_OPTIONS_INIT;
  ringo_part p = {0};
  if (options != NULL && !taken(&o, sizeof o, options, options->struct_size))
    return refuse(RINGO_ERROR_INVALID, "ringo_serve_part: struct_size of the options is not set, begin with RINGO_OPTIONS_INIT, or they are of a later version of libringo");
  if (part == NULL || !taken(&p, sizeof p, part, part->struct_size) || p.open == NULL || p.run == NULL || p.update == NULL || p.sync == NULL)
    return refuse(RINGO_ERROR_INVALID, "ringo_serve_part: the part needs struct_size, open, run, update and sync");
  handlers_on_their_stack();
  return borderServePart(&o, (char *)(settings == NULL ? "" : settings), &p, last());
}

/* ---- 16-bit numbers ---- */

static int convert(int type, int back, uint16_t *halves, float *floats, size_t n) {
  return forked ? refuse_forked() : borderConvert(type, back, halves, floats, n, last());
}

int ringo_to_float16(uint16_t *dst, const float *src, size_t n) { return convert(RINGO_FLOAT16, 0, dst, (float *)src, n); }
int ringo_from_float16(float *dst, const uint16_t *src, size_t n) { return convert(RINGO_FLOAT16, 1, (uint16_t *)src, dst, n); }
int ringo_to_bfloat16(uint16_t *dst, const float *src, size_t n) { return convert(RINGO_BFLOAT16, 0, dst, (float *)src, n); }
int ringo_from_bfloat16(float *dst, const uint16_t *src, size_t n) { return convert(RINGO_BFLOAT16, 1, (uint16_t *)src, dst, n); }
