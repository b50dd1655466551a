/* Tables of rows on servers: rows are pulled, looked at, moved, and what is wrong is refused. It is started with two servers in mode bsp. */
#include "check.h"

static const char *schema =
    "{\"sparse\": [{\"name\": \"t\", \"dim\": 2, \"rule\": {\"name\": \"sgd\", \"lr\": 0.5}, \"init\": {\"name\": \"constant\", \"value\": 1}}]}";

int main(void) {
  ringo_job *job;
  OK(ringo_join(NULL, &job));
  CHECK(ringo_servers(job) == 2, "%d servers", ringo_servers(job));
  ringo_tables *tables;
  WANT(RINGO_ERROR_INVALID, ringo_tables_open(job, "{", &tables));
  WANT(RINGO_ERROR_INVALID, ringo_tables_open(job, NULL, &tables));
  OK(ringo_tables_open(job, schema, &tables));

  uint64_t keys[] = {3, (uint64_t)1 << 63, 5};
  float rows[6], g = 1 + (float)ringo_rank(job), gradients[] = {g, g, g, g, g, g};
  float mean = (1 + (float)ringo_size(job)) / 2;
  for (uint64_t step = 1; step <= 3; step++) {
    ringo_work *work;
    OK(ringo_start_pull(tables, 0, step, keys, 3, rows, &work));
    OK(ringo_wait(work, -1));
    for (int i = 0; i < 6; i++) CHECK(rows[i] == 1 - 0.5f * mean * (float)(step - 1), "step %d: value %d is %g", (int)step, i, rows[i]);
    OK(ringo_push(tables, 0, step, keys, 3, gradients));
    OK(ringo_clock(tables, step, -1));
  }
  uint64_t unknown = 77;
  OK(ringo_peek(tables, 0, 4, &unknown, 1, rows));
  CHECK(rows[0] == 1 && rows[1] == 1, "a row that is not there is %g, %g", rows[0], rows[1]);
  OK(ringo_pull(tables, 0, 4, NULL, 0, NULL));
  OK(ringo_flush(tables));

  WANT(RINGO_ERROR_INVALID, ringo_pull(tables, 1, 4, keys, 1, rows));
  WANT(RINGO_ERROR_INVALID, ringo_pull(tables, 0, 4, NULL, 1, rows));
  WANT(RINGO_ERROR_INVALID, ringo_pull(tables, 0, 0, keys, 1, rows));
  WANT(RINGO_ERROR_INVALID, ringo_push((ringo_tables *)job, 0, 4, keys, 1, rows));
  WANT(RINGO_ERROR_INVALID, ringo_save(tables, 3, 4, NULL, 0));
  OK(ringo_tables_close(tables));
  WANT(RINGO_ERROR_INVALID, ringo_clock(tables, 4, -1));
  OK(ringo_leave(job));
  return 0;
}
