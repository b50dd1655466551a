/* Two libraries in Go in one program, which calls them by turns. */
#include "check.h"

int second_sum(int n);

int main(void) {
  ringo_job *job;
  float x = 3;
  OK(ringo_join(NULL, &job));
  for (int i = 0; i < 100; i++) {
    CHECK(second_sum(i) == i + 1, "the other library returns %d", second_sum(i));
    OK(ringo_allreduce(ringo_world(job), &x, 1, RINGO_FLOAT32, RINGO_SUM));
  }
  OK(ringo_leave(job));
  CHECK(x == 3, "x is %g", x);
  return 0;
}
