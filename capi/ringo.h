/* ringo.h - collective operations among the processes of a job, and what they need: join, groups, shared memory.
 *
 * A job is a number of processes, its ranks, numbered from 0. `ringo run --np 4 -- ./program` starts them:
 *
 *     ringo_job *job;
 *     if (ringo_join(NULL, &job) != RINGO_OK) {
 *       fprintf(stderr, "%s\n", ringo_last_error());
 *       return 1;
 *     }
 *     float *x;
 *     ringo_alloc(job, n * sizeof *x, (void **)&x);
 *     ...
 *     ringo_allreduce(ringo_world(job), x, n, RINGO_FLOAT32, RINGO_MEAN);
 *     ringo_leave(job);
 *
 * RESULTS. Functions return RINGO_OK (0), RINGO_PENDING (1), a number that they are asked for, or a negative ringo_error.
 * ringo_last_error() then has the fault of this thread's last failed call in words, with the rank and the operation.
 *
 * ORDER. All ranks of a group start the same operations in the same order; they may wait for them in any order. Ranks that
 * start different operations get RINGO_ERROR_MISMATCH, never a wrong result. Sends and receives are ordered for each two
 * ranks, by themselves.
 *
 * THREADS. Any thread may call any function at any time, but that two threads must not wait for the same ringo_work, and what
 * is said of the order of a group's operations holds for all threads together: threads that work independently have a
 * group each (ringo_subgroup).
 *
 * FAULTS. The first fault of an operation ends the job's operations on all ranks: a lost rank, an expired wait, a mismatch.
 * All later calls fail, too. Only RINGO_ERROR_INVALID leaves things as they were. Nothing is thrown, and nothing calls exit().
 *
 * FORKS. A child of fork() cannot use the library: there each function returns RINGO_ERROR_FORKED at once, and memory of
 * ringo_alloc is still its parent's. It may call exec(), run on without the library, and end as it likes.
 *
 * SIGNALS. The program's handlers stay, and get the signals to the process, as sigwait() does: threads of the library block them. They
 * take those alone that a fault of their own raises, SIGPROF, and SIGURG, which they send each other: a handler of SIGURG must bear
 * with some that mean nothing. SIGPIPE no longer ends a program that has not set it: write() returns EPIPE. Handlers that are
 * set after ringo_join need SA_ONSTACK, which ringo_join adds to those that are there: a thread may be in the library, on a small
 * stack, when one comes.
 *
 * MEMORY. Operands are the caller's, and must be aligned as their type. They must not be touched from the start of an operation
 * until it has ended. Lengths are numbers of values, not of bytes.
 */
#ifndef RINGO_H
#define RINGO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface. Functions and constants are added to it and never changed or removed; RINGO_ABI rises,
 * with the name of the library, if that has to be otherwise. */
#define RINGO_ABI 1

/* The release that this file is of. */
#define RINGO_VERSION "0.1.0"

/* ringo_abi is RINGO_ABI of the library that runs. */
int ringo_abi(void);

/* ringo_version is the release of the library, such as "0.1.0". All ranks of a job need the same. */
const char *ringo_version(void);

/* ---- results ---------------------------------------------------------------------------------------------------- */

typedef enum ringo_error {
  RINGO_OK = 0,
  RINGO_PENDING = 1,          /* of ringo_test and ringo_wait: the operation goes on */
  RINGO_ERROR_INVALID = -1,   /* an argument or a handle is wrong: nothing was started */
  RINGO_ERROR_LOST = -2,      /* a rank is gone, or has ended the job: ringo_last_error_rank() */
  RINGO_ERROR_TIMEOUT = -3,   /* a rank did not come or answer in time */
  RINGO_ERROR_MISMATCH = -4,  /* ranks have started different operations */
  RINGO_ERROR_CLOSED = -5,    /* the group or the job was closed on this side */
  RINGO_ERROR_FORKED = -6,    /* this process is a fork of the one that has loaded the library */
  RINGO_ERROR_INTERNAL = -7,  /* a fault of the library: please report it, with ringo_last_error() */
  RINGO_ERROR_FAILED = -8     /* anything else: ringo_last_error() says what */
} ringo_error;

/* ringo_last_error is the fault of this thread's last call that failed, "" if none has. The text is valid until this thread's
 * next call that fails. */
