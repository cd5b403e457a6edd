// How long ggml's own quantization takes, by the function that llama-quantize
// calls for each tensor, with an importance of each column.
//
//   cc -O2 -I$LLAMA/ggml/include quantize.c $BUILD/ggml/src/libggml-base.a -lstdc++ -lm -lpthread -fopenmp -o quantize
//   ./quantize q4_K ROWS COLUMNS THREADS
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ggml.h"

static float *weights, *importance;
static char *packed;
static long rows, columns, threads;
static enum ggml_type type;

static void *part(void *number) {
  long i = (long)number, from = rows * i / threads, to = rows * (i + 1) / threads;
  ggml_quantize_chunk(type, weights, packed, from * columns, to - from, columns, importance);
  return NULL;
}

int main(int argc, char **argv) {
  if (argc != 5) return 2;
  rows = atol(argv[2]), columns = atol(argv[3]), threads = atol(argv[4]);
  for (int i = 0; i < GGML_TYPE_COUNT; i++)
    if (ggml_type_name(i) && !strcmp(ggml_type_name(i), argv[1])) type = i;
  weights = malloc(4 * rows * columns), importance = malloc(4 * columns), packed = malloc(ggml_row_size(type, columns) * rows);
  for (long i = 0; i < rows * columns; i++) {
    double sum = 0;
    for (int j = 0; j < 4; j++) sum += rand() / (double)RAND_MAX - 0.5;
    weights[i] = sum * 0.035;
  }
  for (long i = 0; i < columns; i++) importance[i] = 0.5 + rand() / (double)RAND_MAX;
  ggml_quantize_init(type);
  struct timespec begin, end;
  pthread_t thread[64];
  clock_gettime(CLOCK_MONOTONIC, &begin);
  for (long i = 0; i < threads; i++) pthread_create(&thread[i], NULL, part, (void *)i);
  for (long i = 0; i < threads; i++) pthread_join(thread[i], NULL);
  clock_gettime(CLOCK_MONOTONIC, &end);
  double s = end.tv_sec - begin.tv_sec + (end.tv_nsec - begin.tv_nsec) * 1e-9;
  printf("%s, %ld rows of %ld, %ld threads: %.2f s per 100 million weights\n", argv[1], rows, columns, threads, s * 1e8 / (rows * columns));
}
