/* check.h - what the tests of libringo have in common: a condition that fails says where, and on which rank, and ends the program. */
#ifndef CHECK_H
#define CHECK_H
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ringo.h"

static int check_rank = -1;

#define CHECK(ok, ...)                                                       \
  do {                                                                       \
    if (!(ok)) {                                                             \
      fprintf(stderr, "%s:%d: rank %d: %s: ", __FILE__, __LINE__, check_rank, #ok); \
      fprintf(stderr, __VA_ARGS__);                                          \
      fprintf(stderr, " (last error: %s)\n", ringo_last_error());            \
      exit(1);                                                               \
    }                                                                        \
  } while (0)

#define WANT(code, call)                                     \
  do {                                                       \
    int check_got = (call);                                  \
    CHECK(check_got == (code), #call " is %d, want %d", check_got, code); \
  } while (0)

#define OK(call) WANT(RINGO_OK, call)

static inline double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

/* join joins by the launcher's variables, or as options say. */
static inline ringo_job *join(const ringo_options *options) {
  ringo_job *job = NULL;
  OK(ringo_join(options, &job));
  check_rank = ringo_rank(job);
  return job;
}
#endif