const char *ringo_last_error(void);

/* ringo_last_error_rank is the rank of the job that is to blame for it, -1 if none is known. */
int ringo_last_error_rank(void);

/* ---- jobs ------------------------------------------------------------------------------------------------------- */

typedef struct ringo_job ringo_job;     /* this process's part of a job, from ringo_join to ringo_leave */
typedef struct ringo_group ringo_group; /* some ranks of a job, or all */
typedef struct ringo_work ringo_work;   /* an operation that was started */

/* ringo_options places a rank in its job. Begin with RINGO_OPTIONS_INIT: then everything else may stay 0. */
typedef struct ringo_options {
  size_t struct_size;       /* sizeof(ringo_options): by it later versions know which fields there are */
  int size;                 /* number of ranks, to place a rank by hand; 0: the launcher's variables do */
  int rank;                 /* by hand: this rank, 0 to size-1 */
  const char *rendezvous;   /* by hand: HOST:PORT where rank 0 listens, see ringo_address */
  const char *ticket;       /* the job's secret, the same on all ranks, see ringo_ticket; NULL: RINGO_TICKET or RINGO_TICKET_FILE has it */
  const char *ticket_file;  /* by hand: the same in a file that only its owner may read, in place of ticket */
  const char *transport;    /* "shm", "tcp"; NULL: the launcher's choice, or shm where ranks share a host */
  const char *bind;         /* by hand: "auto", "core": bind to processors; NULL or "none": leave threads as they are */
  int64_t timeout_ms;       /* bounds each wait for another rank within an operation; 0: 10 minutes */
  int64_t join_timeout_ms;  /* bounds the wait for all ranks at the start; 0: 60 seconds */
  const char *algorithm;    /* "ring", "doubling" or another name of docs/costs.md, for all operations that have it, on all ranks; NULL: the launcher's choice, or "auto" */
} ringo_options;

#define RINGO_OPTIONS_INIT { sizeof(ringo_options), 0, 0, NULL, NULL, NULL, NULL, NULL, 0, 0, NULL }

/* ringo_join makes this process a rank and returns when all are there. options may be NULL: then the variables say where it
 * belongs that `ringo run` sets (RINGO_RANK and others, as getenv() finds them now), or those of another launcher that docs/cluster.md
 * names, such as mpirun. Without these it is a job of one rank. Variables that place it only in part are an error. A process joins
 * the job of `ringo run` once; with --min-np, again after the loss of a rank and ringo_leave: ringo_join then waits up to 30 seconds for
 * this rank's place among the others, of which a new process may be one. RINGO_ERROR_LOST: another rank is lost, call it again. */
int ringo_join(const ringo_options *options, ringo_job **job);

/* ringo_leave leaves in good order and frees the job with its groups and its memory. Operations of other ranks that still need
 * this one fail. Operations under way here fail; their ringo_work is still to be waited for. A process that ends without
 * ringo_leave counts as lost. */
int ringo_leave(ringo_job *job);

/* ringo_fail ends the job because of a fault of the program: operations of all ranks fail, and name this rank and why. *told, if
 * told is not NULL, becomes 1 if a launcher tells of it, so that the program need not. ringo_leave is still to be called. */
int ringo_fail(ringo_job *job, const char *why, int *told);

int ringo_rank(ringo_job *job);       /* this rank, from 0 */
int ringo_size(ringo_job *job);       /* how many there are */
int ringo_local_rank(ringo_job *job); /* this rank's number among those of its host */

/* ringo_transport is what the ranks of this host talk over: "shm", "tcp", or "mem" in a job of one rank; NULL on a fault. */
const char *ringo_transport(ringo_job *job);

/* ringo_ticket writes a new secret of 64 characters and a zero byte, for ringo_options.ticket of all ranks of one job. */
int ringo_ticket(char ticket[65]);

/* ringo_address writes HOST:PORT with a port of this host that nobody listens at now, for ringo_options.rendezvous. host must be an
 * address by which the other ranks reach this process, such as "127.0.0.1". room is that of address, in bytes. Another process may take
 * the port before rank 0 joins, which then fails. */
int ringo_address(const char *host, char *address, size_t room);

/* ---- groups ----------------------------------------------------------------------------------------------------- */

