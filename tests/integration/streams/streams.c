/* Calls the functions of streams.mlir; argv[1] chooses the part, argv[2] the kind of device. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mlir_offload.h"

typedef struct memref {
  float *allocated, *aligned;
  int64_t offset, size, stride;
} memref;

void _mlir_ciface_overlap(memref *, memref *, memref *, memref *);
void _mlir_ciface_on_token(void *stream, memref *);
void _mlir_ciface_join(void *one, void *other, memref *);
void _mlir_ciface_plain(memref *);
void _mlir_ciface_explicit(void *stream, memref *);

static const char *kind;
static void *const callers[] = {(void *)0xa000, (void *)0xb000, (void *)0xc000};

static memref numbers(void) {
  float *memory = malloc(64 * sizeof *memory);
  for (int i = 0; i < 64; ++i)
    memory[i] = (float)i;
  return (memref){memory, memory, 0, 64, 1};
}

static void overlap(void) {
  memref x = numbers(), y = numbers(), z = numbers(), w = numbers();
  double sum = 0;
  _mlir_ciface_overlap(&x, &y, &z, &w);
  for (int i = 0; i < 64; ++i)
    sum += x.aligned[i];
  printf("sum %g\n", sum);
}

/* Each thread has a stream and a device of its own. */
static void *work(void *stream) {
  memref x = numbers();
  char name[32];
  int is_second = stream == callers[1] && strcmp(kind, "host");
  snprintf(name, sizeof name, is_second ? "%s:1" : "%s", kind);
  mlir_offload_set_device(name);
  mlir_offload_set_stream(stream);
  for (int i = 0; i < 20; ++i)
    _mlir_ciface_plain(&x);
  return NULL;
}

static void run_threads(void) {
  pthread_t threads[3];
  for (int i = 0; i < 3; ++i)
    pthread_create(&threads[i], NULL, work, callers[i]);
  for (int i = 0; i < 3; ++i)
    pthread_join(threads[i], NULL);
  if (mlir_offload_get_stream())
    puts("a thread's stream was seen by another one");
}

static void use_callers_streams(void) {
  memref x = numbers();
  _mlir_ciface_on_token(callers[0], &x);
  puts("--");
  _mlir_ciface_join(callers[0], callers[1], &x);
  puts("--");
  _mlir_ciface_explicit(callers[2], &x);
  puts("--");
}

int main(int count, char **arguments) {
  const char *part = count > 1 ? arguments[1] : "overlap";
  kind = count > 2 ? arguments[2] : "host";
  if (count > 2)
    mlir_offload_set_device(kind);
  if (!strcmp(part, "overlap"))
    overlap();
  if (!strcmp(part, "threads"))
    run_threads();
  if (!strcmp(part, "callers"))
    use_callers_streams();
  return 0;
}
