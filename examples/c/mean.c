/* mean.c - ranks agree on the mean of what each has found: a program in C over libringo.
 *
 *     capi/build.sh $HOME/.local
 *     export PKG_CONFIG_PATH=$HOME/.local/lib/pkgconfig LD_LIBRARY_PATH=$HOME/.local/lib
 *     cc mean.c -o mean $(pkg-config --cflags --libs ringo)
 *     ringo run --np 2 -- ./mean
 */
#include <ringo.h>
#include <stdio.h>
#include <stdlib.h>

/* must ends the program, and with it the job, when a call has failed. */
static void must(int code) {
  if (code < 0) {
    fprintf(stderr, "mean: %s\n", ringo_last_error());
    exit(1);
  }
}

int main(void) {
  enum { N = 1 << 20 };
  ringo_job *job;
  float *x, most = 0;
  ringo_work *work;

  must(ringo_join(NULL, &job));
  must(ringo_alloc(job, N * sizeof *x, (void **)&x)); /* memory that the ranks share: reduced without a copy */
  for (int i = 0; i < N; i++) x[i] = (float)(ringo_rank(job) + i % 100);

  must(ringo_start_allreduce(ringo_world(job), x, N, RINGO_FLOAT32, RINGO_MEAN, &work));
  /* ... whatever does not touch x ... */
  must(ringo_wait(work, -1));

  for (int i = 0; i < N; i++) most = x[i] > most ? x[i] : most;
  if (ringo_rank(job) == 0) printf("%d ranks, the greatest mean is %g\n", ringo_size(job), most);
  must(ringo_leave(job));
  return 0;
}