/* ringo_world is the group of all ranks. It is the job's, and never closed by itself. NULL on a fault. */
ringo_group *ringo_world(ringo_job *job);

/* ringo_subgroup makes a group of n ranks of the job, numbered in the order given. These ranks alone call it, all with the same
 * ranks, and wait for each other; two ranks that have several groups in common make them in the same order. The ranks of a host share
 * memory in 16 groups at a time that a rank is in; one that all of them have closed makes room for another. */
int ringo_subgroup(ringo_job *job, const int *ranks, size_t n, ringo_group **group);

/* ringo_group_close ends a group of ringo_subgroup. Operations under way fail, on its other ranks, too. */
int ringo_group_close(ringo_group *group);

int ringo_group_rank(ringo_group *group); /* this rank's number in the group */
int ringo_group_size(ringo_group *group);

/* ringo_group_algorithm is the algorithm of the group's operations that have it, such as "ring"; "auto": chosen by ranks and bytes. NULL on a fault. */
const char *ringo_group_algorithm(ringo_group *group);

/* ---- memory ----------------------------------------------------------------------------------------------------- */

/* ringo_alloc gives memory of zeros, aligned to 64 bytes, that the ranks of this host share if they can: operands that lie there
 * are reduced without a copy. Where there is none or no more, it is ordinary memory. ringo_leave frees it. */
int ringo_alloc(ringo_job *job, size_t bytes, void **memory);

/* ringo_free gives back what ringo_alloc gave, which no operation may use any more. Shared memory is used again if it was the last that
 * was given; else it stays the job's until ringo_leave: allocate what lasts first. */
int ringo_free(ringo_job *job, void *memory);

/* ---- operations ------------------------------------------------------------------------------------------------- */

typedef enum ringo_type {
  RINGO_FLOAT32 = 0,
  RINGO_FLOAT64 = 1,
  RINGO_INT32 = 2,
  RINGO_INT64 = 3,
  RINGO_UINT8 = 4,
  RINGO_FLOAT16 = 5,  /* bits of IEEE 754 binary16; sums are computed in float and rounded */
  RINGO_BFLOAT16 = 6  /* the upper half of a float, likewise */
} ringo_type;

typedef enum ringo_op {
  RINGO_SUM = 0,
  RINGO_MEAN = 1, /* floating point only */
  RINGO_MIN = 2,  /* NaN wins */
  RINGO_MAX = 3,  /* NaN wins */
  RINGO_PROD = 4
} ringo_op;

/* ringo_allreduce replaces the n values of x on every rank by their reduction over all ranks. */
int ringo_allreduce(ringo_group *group, void *x, size_t n, ringo_type type, ringo_op op);

/* ringo_reduce does so on rank root alone; x of the other ranks is only read. */
int ringo_reduce(ringo_group *group, void *x, size_t n, ringo_type type, ringo_op op, int root);

/* ringo_broadcast replaces x on every rank by that of rank root. */
int ringo_broadcast(ringo_group *group, void *x, size_t n, ringo_type type, int root);

/* ringo_reduce_scatter reduces src, n values for each rank, and leaves those of this rank in dst, n values. dst may be this rank's part of
 * src. */
int ringo_reduce_scatter(ringo_group *group, void *dst, const void *src, size_t n, ringo_type type, ringo_op op);

/* ringo_allgather writes every rank's n values of src to dst, in rank order: n x size values. src may be this rank's part of dst. */
int ringo_allgather(ringo_group *group, void *dst, const void *src, size_t n, ringo_type type);

/* ringo_allgather_to writes them to dst[0], ..., dst[size - 1], which may lie anywhere, rank r's to dst[r]; src may be this rank's one. Where
 * ranks share memory it takes no longer. Other ranks may call ringo_allgather. The list itself is not kept. */
int ringo_allgather_to(ringo_group *group, void *const *dst, const void *src, size_t n, ringo_type type);

/* ringo_allgatherv does what ringo_allgather does with parts of different lengths: src has counts[rank] values. counts, one for each rank, are the same on
 * every rank. */
int ringo_allgatherv(ringo_group *group, void *dst, const void *src, const size_t *counts, ringo_type type);

