/* border.h - what border.c, in C, and the Go of this folder tell each other. Programs see ringo.h alone. */
#ifndef RINGO_BORDER_H
#define RINGO_BORDER_H

#include "ringo.h"

/* A fault as Go writes it: text ends with a zero byte. */
typedef struct border_fault {
  int rank;
  char text[2048];
} border_fault;

/* An operation: see package internal/bindings, whose numbers kind, type and op are. Values in place are in dst. */
typedef struct border_request {
  int kind, type, op, peer;
  void *dst;
  const void *src;
  size_t n;
  const size_t *dst_counts, *src_counts;
  void *const *parts;
} border_request;

enum { /* the numbers of internal/bindings.Kind */
  BORDER_ALLREDUCE,
  BORDER_BROADCAST,
  BORDER_REDUCE,
  BORDER_SEND,
  BORDER_RECEIVE,
  BORDER_REDUCE_SCATTER,
  BORDER_ALLGATHER,
  BORDER_GATHER,
  BORDER_SCATTER,
  BORDER_ALLTOALL,
  BORDER_ALLGATHERV,
  BORDER_ALLTOALLV,
  BORDER_BARRIER,
  BORDER_LISTEN,
  BORDER_ALLGATHER_TO
};

enum { BORDER_RANK, BORDER_SIZE, BORDER_LOCAL_RANK, BORDER_TRANSPORT, BORDER_SERVERS, BORDER_ALGORITHM }; /* what can be asked of a job */

/* The functions of a ringo_part, which Go cannot call itself. */
int border_part_open(const ringo_part *p, const char *about, ringo_part_memory *memory, char *error, size_t room);
int border_part_run(const ringo_part *p, ringo_micro_batch *m, char *error, size_t room);
int border_part_update(const ringo_part *p, double rate, float scale, char *error, size_t room);
int border_part_sync(const ringo_part *p, int action, char *error, size_t room);
void border_part_close(const ringo_part *p);
void border_part_report(const ringo_part *p, const char *line);

#endif
