// The messages of benchmarks/mesh_bench.cpp, by MPI: mpi_messages BYTES..., two ranks.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW 8
#define BYTES_PER_MEASUREMENT (256l << 20)

static int compare(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static double median(double* values, int count) {
  qsort(values, (size_t)count, sizeof *values, compare);
  return values[count / 2];
}

static void measure(int rank, int bytes) {
  static double times[2000];
  char* out = malloc((size_t)bytes);
  char* in[WINDOW];
  MPI_Request requests[WINDOW];
  long rounds = BYTES_PER_MEASUREMENT / (bytes + 1);
  rounds = rounds < 10 ? 10 : rounds > 2000 ? 2000 : rounds;
  memset(out, 1, (size_t)bytes);
  for (int i = 0; i < WINDOW; ++i) {
    in[i] = malloc((size_t)bytes);
    memset(in[i], 0, (size_t)bytes);
  }
  int count = 0;
  for (long i = 0; i < rounds; ++i) {
    const double start = MPI_Wtime();
    if (rank == 0) {
      MPI_Send(out, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
      MPI_Recv(in[0], bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
      MPI_Recv(in[0], bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      MPI_Send(out, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
    }
    if (i >= rounds / 10) times[count++] = (MPI_Wtime() - start) * 1e6 / 2;
  }
  const double ping_pong = median(times, count);
  const long streams = rounds / WINDOW < 5 ? 5 : rounds / WINDOW;
  count = 0;
  for (long i = 0; i < streams; ++i) {
    const double start = MPI_Wtime();
    for (int w = 0; w < WINDOW; ++w) {
      if (rank == 0)
        MPI_Isend(out, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD, &requests[w]);
      else
        MPI_Irecv(in[w], bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, &requests[w]);
    }
    MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
    if (i > 0) times[count++] = (MPI_Wtime() - start) * 1e6 / WINDOW;
  }
  if (rank == 0) printf("%d %.2f %.2f\n", bytes, ping_pong, median(times, count));
  free(out);
  for (int i = 0; i < WINDOW; ++i) free(in[i]);
}

int main(int argc, char** argv) {
  int rank = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int i = 1; i < argc; ++i) measure(rank, atoi(argv[i]));
  MPI_Finalize();
  return 0;
}