/* ringo_gather is ringo_allgather to rank root alone; on the others dst is not used. */
int ringo_gather(ringo_group *group, void *dst, const void *src, size_t n, ringo_type type, int root);

/* ringo_scatter gives every rank its n values of root's src, which has n x size; on the others src is not used. */
int ringo_scatter(ringo_group *group, void *dst, const void *src, size_t n, ringo_type type, int root);

/* ringo_alltoall sends part r of src, n values, to rank r, and writes that of rank r to part r of dst. They must not overlap. */
int ringo_alltoall(ringo_group *group, void *dst, const void *src, size_t n, ringo_type type);

/* ringo_alltoallv does so with parts of different lengths, which lie one behind the other: dst_counts[r] values come from rank r, and
 * src_counts[r] go to it. */
int ringo_alltoallv(ringo_group *group, void *dst, const size_t *dst_counts, const void *src, const size_t *src_counts, ringo_type type);

/* ringo_barrier returns when every rank has called it. */
int ringo_barrier(ringo_group *group);

/* ringo_send sends x to another rank, whose ringo_receive has the same n and type. It returns when x may be written again. */
int ringo_send(ringo_group *group, const void *x, size_t n, ringo_type type, int to);
int ringo_receive(ringo_group *group, void *x, size_t n, ringo_type type, int from);

/* ringo_listen is ringo_receive for who listens for what may never come: timeout_ms of the options does not bound the wait for it, a
 * lost rank does. */
int ringo_listen(ringo_group *group, void *x, size_t n, ringo_type type, int from);

/* ---- operations that are started, and waited for later ---------------------------------------------------------- */

/* Each ringo_start_ function is the one above in the background. If it returns RINGO_OK, *work is to be waited for, exactly until
 * ringo_test or ringo_wait return anything but RINGO_PENDING: that frees it. counts may be changed at once, other operands not. */
int ringo_start_allreduce(ringo_group *group, void *x, size_t n, ringo_type type, ringo_op op, ringo_work **work);
int ringo_start_reduce(ringo_group *group, void *x, size_t n, ringo_type type, ringo_op op, int root, ringo_work **work);
int ringo_start_broadcast(ringo_group *group, void *x, size_t n, ringo_type type, int root, ringo_work **work);
int ringo_start_reduce_scatter(ringo_group *group, void *dst, const void *src, size_t n, ringo_type type, ringo_op op, ringo_work **work);
int ringo_start_allgather(ringo_group *group, void *dst, const void *src, size_t n, ringo_type type, ringo_work **work);
int ringo_start_allgather_to(ringo_group *group, void *const *dst, const void *src, size_t n, ringo_type type, ringo_work **work);
int ringo_start_allgatherv(ringo_group *group, void *dst, const void *src, const size_t *counts, ringo_type type, ringo_work **work);
int ringo_start_gather(ringo_group *group, void *dst, const void *src, size_t n, ringo_type type, int root, ringo_work **work);
int ringo_start_scatter(ringo_group *group, void *dst, const void *src, size_t n, ringo_type type, int root, ringo_work **work);
int ringo_start_alltoall(ringo_group *group, void *dst, const void *src, size_t n, ringo_type type, ringo_work **work);
int ringo_start_alltoallv(ringo_group *group, void *dst, const size_t *dst_counts, const void *src, const size_t *src_counts, ringo_type type, ringo_work **work);
int ringo_start_barrier(ringo_group *group, ringo_work **work);
int ringo_start_send(ringo_group *group, const void *x, size_t n, ringo_type type, int to, ringo_work **work);
int ringo_start_receive(ringo_group *group, void *x, size_t n, ringo_type type, int from, ringo_work **work);
int ringo_start_listen(ringo_group *group, void *x, size_t n, ringo_type type, int from, ringo_work **work);

/* ringo_test tells whether an operation has ended: RINGO_OK, RINGO_PENDING, or its fault. */
int ringo_test(ringo_work *work);

/* ringo_wait waits until an operation has ended, at most so long: RINGO_PENDING says that it has not, and goes on. A negative timeout
 * waits for the end, which the job's own timeouts bound. */
int ringo_wait(ringo_work *work, int64_t timeout_ms);

/* ---- strategies: gradients that are compressed ------------------------------------------------------------------ */

typedef struct ringo_strategy ringo_strategy; /* from ringo_strategy_open to ringo_strategy_close, or ringo_leave */

