/* Every operation, type and reduction against what it must give by its definition, blocking and started, of the job's group and of others,
 * in shared memory and in the program's own. */
#include "check.h"

static const size_t widths[] = {4, 8, 4, 8, 1, 2, 2};

static double get(ringo_type type, const void *x, size_t i) {
  float f;
  switch (type) {
    case RINGO_FLOAT32: return ((const float *)x)[i];
    case RINGO_FLOAT64: return ((const double *)x)[i];
    case RINGO_INT32: return ((const int32_t *)x)[i];
    case RINGO_INT64: return (double)((const int64_t *)x)[i];
    case RINGO_UINT8: return ((const uint8_t *)x)[i];
    case RINGO_FLOAT16: OK(ringo_from_float16(&f, (const uint16_t *)x + i, 1)); return f;
    default: OK(ringo_from_bfloat16(&f, (const uint16_t *)x + i, 1)); return f;
  }
}

static void set(ringo_type type, void *x, size_t i, double v) {
  float f = (float)v;
  switch (type) {
    case RINGO_FLOAT32: ((float *)x)[i] = f; break;
    case RINGO_FLOAT64: ((double *)x)[i] = v; break;
    case RINGO_INT32: ((int32_t *)x)[i] = (int32_t)v; break;
    case RINGO_INT64: ((int64_t *)x)[i] = (int64_t)v; break;
    case RINGO_UINT8: ((uint8_t *)x)[i] = (uint8_t)v; break;
    case RINGO_FLOAT16: OK(ringo_to_float16((uint16_t *)x + i, &f, 1)); break;
    default: OK(ringo_to_bfloat16((uint16_t *)x + i, &f, 1));
  }
}

/* value i of rank r's operand: small, so that every type has it and every sum and product exactly */
static double value(int r, size_t i) { return 1 + (i * 7 + (size_t)r * 3 + (i >> 5)) % 3; }

static double reduced(ringo_op op, int size, size_t i) {
  double y = value(0, i);
  for (int r = 1; r < size; r++) {
    double v = value(r, i);
    switch (op) {
      case RINGO_SUM: case RINGO_MEAN: y += v; break;
      case RINGO_MIN: y = v < y ? v : y; break;
      case RINGO_MAX: y = v > y ? v : y; break;
      default: y *= v;
    }
  }
  return op == RINGO_MEAN ? y / size : y;
}

/* what one case has: a group, a type, memory for operands */
static ringo_group *g;
static int rank, size, started;
static ringo_type type;
static char *a, *b;

