/* Failed assertions: kernels set a flag in memory, which the host reads after it has waited for them. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "sycl.h"

typedef struct failure_flag {
  cl_context context;
  volatile unsigned *flag;
  struct failure_flag *next;
} failure_flag;

static pthread_mutex_t mo_failures_lock = PTHREAD_MUTEX_INITIALIZER;
static failure_flag *mo_failures;

/* The caller must hold the lock. */
static failure_flag *make_flag(const mo_sycl_place *place) {
  failure_flag *made = malloc(sizeof *made);
  int status;
  if (!made) {
    mo_error("out of host memory for the flag of failed assertions");
    mo_hint("free host memory");
  }
  void *memory = place->platform->usm.clSharedMemAllocINTEL(
      place->context, place->device, NULL, sizeof(unsigned), 0, &status);
  SYCL_CHECK(status, "clSharedMemAllocINTEL", "allocating the flag of failed assertions");
  *made = (failure_flag){place->context, memory, mo_failures};
  *made->flag = 0;
  mo_failures = made;
  return made;
}

unsigned *mo_sycl_failures(const mo_sycl_place *place) {
  pthread_mutex_lock(&mo_failures_lock);
  failure_flag *found = mo_failures;
  while (found && found->context != place->context)
    found = found->next;
  if (!found)
    found = make_flag(place);
  pthread_mutex_unlock(&mo_failures_lock);
  return (unsigned *)found->flag;
}

void mo_sycl_check_assertions(void) {
  unsigned failures = 0;
  pthread_mutex_lock(&mo_failures_lock);
  for (failure_flag *at = mo_failures; at; at = at->next)
    failures |= *at->flag;
  pthread_mutex_unlock(&mo_failures_lock);
  if (!failures)
    return;
  fflush(stdout);
  mo_error("a kernel failed an assertion");
  mo_hint("its message is in the output of the program, above");
}