/* ringo_strategy_open makes a strategy by its name: "dlgs", "dgc", "lags", "sparseTopK", "sparseThreshold", "int8", "fp16", "bf16", "fp32", or "auto",
 * which is fp32 until ringo_strategy_tune. What it does not send
 * of a gradient it keeps, by parameter, and adds to the next one. There are n parameters of lengths values each, with names; at
 * first all lie in one bucket. density is the share of values that are sent, or sparseThreshold's threshold; 0: the default. All ranks of
 * the group open the same strategies in the same order. */
int ringo_strategy_open(ringo_group *group, const char *name, double density, const char *const *names, const size_t *lengths, size_t n,
                        ringo_strategy **strategy);

/* ringo_strategy_arrange is the plan of buckets: order has the numbers of all n parameters, as they lie in their buckets, one bucket
 * after the other, and ends where each bucket ends in order. It is called when no exchange is under way. What is kept goes with its
 * parameter. It ends what ringo_strategy_tune began. */
int ringo_strategy_arrange(ringo_strategy *strategy, const size_t *order, size_t n, const size_t *ends, size_t buckets);

/* ringo_exchange replaces the n gradients of a bucket by their mean over the ranks, as far as it was sent. All ranks exchange the same buckets
 * in the same order. ringo_start_exchange compresses before it returns, and exchanges in the background: until the work has ended, the bucket
 * cannot be exchanged once more. */
int ringo_exchange(ringo_strategy *strategy, size_t bucket, float *gradients, size_t n);
int ringo_start_exchange(ringo_strategy *strategy, size_t bucket, float *gradients, size_t n, ringo_work **work);

/* ringo_residual copies what this rank keeps of a parameter, and ringo_set_residual writes it, for checkpoints, between exchanges. Strategies that
 * keep nothing refuse both. */
int ringo_residual(ringo_strategy *strategy, size_t parameter, float *values, size_t n);
int ringo_set_residual(ringo_strategy *strategy, size_t parameter, const float *values, size_t n);

/* ringo_tuning says how ringo_strategy_tune chooses. Begin with RINGO_TUNING_INIT. */
typedef struct ringo_tuning {
  size_t struct_size;  /* sizeof(ringo_tuning) */
  const char *plan;    /* how layers are merged to buckets: "exact", "dlgs-scan", "mgwfbp"; NULL: "exact" */
  const char *choices; /* "choices" of an earlier run's report: the same is done after the same steps, and nothing is measured; NULL: none */
  int64_t steps;       /* how many steps that run had done, "steps" there, where this one goes on from it */
  const char *profile; /* "profile" of an earlier run's report, or a file of `ringo train --tune --cost-profile`: chooses by it; NULL: the first steps are measured */
} ringo_tuning;

#define RINGO_TUNING_INIT { sizeof(ringo_tuning), NULL, NULL, 0, NULL }

/* ringo_strategy_tune has the library plan the buckets, and under "auto" choose the strategy, as `ringo train` does with measured plans.
 * order has the numbers of all n parameters as backward finishes them, and ends where each layer ends in it: a layer's
 * parameters are always in one bucket. tuning may be NULL. All ranks of the group call it with the same, when no exchange is under way.
 * From then on a step is, on every rank:
 *
 *     ringo_strategy_ready(strategy, layer);                        for each layer when its gradients are final, in any order
 *     ringo_start_exchange(strategy, bucket, gradients, n, &work);  for each bucket once its layers are ready, in order
 *     ringo_wait(work, -1);                                         for each; then the update
 *     if (ringo_strategy_step(strategy) == 1) ...                   ringo_strategy_buckets has other buckets now
 *
 * Three steps settle and nine are measured, with all layers in one bucket; then what strategies and exchanges cost is measured, which takes
 * seconds, and all ranks choose the same, by the slowest rank's figures. Later it may choose again, if steps take other times. */
int ringo_strategy_tune(ringo_strategy *strategy, const ringo_tuning *tuning, const size_t *order, size_t n, const size_t *ends, size_t layers);

/* ringo_strategy_ready reports that the gradients of a layer, by its number in ringo_strategy_tune, are final: once per layer and step. */
int ringo_strategy_ready(ringo_strategy *strategy, size_t layer);

