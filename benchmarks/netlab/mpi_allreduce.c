/* MPI's all-reduce: mpi_allreduce BYTES TIMES. Rank 0 prints one JSON line with the seconds of
   each. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int count = argc > 2 ? atoi(argv[1]) / 4 : 0;
  const int times = argc > 2 ? atoi(argv[2]) : 0;
  float* values = malloc((size_t)count * sizeof(float));
  float* sums = malloc((size_t)count * sizeof(float));
  if (count < 1 || times < 1 || values == NULL || sums == NULL) {
    fprintf(stderr, "usage: mpi_allreduce BYTES TIMES\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  for (int i = 0; i < count; ++i) values[i] = 1;
  MPI_Allreduce(values, sums, count < 65536 ? count : 65536, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf("{\"seconds\": [");
  for (int turn = 0; turn < times; ++turn) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double before = MPI_Wtime();
    MPI_Allreduce(values, sums, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    const double seconds = MPI_Wtime() - before;
    if (sums[0] != ranks || sums[count - 1] != ranks) {
      fprintf(stderr, "mpi_allreduce: expected a sum of %d, found %f\n", ranks, sums[count - 1]);
      MPI_Abort(MPI_COMM_WORLD, 3);
    }
    if (rank == 0) printf("%s%.6f", turn > 0 ? ", " : "", seconds);
  }
  if (rank == 0) printf("]}\n");
  free(values);
  free(sums);
  MPI_Finalize();
  return 0;
}
