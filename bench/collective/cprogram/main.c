/* Times the allreduce of a C program over libringo, started by `ringo run`, as program/main.go times that of a Go program: see
 * bench/collective/README.md. The two differ in the language alone.
 *
 * usage: ringo run --np N -- cprogram SECONDS FLOATS...
 *
 * Rank 0 prints one JSON line per size, with the median in microseconds. */
#include <ringo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PERIOD = 5, BATCH = 100, BATCH_FLOATS = 1024, MOST = 2000, LEAST = 5 };

static ringo_job *job;
static ringo_group *world;

static void must(int code) {
  if (code < 0) {
    fprintf(stderr, "cprogram: %s\n", ringo_last_error());
    exit(1);
  }
}

static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static float operand(int rank, size_t i, int salt) { return (float)((i + 2 * (size_t)rank + (size_t)salt) % PERIOD + 1); }

/* loop is one size's: an operand, and what it is rewritten by and must become, by pattern. */
typedef struct {
  float *x, *source[2], *want[2];
  size_t n;
  int calls; /* of a sample */
} loop;

static loop begin(size_t n) {
  loop l = {.n = n, .calls = n <= BATCH_FLOATS ? BATCH : 1};
  must(ringo_alloc(job, n * sizeof *l.x, (void **)&l.x));
  for (int salt = 0; salt < 2; salt++) {
    l.source[salt] = calloc(n + 1, sizeof *l.x), l.want[salt] = calloc(n + 1, sizeof *l.x);
    for (size_t i = 0; i < n; i++) {
      l.source[salt][i] = operand(ringo_rank(job), i, salt);
      for (int rank = 0; rank < ringo_size(job); rank++) l.want[salt][i] += operand(rank, i, salt);
    }
  }
  return l;
}

static void end(loop *l) {
  must(ringo_free(job, l->x));
  for (int salt = 0; salt < 2; salt++) free(l->source[salt]), free(l->want[salt]);
}

/* samples fills us with the microseconds of a call on this rank: of long ones by themselves after a barrier, of short ones in a row, the
 * rewriting included. The last result of each sample is verified. */
static void samples(loop *l, double *us, int n) {
  for (int i = 0; i < n; i++) {
    int salt = i & 1;
    if (l->calls == 1) memcpy(l->x, l->source[salt], l->n * sizeof *l->x);
    must(ringo_barrier(world));
    double start = now_us();
    for (int call = 0; call < l->calls; call++) {
      if (l->calls > 1) {
        salt = call & 1;
        memcpy(l->x, l->source[salt], l->n * sizeof *l->x);
      }
      must(ringo_allreduce(world, l->x, l->n, RINGO_FLOAT32, RINGO_SUM));
    }
    us[i] = (now_us() - start) / l->calls;
    if (l->calls == 1) must(ringo_barrier(world)); /* verifying would take the core from ranks that are not done */
    if (memcmp(l->x, l->want[salt], l->n * sizeof *l->x) != 0) {
      fprintf(stderr, "rank %d: an allreduce of %zu values has a wrong result\n", ringo_rank(job), l->n);
      exit(1);
    }
  }
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* measure fills us with the microseconds of a call, by sample in ascending order: those of the slowest rank, and as many as fit the time. */
static int measure(loop *l, double seconds, double *us) {
  samples(l, us, 3);
  qsort(us, 3, sizeof *us, ascending);
  double fit = seconds * 1e6 / (us[1] * l->calls);
  int64_t n = fit > MOST ? MOST : fit < LEAST ? LEAST : (int64_t)fit;
  must(ringo_broadcast(world, &n, 1, RINGO_INT64, 0));
  samples(l, us, (int)n);
  must(ringo_allreduce(world, us, (size_t)n, RINGO_FLOAT64, RINGO_MAX));
  qsort(us, (size_t)n, sizeof *us, ascending);
  return (int)n;
}

int main(int argc, char **argv) {
  static double us[MOST];
  if (argc < 3 || !(atof(argv[1]) > 0)) {
    fprintf(stderr, "cprogram: want SECONDS, a positive number, and then FLOATS, one size or more\n");
    return 2;
  }
  must(ringo_join(NULL, &job));
  world = ringo_world(job);
  for (int i = 2; i < argc; i++) {
    loop l = begin(strtoul(argv[i], NULL, 10));
    int n = measure(&l, atof(argv[1]), us);
    end(&l);
    if (ringo_rank(job) == 0) {
      printf("{\"floats\":%zu,\"median_us\":%.4f,\"min_us\":%.4f,\"iterations\":%d}\n", l.n, us[n / 2], us[0], n);
      fflush(stdout);
    }
  }
  must(ringo_leave(job));
  return 0;
}