/* ringo_strategy_step ends a step. It returns 1 if strategy or buckets are others from now on, and 0 if not. */
int ringo_strategy_step(ringo_strategy *strategy);

/* ringo_strategy_buckets returns how many buckets there are, and writes to ends, which has room for so many, how many layers there are up to the
 * end of each. There are never more buckets than layers. */
int ringo_strategy_buckets(ringo_strategy *strategy, size_t *ends, size_t room);

/* ringo_strategy_report writes an object of JSON: "strategy", "plan" and "buckets" as they are now, "why", such as that compression does not
 * pay, what steps were "predicted" to take with each strategy, what they took ("measured"), and "choices", "steps" and "profile" for
 * ringo_tuning. It returns how many bytes the text has without the zero byte at its end; what finds no room is left out. */
int ringo_strategy_report(ringo_strategy *strategy, char *text, size_t room);

int ringo_strategy_close(ringo_strategy *strategy);

/* ---- tables of rows on servers ---------------------------------------------------------------------------------- */

typedef struct ringo_tables ringo_tables; /* from ringo_tables_open to ringo_tables_close, or ringo_leave */

/* ringo_servers is how many servers of tables `ringo run --servers N --sync MODE` has started beside the job: 0 for none. */
int ringo_servers(ringo_job *job);

/* ringo_tables_open connects to them. schema says as JSON which tables there are, the same on all ranks: name, weights of a row, the rule
 * that moves them with its learning rate and settings, and how rows begin (zeros, constant, uniform):
 *
 *     {"sparse": [{"name": "users", "dim": 16, "rule": {"name": "adagrad", "lr": 0.05}, "init": {"name": "uniform", "value": 0.01}}]}
 *
 * "settings": {"sync": "ssp", "ps.staleness": "2"} in it names settings that the servers must have: others reject the rank.
 * A rank opens them once. Rows are made when they are first asked for; which server has one depends on its key alone. */
int ringo_tables_open(ringo_job *job, const char *schema, ringo_tables **tables);

/* ringo_pull writes the rows of n keys in a table, by its number in the schema, to rows, n x dim values, as they are to be for a step,
 * counted from 1: in mode bsp it waits until all ranks have ended the step before. A key may be there several times. ringo_peek leaves the
 * table as it is: a key without a row gets the weights with which one would begin. keys are the caller's again once these are started. */
int ringo_pull(ringo_tables *tables, size_t table, uint64_t step, const uint64_t *keys, size_t n, float *rows);
int ringo_peek(ringo_tables *tables, size_t table, uint64_t step, const uint64_t *keys, size_t n, float *rows);
int ringo_start_pull(ringo_tables *tables, size_t table, uint64_t step, const uint64_t *keys, size_t n, float *rows, ringo_work **work);
int ringo_start_peek(ringo_tables *tables, size_t table, uint64_t step, const uint64_t *keys, size_t n, float *rows, ringo_work **work);

/* ringo_push sends gradients of n keys' rows, n x dim values, which belong to a step. Both are the caller's again when it returns. In mode
 * bsp a row moves once a step, by the mean over the ranks; in async and ssp with each push, by the whole of it. */
int ringo_push(ringo_tables *tables, size_t table, uint64_t step, const uint64_t *keys, size_t n, const float *gradients);

/* ringo_clock says that this rank has pushed all that it will of a step, and what the learning rate is from the next one on; below 0: as it
 * is. */
int ringo_clock(ringo_tables *tables, uint64_t step, double rate);

/* ringo_flush waits until the servers have acknowledged everything that was pushed. */
int ringo_flush(ringo_tables *tables);

/* ringo_save has all servers write a checkpoint after a step, in the folder that they were started with. All ranks call it, and push nothing
 * before it returns. oldest is the lowest step whose checkpoints are still of use. numbers, if it is not NULL, gets that of each server's. */
int ringo_save(ringo_tables *tables, uint64_t step, uint64_t oldest, uint64_t *numbers, size_t servers);

/* ringo_tables_close leaves the servers in good order. Without it and ringo_leave they take this rank for lost. */
int ringo_tables_close(ringo_tables *tables);

/* ---- heter-trainers --------------------------------------------------------------------------------------------- */