/* DO is an operation, blocking or started. */
#define DO(name, ...)                                        \
  do {                                                       \
    if (started) {                                           \
      ringo_work *begun;                                     \
      OK(ringo_start_##name(__VA_ARGS__, &begun));               \
      int code = RINGO_PENDING;                              \
      for (int tries = 0; code == RINGO_PENDING; tries++) code = tries < 3 ? ringo_test(begun) : ringo_wait(begun, tries < 6 ? 20 : -1); \
      CHECK(code == RINGO_OK, #name " has ended with %d", code); \
      WANT(RINGO_ERROR_INVALID, ringo_wait(begun, -1));          \
    } else {                                                 \
      OK(ringo_##name(__VA_ARGS__));                         \
    }                                                        \
  } while (0)

static void fill(char *x, int r, size_t from, size_t n) {
  for (size_t i = 0; i < n; i++) set(type, x, i, value(r, from + i));
}

/* same wants n values to be rank r's from value `from` on. */
static void same(const char *what, const char *x, int r, size_t from, size_t n) {
  for (size_t i = 0; i < n; i++) {
    double got = get(type, x, i), want = value(r, from + i);
    CHECK(got == want, "%s of type %d, %zu values, started %d: value %zu is %g, want rank %d's %g", what, type, n, started, i, got, r, want);
  }
}

static void is_reduced(const char *what, ringo_op op, const char *x, size_t from, size_t n) {
  for (size_t i = 0; i < n; i++) {
    double got = get(type, x, i), want = reduced(op, size, from + i), slack = op == RINGO_MEAN ? want * 0.01 : 0;
    CHECK(got >= want - slack && got <= want + slack, "%s %d of type %d, %zu values, started %d: value %zu is %g, want %g", what, op, type, n, started, i,
          got, want);
  }
}

static void reductions(size_t n) {
  size_t w = widths[type];
  for (ringo_op op = RINGO_SUM; op <= RINGO_PROD; op++) {
    if (op == RINGO_MEAN && type >= RINGO_INT32 && type <= RINGO_UINT8) {
      WANT(RINGO_ERROR_INVALID, ringo_allreduce(g, a, n, type, op));
      CHECK(strstr(ringo_last_error(), "mean of") != NULL, "that is not told");
      continue;
    }
    fill(a, rank, 0, n);
    DO(allreduce, g, a, n, type, op);
    is_reduced("allreduce", op, a, 0, n);

    int root = op % size;
    fill(a, rank, 0, n);
    DO(reduce, g, a, n, type, op, root);
    if (rank == root) is_reduced("reduce", op, a, 0, n);
    else same("an operand of reduce", a, rank, 0, n);

    fill(b, rank, 0, n * size);
    DO(reduce_scatter, g, a, b, n, type, op);
    is_reduced("reduce_scatter", op, a, rank * n, n);
    same("the source of reduce_scatter", b, rank, 0, n * size);
    DO(reduce_scatter, g, b + rank * n * w, b, n, type, op);
    is_reduced("reduce_scatter in place", op, b + rank * n * w, rank * n, n);
  }
}

static void parts(size_t n) {
  size_t w = widths[type];
  for (int root = 0; root < size; root++) {
    fill(a, rank, 0, n);
    DO(broadcast, g, a, n, type, root);
    same("broadcast", a, root, 0, n);

    fill(a, rank, 0, n);
    memset(b, 0, n * w * size);
    DO(gather, g, rank == root ? b : NULL, a, n, type, root);
    if (rank == root)
      for (int r = 0; r < size; r++) same("gather", b + r * n * w, r, 0, n);

    fill(b, rank, 0, n * size);
    DO(scatter, g, a, rank == root ? b : NULL, n, type, root);
    same("scatter", a, root, rank * n, n);
  }
  fill(a, rank, 0, n);
  DO(allgather, g, b, a, n, type);
  for (int r = 0; r < size; r++) same("allgather", b + r * n * w, r, 0, n);

  memset(b, 0, n * w * size);
  void *parts[16];
  for (int r = 0; r < size; r++) parts[r] = b + (size - 1 - r) * n * w;
  DO(allgather_to, g, parts, a, n, type);
  for (int r = 0; r < size; r++) same("allgather_to", parts[r], r, 0, n);

  fill(a, rank, 0, n * size);
  DO(alltoall, g, b, a, n, type);
  for (int r = 0; r < size; r++) same("alltoall", b + r * n * w, r, rank * n, n);
}

/* parts of which rank r has n+r values */
static void uneven(size_t n) {
  size_t w = widths[type], counts[16], to[16], from[16];
  for (int r = 0; r < size; r++) counts[r] = n + r;
  fill(a, rank, 0, counts[rank]);
  DO(allgatherv, g, b, a, counts, type);
  for (size_t r = 0, at = 0; r < (size_t)size; at += counts[r++]) same("allgatherv", b + at * w, r, 0, counts[r]);

  size_t at = 0;
  for (int r = 0; r < size; r++) { /* rank s sends rank r n + (s + r) % 2 values: those from value 10 r on */
    to[r] = from[r] = n + (rank + r) % 2;
    fill(a + at * w, rank, 10 * r, to[r]);
    at += to[r];
  }
  DO(alltoallv, g, b, from, a, to, type);
  at = 0;
  for (int r = 0; r < size; r++) {
    same("alltoallv", b + at * w, r, 10 * rank, from[r]);
    at += from[r];
  }
}

static void pairs(size_t n) {
  if (size == 1) return;
  int next = (rank + 1) % size, before = (rank + size - 1) % size;
  ringo_work *w;
  fill(a, rank, 0, n);
  if (started) {
    OK(ringo_start_send(g, a, n, type, next, &w));
    DO(receive, g, b, n, type, before);
    OK(ringo_wait(w, -1));
  } else if (rank % 2 == 0) {
    OK(ringo_start_receive(g, b, n, type, before, &w));
    OK(ringo_send(g, a, n, type, next));
    OK(ringo_wait(w, -1));
  } else {
    OK(ringo_receive(g, b, n, type, before));
    OK(ringo_send(g, a, n, type, next));
  }
  same("receive", b, before, 0, n);
}

/* every operation of a group. Barriers have no operand, and so no macro. */
static void every(ringo_group *group, size_t n) {
  g = group, rank = ringo_group_rank(g), size = ringo_group_size(g);
  for (type = RINGO_FLOAT32; type <= RINGO_BFLOAT16; type++)
    for (started = 0; started < 2; started++) {
      reductions(n);
      parts(n);
      uneven(n);
      pairs(n);
      OK(ringo_barrier(g));
      ringo_work *w;
      OK(ringo_start_barrier(g, &w));
      OK(ringo_wait(w, -1));
    }
}

/* Several operations are under way at once, and waited for in another order. */
static void many(ringo_group *group) {
  enum { COUNT = 20, N = 1000 };
  ringo_work *w[COUNT];
  float *x = (float *)a;
  for (int k = 0; k < COUNT; k++) {
    for (int i = 0; i < N; i++) x[k * N + i] = (float)(ringo_group_rank(group) + k + i % 5);
    OK(ringo_start_allreduce(group, x + k * N, N, RINGO_FLOAT32, RINGO_SUM, &w[k]));
  }
  int s = ringo_group_size(group);
  for (int k = COUNT - 1; k >= 0; k--) {
    OK(ringo_wait(w[k], 60000));
    for (int i = 0; i < N; i++) {
      float want = (float)(s * (s - 1) / 2 + s * (k + i % 5));
      CHECK(x[k * N + i] == want, "value %d of operation %d is %g, want %g", i, k, x[k * N + i], want);
    }
  }
}

/* What ringo_serve_part refuses, before it calls a function of the part. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
static int never_opened(void *context, const char *about, ringo_part_memory *memory, char *error, size_t room) { CHECK(0, "open is called"); }
static int never_run(void *context, ringo_micro_batch *micro_batch, char *error, size_t room) { CHECK(0, "run is called"); }
static int never_updated(void *context, double rate, float scale, char *error, size_t room) { CHECK(0, "update is called"); }
static int never_synced(void *context, int action, char *error, size_t room) { CHECK(0, "sync is called"); }
#pragma GCC diagnostic pop

static void refused_parts(void) {
  ringo_options o = RINGO_OPTIONS_INIT;
  o.size = 2, o.ticket = "secret with a typing mistake";
  ringo_part p = {.struct_size = sizeof p, .open = never_opened, .run = never_run, .update = never_updated};
  WANT(RINGO_ERROR_INVALID, ringo_serve_part(&o, NULL, NULL));
  WANT(RINGO_ERROR_INVALID, ringo_serve_part(&o, NULL, &p));
  CHECK(strstr(ringo_last_error(), "needs struct_size, open, run, update and sync"), "the missing function is not told");
  p.sync = never_synced;
  WANT(RINGO_ERROR_INVALID, ringo_serve_part(&o, "{", &p));
  WANT(RINGO_ERROR_INVALID, ringo_serve_part(&o, "{\"none\": 1}", &p));
  WANT(RINGO_ERROR_INVALID, ringo_serve_part(&o, NULL, &p));
  CHECK(strstr(ringo_last_error(), "the settings have no addresses"), "the missing addresses are not told");
  WANT(RINGO_ERROR_INVALID, ringo_serve_part(&o, "{\"addresses\": [\"127.0.0.1:1\"]}", &p));
  CHECK(strstr(ringo_last_error(), "64 hexadecimal"), "the wrong ticket is not told");
  o.struct_size = p.struct_size = 0;
  WANT(RINGO_ERROR_INVALID, ringo_serve_part(&o, NULL, &p));
}

/* What is wrong is refused by all ranks alike, starts nothing, and leaves the group as it was. */
static void misuse(ringo_job *job) {
  ringo_group *all = ringo_world(job), *other = (ringo_group *)1;
  ringo_work *w = (ringo_work *)1;
  float x[4] = {1, 2, 3, 4};
  WANT(RINGO_ERROR_INVALID, ringo_allreduce(NULL, x, 4, RINGO_FLOAT32, RINGO_SUM));
  WANT(RINGO_ERROR_INVALID, ringo_allreduce((ringo_group *)job, x, 4, RINGO_FLOAT32, RINGO_SUM));
  WANT(RINGO_ERROR_INVALID, ringo_allreduce((ringo_group *)(uintptr_t)123456, x, 4, RINGO_FLOAT32, RINGO_SUM));
  WANT(RINGO_ERROR_INVALID, ringo_allreduce(all, NULL, 4, RINGO_FLOAT32, RINGO_SUM));
  WANT(RINGO_ERROR_INVALID, ringo_allreduce(all, x, 4, (ringo_type)7, RINGO_SUM));
  WANT(RINGO_ERROR_INVALID, ringo_allreduce(all, x, 4, (ringo_type)260, RINGO_SUM));
  WANT(RINGO_ERROR_INVALID, ringo_allreduce(all, x, 4, RINGO_FLOAT32, (ringo_op)5));
  WANT(RINGO_ERROR_INVALID, ringo_allreduce(all, x, 4, RINGO_FLOAT32, (ringo_op)256));
  WANT(RINGO_ERROR_INVALID, ringo_allreduce(all, x, SIZE_MAX, RINGO_FLOAT32, RINGO_SUM));
  WANT(RINGO_ERROR_INVALID, ringo_allreduce(all, x, SIZE_MAX / 8, RINGO_FLOAT64, RINGO_SUM));
  WANT(RINGO_ERROR_INVALID, ringo_broadcast(all, x, 4, RINGO_FLOAT32, 99));
  CHECK(strstr(ringo_last_error(), "root 99") && strstr(ringo_last_error(), "broadcast"), "neither root nor operation is told");
  CHECK(ringo_last_error_rank() == -1, "a rank is blamed: %d", ringo_last_error_rank());
  WANT(RINGO_ERROR_INVALID, ringo_send(all, x, 4, RINGO_FLOAT32, check_rank));
  WANT(RINGO_ERROR_INVALID, ringo_allgatherv(all, x, x, NULL, RINGO_FLOAT32));
  size_t huge[16] = {SIZE_MAX, SIZE_MAX};
  WANT(RINGO_ERROR_INVALID, ringo_allgatherv(all, x, x, huge, RINGO_FLOAT32));
  WANT(RINGO_ERROR_INVALID, ringo_start_allreduce(all, x, 4, RINGO_FLOAT32, RINGO_SUM, NULL));
  WANT(RINGO_ERROR_INVALID, ringo_start_allreduce(all, NULL, 4, RINGO_FLOAT32, RINGO_SUM, &w));
  CHECK(w == NULL, "a work of what was not started");
  WANT(RINGO_ERROR_INVALID, ringo_wait(w, 0));
  WANT(RINGO_ERROR_INVALID, ringo_group_close(all));
  int twice[2] = {check_rank, check_rank}, none[1] = {77};
  WANT(RINGO_ERROR_INVALID, ringo_subgroup(job, twice, 2, &other));
  CHECK(other == NULL, "a group of what is none");
  WANT(RINGO_ERROR_INVALID, ringo_subgroup(job, none, 1, &other));
  WANT(RINGO_ERROR_INVALID, ringo_subgroup(job, none, 0, &other));
  WANT(RINGO_ERROR_INVALID, ringo_subgroup(job, none, SIZE_MAX, &other));
  WANT(RINGO_ERROR_INVALID, ringo_free(job, x));
  void *m;
  WANT(RINGO_ERROR_INVALID, ringo_alloc(job, SIZE_MAX, &m));
  WANT(RINGO_ERROR_INVALID, ringo_join(NULL, NULL));
  ringo_options o = RINGO_OPTIONS_INIT;
  ringo_job *second;
  o.struct_size = 0;
  WANT(RINGO_ERROR_INVALID, ringo_join(&o, &second));
  struct { ringo_options o; int64_t more; } later = {RINGO_OPTIONS_INIT, 1};
  later.o.struct_size = sizeof later;
  WANT(RINGO_ERROR_INVALID, ringo_join(&later.o, &second));
  o.struct_size = sizeof o, o.size = 2, o.rank = 5, o.rendezvous = "x";
  WANT(RINGO_ERROR_INVALID, ringo_join(&o, &second));
  CHECK(strstr(ringo_last_error(), "want 0 to 1") && strstr(ringo_last_error(), "HOST:PORT"), "not all that is wrong is told");
  o.size = 0, o.rank = 0, o.rendezvous = NULL, o.ticket = "secret with a typing mistake";
  WANT(RINGO_ERROR_INVALID, ringo_join(&o, &second));
  CHECK(strstr(ringo_last_error(), "typing") == NULL, "the secret is told");
  OK(ringo_allreduce(all, x, 4, RINGO_FLOAT32, RINGO_MEAN));
  CHECK(x[0] == 1 && x[3] == 4, "%g %g", x[0], x[3]);
}

static void halves(void) {
  const float in[] = {1, -2, 65504, 0.1f, 1e-8f};
  const uint16_t half[] = {0x3c00, 0xc000, 0x7bff, 0x2e66, 0}, brain[] = {0x3f80, 0xc000, 0x4780, 0x3dcd, 0x322c};
  uint16_t out[5];
  float back[5];
  OK(ringo_to_float16(out, in, 5));
  CHECK(memcmp(out, half, sizeof out) == 0, "float16 %04x %04x %04x %04x %04x", out[0], out[1], out[2], out[3], out[4]);
  OK(ringo_from_float16(back, out, 3));
  CHECK(memcmp(back, in, 3 * sizeof *in) == 0, "float16 and back");
  OK(ringo_to_bfloat16(out, in, 5));
  CHECK(memcmp(out, brain, sizeof out) == 0, "bfloat16 %04x %04x %04x %04x %04x", out[0], out[1], out[2], out[3], out[4]);
  OK(ringo_from_bfloat16(back, out, 2));
  CHECK(memcmp(back, in, 2 * sizeof *in) == 0, "bfloat16 and back");
  WANT(RINGO_ERROR_INVALID, ringo_to_float16(NULL, in, 1));
}

/* One strategy whose buckets the library plans, as an earlier run has chosen, and one that is named, with the same buckets: the same bits, of
 * what is sent and of what is kept. */
static void strategies(ringo_group *all) {
  const char *names[] = {"a", "b", "c"};
  const size_t lengths[] = {300, 50, 1000}, order[] = {2, 1, 0}, layers[] = {1, 2, 3}, buckets[] = {2, 3};
  static float x[1350], y[1350], kept[1000], theirs[1000];
  ringo_strategy *tuned, *named;
  size_t ends[3];
  char report[512];
  OK(ringo_strategy_open(all, "auto", 0.1, names, lengths, 3, &tuned));
  OK(ringo_strategy_open(all, "dlgs", 0.1, names, lengths, 3, &named));
  OK(ringo_strategy_arrange(named, order, 3, buckets, 2));
  WANT(RINGO_ERROR_INVALID, ringo_strategy_step(tuned));
  ringo_tuning t = RINGO_TUNING_INIT;
  t.struct_size = 0;
  WANT(RINGO_ERROR_INVALID, ringo_strategy_tune(tuned, &t, order, 3, layers, 3));
  t.struct_size = sizeof t, t.choices = "0:dlgs/exact=1,2; 4:exact=2,1", t.steps = 1;
  WANT(RINGO_ERROR_INVALID, ringo_strategy_tune(tuned, &t, NULL, 3, layers, 3));
  OK(ringo_strategy_tune(tuned, &t, order, 3, layers, 3));
  WANT(2, ringo_strategy_buckets(tuned, NULL, 0));
  for (int step = 2; step < 12; step++) {
    for (int i = 0; i < 1350; i++) x[i] = y[i] = (float)((i * 7919 + step * 104729 + check_rank * 31) % 1009 - 500) / 1009;
    WANT(2, ringo_strategy_buckets(tuned, ends, 3));
    CHECK(ends[0] == (step <= 4 ? 1 : 2) && ends[1] == 3, "buckets end at %zu and %zu in step %d", ends[0], ends[1], step);
    size_t first = ends[0] == 1 ? 1000 : 1050;
    for (size_t layer = 0; layer < 3; layer++) OK(ringo_strategy_ready(tuned, layer));
    ringo_work *work;
    OK(ringo_start_exchange(tuned, 0, x, first, &work));
    OK(ringo_exchange(tuned, 1, x + first, 1350 - first));
    OK(ringo_wait(work, -1));
    if (step > 4) { /* from here on in the same buckets: the other one goes on with what this one has kept */
      OK(ringo_exchange(named, 0, y, 1050));
      OK(ringo_exchange(named, 1, y + 1050, 300));
      CHECK(memcmp(x, y, sizeof x) == 0, "step %d differs", step);
    }
    for (size_t p = 0; p < 3; p++) {
      OK(ringo_residual(tuned, p, kept, lengths[p]));
      if (step == 4) OK(ringo_set_residual(named, p, kept, lengths[p]));
      OK(ringo_residual(named, p, theirs, lengths[p]));
      if (step >= 4) CHECK(memcmp(kept, theirs, lengths[p] * sizeof *kept) == 0, "what is kept of %s differs in step %d", names[p], step);
    }
    WANT(step == 4 ? 1 : 0, ringo_strategy_step(tuned));
  }
  int length = ringo_strategy_report(tuned, report, sizeof report);
  CHECK(length > 0 && length < (int)sizeof report && (int)strlen(report) == length, "a report of %d bytes", length);
  CHECK(strstr(report, "\"strategy\":\"dlgs\"") && strstr(report, "\"steps\":11"), "%s", report);
  char little[8];
  WANT(length, ringo_strategy_report(tuned, little, sizeof little));
  CHECK(strlen(little) == 7, "%zu bytes of 8", strlen(little));
  OK(ringo_strategy_arrange(tuned, order, 3, layers, 3));
  WANT(RINGO_ERROR_INVALID, ringo_strategy_ready(tuned, 0));
  OK(ringo_strategy_close(tuned));
  OK(ringo_strategy_close(named));
}

/* Groups of two neighbours, of the even ranks, of all ranks backwards: this rank is in some. */
static void groups(ringo_job *job, size_t n) {
  int ranks[16], count = 0, me = ringo_rank(job), all = ringo_size(job);
  ringo_group *sub;
  for (int r = 0; r + 1 < all; r++) {
    int two[2] = {r + 1, r};
    if (me != r && me != r + 1) continue;
    OK(ringo_subgroup(job, two, 2, &sub));
    CHECK(ringo_group_size(sub) == 2 && ringo_group_rank(sub) == (me == r), "rank %d of %d", ringo_group_rank(sub), ringo_group_size(sub));
    every(sub, n);
    OK(ringo_group_close(sub));
    WANT(RINGO_ERROR_INVALID, ringo_barrier(sub));
    WANT(RINGO_ERROR_INVALID, ringo_group_close(sub));
  }
  for (int r = 0; r < all; r += 2) ranks[count++] = r;
  if (me % 2 == 0) {
    OK(ringo_subgroup(job, ranks, count, &sub));
    every(sub, n);
  }
  for (int r = 0; r < all; r++) ranks[r] = all - 1 - r;
  OK(ringo_subgroup(job, ranks, all, &sub));
  every(sub, n);
  many(sub);
}

int main(int argc, char **argv) {
  CHECK(ringo_abi() == RINGO_ABI && strcmp(ringo_version(), RINGO_VERSION) == 0, "%d %s", ringo_abi(), ringo_version());
  CHECK(strcmp(ringo_last_error(), "") == 0 && ringo_last_error_rank() == -1, "there is a fault already");
  ringo_options o = RINGO_OPTIONS_INIT;
  o.transport = argc > 1 ? argv[1] : NULL;
  const char *algorithm = argc > 2 ? argv[2] : "auto";
  if (argc > 3) o.algorithm = argv[3]; /* not the launcher's */
  ringo_job *job = join(&o);
  CHECK(strcmp(ringo_group_algorithm(ringo_world(job)), algorithm) == 0, "the algorithm is %s", ringo_group_algorithm(ringo_world(job)));
  if (argc > 1) CHECK(strcmp(ringo_transport(job), argv[1]) == 0, "the transport is %s", ringo_transport(job));
  CHECK(ringo_local_rank(job) == check_rank, "local rank %d", ringo_local_rank(job));

  const size_t sizes[] = {0, 1, 37, 1500}, most = 1500 * 8;
  ringo_group *all = ringo_world(job);
  size_t room = 8 * (most * ringo_size(job) + 64);
  OK(ringo_alloc(job, room, (void **)&a));
  OK(ringo_alloc(job, room, (void **)&b));
  CHECK((uintptr_t)a % 64 == 0 && a[0] == 0 && a[room - 1] == 0, "memory of ringo_alloc is not aligned or not zero");
  for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) every(all, sizes[k]);
  many(all);
  OK(ringo_free(job, b));
  WANT(RINGO_ERROR_INVALID, ringo_free(job, b));
  OK(ringo_free(job, a));

  a = malloc(room), b = malloc(room);
  every(all, 37);
  every(all, 1500);
  strategies(all);
  groups(job, 37);
  halves();
  misuse(job);
  refused_parts();
  OK(ringo_barrier(all));
  OK(ringo_leave(job));
  WANT(RINGO_ERROR_INVALID, ringo_rank(job));
  CHECK(ringo_group_algorithm(all) == NULL, "a closed group has an algorithm");
  o.algorithm = "rng";
  WANT(RINGO_ERROR_INVALID, ringo_join(&o, &job));
  CHECK(strstr(ringo_last_error(), "want one of auto, ring, doubling") != NULL, "%s", ringo_last_error());
  WANT(RINGO_ERROR_INVALID, ringo_barrier(all));
  WANT(RINGO_ERROR_INVALID, ringo_leave(job));
  free(a);
  free(b);
  return 0;
}
