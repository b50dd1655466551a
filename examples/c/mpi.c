/* mpi.c - an MPI program whose allreduce of gradients is libringo's; MPI has started it and does everything else.
 *
 *     mpicc mpi.c -o mpi $(pkg-config --cflags --libs ringo)
 *     mpirun -np 2 ./mpi
 */
#include <mpi.h>
#include <ringo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(int code) {
  if (code < 0) {
    fprintf(stderr, "mpi: %s\n", ringo_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
}

/* join makes the processes of MPI the ranks of a job: MPI tells them its secret and where they meet. host is an address by which the others
 * reach rank 0. */
static ringo_job *join(const char *host) {
  ringo_options o = RINGO_OPTIONS_INIT;
  struct { char ticket[65], rendezvous[256]; } meet;
  ringo_job *job;
  MPI_Comm_rank(MPI_COMM_WORLD, &o.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &o.size);
  memset(&meet, 0, sizeof meet);
  if (o.rank == 0) {
    must(ringo_ticket(meet.ticket));
    must(ringo_address(host, meet.rendezvous, sizeof meet.rendezvous));
  }
  MPI_Bcast(&meet, sizeof meet, MPI_BYTE, 0, MPI_COMM_WORLD);
  o.ticket = meet.ticket;
  o.rendezvous = meet.rendezvous;
  must(ringo_join(&o, &job));
  return job;
}

int main(int argc, char **argv) {
  enum { N = 1 << 20, STEPS = 10 };
  float *gradients, *check;
  int rank, size, wrong = 0, faults;

  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  ringo_job *job = join(argc > 1 ? argv[1] : "127.0.0.1");
  must(ringo_alloc(job, N * sizeof *gradients, (void **)&gradients));
  check = malloc(N * sizeof *check);

  for (int step = 0; step < STEPS; step++) {
    for (int i = 0; i < N; i++) check[i] = gradients[i] = (float)((rank + 1) * (i % 7 + step));
    must(ringo_allreduce(ringo_world(job), gradients, N, RINGO_FLOAT32, RINGO_SUM)); /* was MPI_Allreduce(MPI_IN_PLACE, ...) */
    MPI_Allreduce(MPI_IN_PLACE, check, N, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < N; i++) wrong += gradients[i] != check[i];
  }
  MPI_Reduce(&wrong, &faults, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("%d ranks over %s: %d of %d sums differ from those of MPI\n", size, ringo_transport(job), faults, STEPS * N);
  free(check);
  must(ringo_leave(job));
  MPI_Finalize();
  return wrong != 0;
}
