/* Times MPI_Allreduce of floats; rank 0 prints one JSON line per size.
 *
 * usage: mpirun -np N [--mca pml ob1 --mca btl self,vader | --mca btl self,tcp] mpi_allreduce LABEL SECONDS[:GAP:SKEW] FLOATS...
 *
 * The protocol is that of `ringo bench allreduce` (see bench/collective/README.md):
 * the operand is rewritten before every call, in turns by one of two patterns; a long
 * call is timed by itself after a barrier; short ones in batches, the rewriting
 * included; a sample is its slowest rank's, the figure the median of samples; every
 * result of single calls and every batch's last is verified. With GAP and SKEW, in microseconds,
 * every call follows computation: see arrivals.h. */
#include "arrivals.h"
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PERIOD = 5, BATCH = 100, BATCH_FLOATS = 1024, MOST = 2000, LEAST = 5 };

static int rank, np;

static float operand(int r, long i, int salt) { return (float)((i + 2 * r + salt) % PERIOD + 1); }

static void fill(float *x, long n, int salt) {
  float p[PERIOD];
  for (int i = 0; i < PERIOD; i++) p[i] = operand(rank, i, salt);
  long head = n < PERIOD * 1024L ? n : PERIOD * 1024L;
  for (long i = 0; i < head; i++) x[i] = p[i % PERIOD];
  for (long at = head; at < n; at += head) memcpy(x + at, x, (n - at < head ? n - at : head) * sizeof *x);
}

static void verify(const float *x, long n, int salt) {
  float want[PERIOD] = {0};
  for (int i = 0; i < PERIOD; i++)
    for (int r = 0; r < np; r++) want[i] += operand(r, i, salt);
  for (long i = 0; i < n; i++)
    if (x[i] != want[i % PERIOD]) {
      fprintf(stderr, "rank %d: value %ld of %ld is %g, want %g\n", rank, i, n, x[i], want[i % PERIOD]);
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static void reduce(float *in, float *out, long n) {
  MPI_Allreduce(in, out, (int)n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

/* single fills us with the microseconds of single calls. */
static void single(float *in, float *out, long n, double *us, int samples) {
  for (int i = 0; i < samples; i++) {
    fill(in, n, i & 1);
    MPI_Barrier(MPI_COMM_WORLD);
    double t = MPI_Wtime();
    reduce(in, out, n);
    us[i] = (MPI_Wtime() - t) * 1e6;
    MPI_Barrier(MPI_COMM_WORLD); /* verifying would take the core from ranks that are not done */
    verify(out, n, i & 1);
  }
}

/* batched fills us with the mean microseconds of a call and of rewriting its operand. */
static void batched(float *in, float *out, long n, double *us, int samples) {
  float *source[2] = {malloc(n * sizeof *in + 1), malloc(n * sizeof *in + 1)};
  for (int s = 0; s < 2; s++) fill(source[s], n, s);
  for (int i = 0; i < samples; i++) {
    MPI_Barrier(MPI_COMM_WORLD);
    double t = MPI_Wtime();
    for (int k = 0; k < BATCH; k++) {
      memcpy(in, source[k & 1], n * sizeof *in);
      reduce(in, out, n);
    }
    us[i] = (MPI_Wtime() - t) * 1e6 / BATCH;
    verify(out, n, (BATCH - 1) & 1);
  }
  free(source[0]);
  free(source[1]);
}

/* apart fills us, of rank 0, with the microseconds of calls after computation, and returns those from call to call. */
static double apart(float *in, float *out, long n, double *us, int samples) {
  static double arrived[MOST], ended[MOST], last[MOST];
  fill(in, n, 0);
  MPI_Barrier(MPI_COMM_WORLD);
  double start = now_us();
  for (int i = 0; i < samples; i++) {
    fill(in, n, i & 1);
    compute();
    arrived[i] = now_us();
    reduce(in, out, n);
    ended[i] = now_us();
    verify(out, n, i & 1);
  }
  double loop = (now_us() - start) / samples, longest;
  MPI_Reduce(&loop, &longest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  MPI_Reduce(arrived, last, samples, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  MPI_Reduce(ended, us, samples, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  for (int i = 0; i < samples; i++) us[i] -= last[i];
  return longest;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static int fitting(double seconds, double us) {
  double fit = seconds * 1e6 / us;
  int samples = fit > MOST ? MOST : fit < LEAST ? LEAST : (int)fit;
  MPI_Bcast(&samples, 1, MPI_INT, 0, MPI_COMM_WORLD);
  return samples;
}

static void measure_apart(const char *label, long n, double seconds) {
  float *in = malloc(n * sizeof *in + 1), *out = malloc(n * sizeof *out + 1);
  static double us[MOST];
  double sum = 0;
  int samples = fitting(seconds, apart(in, out, n, us, 10));
  double loop = apart(in, out, n, us, samples);
  qsort(us, samples, sizeof *us, ascending);
  for (int i = 0; i < samples; i++) sum += us[i];
  if (rank == 0) {
    printf("{\"peer\":\"%s\",\"np\":%d,\"floats\":%ld,\"median_us\":%.4f,\"min_us\":%.4f,\"iterations\":%d,"
           "\"gap_us\":%g,\"skew_us\":%g,\"mean_us\":%.4f,\"loop_us\":%.4f}\n",
           label, np, n, us[samples / 2], us[0], samples, gap_us, skew_us, sum / samples, loop);
    fflush(stdout);
  }
  free(in);
  free(out);
}

static void measure(const char *label, long n, double seconds) {
  float *in = malloc(n * sizeof *in + 1), *out = malloc(n * sizeof *out + 1);
  static double us[MOST], slowest[MOST];
  int calls = n <= BATCH_FLOATS ? BATCH : 1;
  void (*run)(float *, float *, long, double *, int) = calls > 1 ? batched : single;
  run(in, out, n, us, 3);
  qsort(us, 3, sizeof *us, ascending);
  int samples = fitting(seconds, us[1] * calls);
  run(in, out, n, us, samples);
  MPI_Reduce(us, slowest, samples, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  qsort(slowest, samples, sizeof *slowest, ascending);
  if (rank == 0) {
    printf("{\"peer\":\"%s\",\"np\":%d,\"floats\":%ld,\"median_us\":%.4f,\"min_us\":%.4f,\"iterations\":%d}\n", label, np, n,
           slowest[samples / 2], slowest[0], samples);
    fflush(stdout);
  }
  free(in);
  free(out);
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &np);
  if (argc < 4) {
    fprintf(stderr, "usage: mpi_allreduce LABEL SECONDS[:GAP:SKEW] FLOATS...\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  double seconds;
  int apart = sscanf(argv[2], "%lf:%lf:%lf", &seconds, &gap_us, &skew_us) == 3;
  prepare_compute(rank);
  for (int i = 3; i < argc; i++) (apart ? measure_apart : measure)(argv[1], atol(argv[i]), seconds);
  MPI_Finalize();
  return 0;
}