/* A heter-trainer computes the last layers of a model, the stage, for the ranks of a job: see docs/heter.md. ringo_serve_part makes
 * this process one, and calls the functions of ringo_part for the computation.
 *
 * A ringo_micro_batch is a part of a rank's batch. Arrays are in the order of the samples, and valid during the call alone. */
typedef struct ringo_micro_batch {
  size_t n;                /* number of samples */
  int eval;                /* 1: only out, loss, terms and correct are needed */
  float seed;              /* gradient of the step's loss with respect to this micro-batch's loss */
  const float *const *in;  /* inputs of the stage, in the order of the cut's In, n x Shape values each */
  const int32_t *labels;   /* n x Labels values */
  const float *targets;    /* n x Targets values */
  float *out;              /* to write: the result of the stage, n x Out values */
  float *const *gradients; /* to write: gradients of in; NULL for inputs that need none */
  float loss;              /* to set: the mean over terms */
  size_t terms, correct;   /* to set: number of samples, or tokens, in the mean; number of right ones for a classifier */
} ringo_micro_batch;

/* ringo_part_memory is memory of the program, valid until close. It has copies of the device's values, or the values themselves. */
typedef struct ringo_part_memory {
  float *gradients, *values; /* of the parameters, n values each */
  size_t n;
  float *state; /* of the optimizer, n_state values */
  size_t n_state;
  int start; /* 1: parameters are at the Offset of the cut's Slots, and rank 0 sends their first values; 2: others, which ranks cannot save: the
              * first heter-trainer's first values are those of all */
} ringo_part_memory;

/* Actions of sync: copies between the device and this memory, and a new sum of gradients. */
enum { RINGO_READ_GRADIENTS, RINGO_WRITE_GRADIENTS, RINGO_READ_STATE, RINGO_WRITE_STATE, RINGO_RESET_GRADIENTS };

/* ringo_part has the functions of a program. They return 0, or another number after they have written a text to error, room bytes with the
 * zero byte: it ends the job. The thread that has called ringo_serve_part calls run and update; open, sync and close may be called by
 * another one, and report by any. No two calls but those of report overlap. After an open that fails, or whose memory is rejected and then
 * closed, open may be called once more, for another rank. */
typedef struct ringo_part {
  size_t struct_size; /* sizeof(ringo_part) */
  void *context;      /* first argument of each function */
  /* open gets the ranks' description of the model as JSON: its field "cut" has the stage, with inputs, result, parameters and operations. */
  int (*open)(void *context, const char *about, ringo_part_memory *memory, char *error, size_t room);
  /* run computes the stage and the loss, and adds to the gradients of the parameters unless eval is set. */
  int (*run)(void *context, ringo_micro_batch *micro_batch, char *error, size_t room);
  /* update moves the parameters by the gradients x scale, at a learning rate. */
  int (*update)(void *context, double rate, float scale, char *error, size_t room);
  int (*sync)(void *context, int action, char *error, size_t room);
  void (*close)(void *context);                    /* after a successful open; NULL: nothing */
  void (*report)(void *context, const char *line); /* a line for users; NULL: nothing */
} ringo_part;

/* ringo_serve_part returns when all ranks have left. options place it by hand: size is the number of ranks, rank the number of this
 * heter-trainer; NULL: the variables of `ringo run` do, or RINGO_HETER_INDEX, RINGO_HETER_ADDRS, RINGO_WORLD_SIZE and a ticket. settings is
 * NULL or JSON, with those of the ranks: addresses (of all heter-trainers, required by hand), stateless (true for every --sync but bsp),
 * trainer_threads. The process is no rank, and needs no ringo_join. */
int ringo_serve_part(const ringo_options *options, const char *settings, const ringo_part *part);

/* ---- 16-bit numbers --------------------------------------------------------------------------------------------- */

/* These round float to 16 bits, to the nearest and of two to the even one, and back, which is exact. */
int ringo_to_float16(uint16_t *dst, const float *src, size_t n);
int ringo_from_float16(float *dst, const uint16_t *src, size_t n);
int ringo_to_bfloat16(uint16_t *dst, const float *src, size_t n);
int ringo_from_bfloat16(float *dst, const uint16_t *src, size_t n);

#ifdef __cplusplus
}
#endif

#endif /* RINGO_H */
