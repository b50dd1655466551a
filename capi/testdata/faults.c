/* What survivors are told of a rank that dies, gives up, comes late, leaves, or starts something else. argv[1] says which. */
#include <pthread.h>

#include "check.h"

enum { N = 1 << 16 };
static float x[N];

/* until_it_fails sums until the job fails, and wants that fault, of that rank. */
static void until_it_fails(ringo_group *g, int code, int culprit, const char *text) {
  int got = RINGO_OK;
  double begun = seconds();
  for (int i = 0; got == RINGO_OK; i++) {
    CHECK(seconds() - begun < 60, "nothing has failed");
    got = ringo_allreduce(g, x, i % 2 ? N : 8, RINGO_FLOAT32, RINGO_MAX);
  }
  CHECK(got == code && ringo_last_error_rank() == culprit, "code %d, want %d; rank %d, want %d", got, code, ringo_last_error_rank(), culprit);
  CHECK(strstr(ringo_last_error(), text) && strstr(ringo_last_error(), "allreduce"), "want it to speak of \"%s\"", text);
  char before[512];
  snprintf(before, sizeof before, "%s", ringo_last_error());
  ringo_work *w;
  OK(ringo_start_barrier(g, &w)); /* the group is broken: what is started fails, too */
  CHECK(ringo_wait(w, 60000) == code && ringo_last_error_rank() == culprit, "after that: %s", before);
}

/* summing is an operation of another thread, which is under way when the job is left. */
static struct summing {
  ringo_group *g;
  float *x;
  int code;
} summing;

static void *sum(void *arg) {
  struct summing *s = arg;
  s->code = ringo_allreduce(s->g, s->x, N, RINGO_FLOAT32, RINGO_SUM);
  return NULL;
}

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "";
  ringo_options o = RINGO_OPTIONS_INIT;
  o.timeout_ms = strcmp(what, "silent") == 0 ? 1000 : 0;
  ringo_job *job = join(&o);
  ringo_group *g = ringo_world(job);
  int last = ringo_size(job) - 1, mine = check_rank == last;

  if (strcmp(what, "dies") == 0) {
    for (int i = 0; i < 5; i++) OK(ringo_allreduce(g, x, N, RINGO_FLOAT32, RINGO_SUM));
    if (mine) _exit(3);
    until_it_fails(g, RINGO_ERROR_LOST, last, "lost");
  } else if (strcmp(what, "gives-up") == 0) {
    int told = -1;
    OK(ringo_allreduce(g, x, N, RINGO_FLOAT32, RINGO_SUM));
    if (mine) {
      OK(ringo_fail(job, "the disk is full", &told));
      CHECK(told == 1, "told is %d: the launcher tells of it", told);
    } else {
      until_it_fails(g, RINGO_ERROR_LOST, last, "the disk is full");
    }
  } else if (strcmp(what, "late") == 0) { /* a deadline of ringo_wait ends no operation */
    ringo_work *w;
    int token = 0, waits = 0, code;
    if (mine) {
      for (int r = 0; r < last; r++) OK(ringo_receive(g, &token, 1, RINGO_INT32, r)); /* all have found that it has not ended */
      OK(ringo_start_allreduce(g, x, N, RINGO_FLOAT32, RINGO_SUM, &w));
    } else {
      OK(ringo_start_allreduce(g, x, N, RINGO_FLOAT32, RINGO_SUM, &w));
      WANT(RINGO_PENDING, ringo_test(w));
      double begun = seconds();
      WANT(RINGO_PENDING, ringo_wait(w, 30));
      CHECK(seconds() - begun >= 0.029, "waited for %g s", seconds() - begun);
      OK(ringo_send(g, &token, 1, RINGO_INT32, last));
    }
    while ((code = ringo_wait(w, 50)) == RINGO_PENDING) CHECK(++waits < 1000, "it never ends");
    CHECK(code == RINGO_OK, "code %d", code);
    OK(ringo_leave(job));
    return 0;
  } else if (strcmp(what, "leaves") == 0) { /* its operands live until it has ended, and are freed after that */
    if (mine) {
      sleep(1); /* and never comes */
    } else {
      pthread_t other;
      summing.g = g;
      OK(ringo_alloc(job, N * sizeof(float), (void **)&summing.x));
      CHECK(pthread_create(&other, NULL, sum, &summing) == 0, "no thread");
      usleep(200000);
      double begun = seconds();
      int code = ringo_leave(job); /* the first to leave an operation unfinished is lost to the others, whose leave may come later */
      CHECK(code == RINGO_OK || code == RINGO_ERROR_LOST, "code %d", code);
      CHECK(seconds() - begun < 30, "leaving took %g s", seconds() - begun);
      CHECK(pthread_join(other, NULL) == 0 && summing.code < 0, "code %d", summing.code);
      job = NULL;
    }
  } else if (strcmp(what, "differs") == 0) {
    WANT(RINGO_ERROR_MISMATCH, mine ? ringo_broadcast(g, x, 100, RINGO_FLOAT32, 0) : ringo_allreduce(g, x, 100, RINGO_FLOAT32, RINGO_SUM));
    CHECK(strstr(ringo_last_error(), "broadcast") && strstr(ringo_last_error(), "allreduce"), "both are to be told");
  } else if (strcmp(what, "silent") == 0) { /* a rank that lives and does not come: the others' wait expires */
    if (mine) {
      sleep(3);
    } else {
      int code = ringo_barrier(g);
      CHECK(code == RINGO_ERROR_TIMEOUT || code == RINGO_ERROR_LOST, "code %d", code);
      CHECK(ringo_last_error_rank() == last, "rank %d is blamed, want %d", ringo_last_error_rank(), last);
    }
  } else {
    CHECK(0, "%s is not a case", what);
  }
  if (job) ringo_leave(job); /* of a job that has failed: whatever it says */
  fprintf(stderr, "rank %d passed\n", check_rank);
  return 7; /* the launcher is to see a failed job */
}
