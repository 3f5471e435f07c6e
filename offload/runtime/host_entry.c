/* Entry into libomptarget, or the fallback for it, synchronized with fork, program exit and the unloading of
 * libraries.
 */
#define _GNU_SOURCE 1
#include "host_entry.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "mgpu.h"

/* Readers are the threads inside libomptarget, which hold locks there. Writers are fork and program exit, which
 * wait for them. Kernels run outside. */
static pthread_rwlock_t mo_entry = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
static _Thread_local bool mo_is_entered, mo_is_launching, mo_is_ender;

static atomic_uint mo_launches; /* number of threads that launch or run a kernel */
static bool mo_is_ending;       /* guarded by the lock */

/* Functions of the images: those that run kernels, at most two per image, and one per image that is called at
 * the end. */
enum { MOST_FUNCTIONS = 64 };
static _Atomic(mo_range) mo_bodies[MOST_FUNCTIONS], mo_last_calls[MOST_FUNCTIONS];

static void enter(void) {
  pthread_rwlock_rdlock(&mo_entry);
  if (mo_is_ending && !mo_is_ender) {
    pthread_rwlock_unlock(&mo_entry);
    for (;;)
      pause(); /* the program exits, and the code for the launch is gone */
  }
  mo_is_entered = true;
}

static void leave(void) {
  mo_is_entered = false;
  pthread_rwlock_unlock(&mo_entry);
}

void mo_begin_launch(void) {
  enter();
  mo_is_launching = true;
  atomic_fetch_add(&mo_launches, 1);
}

void mo_end_launch(void) {
  leave();
  mo_is_launching = false;
  atomic_fetch_sub(&mo_launches, 1);
}

static void note(_Atomic(mo_range) *functions, mo_range function) {
  for (int i = 0; i < MOST_FUNCTIONS; ++i) {
    mo_range known = atomic_load_explicit(&functions[i], memory_order_relaxed);
    if (!known && atomic_compare_exchange_strong(&functions[i], &known, function))
      return;
    if (known == function)
      return;
  }
}

static _Thread_local bool mo_is_in_blocks;

bool mo_runs_blocks(void) { return mo_is_in_blocks; }

void mo_run_kernel(uint64_t count, mo_range body, void *argument) {
  bool is_outermost = mo_is_entered;
  if (!count)
    note(mo_last_calls, body);
  if (is_outermost) {
    note(mo_bodies, body);
    leave();
  }
  mo_is_in_blocks = true;
  mo_parallel_for(count, body, argument);
  mo_is_in_blocks = !is_outermost;
  if (is_outermost)
    enter();
}

static void each_image(void (*visit)(const char *file)) {
  for (int i = 0; i < MOST_FUNCTIONS && mo_bodies[i]; ++i) {
    Dl_info image;
    void *body;
    memcpy(&body, &mo_bodies[i], sizeof body); /* ISO C has no cast for this */
    if (dladdr(body, &image) && image.dli_fname)
      visit(image.dli_fname);
  }
}

/* libomptarget unloads images at program exit, even without an unregistration call. */
static void keep_image(const char *file) { dlopen(file, RTLD_LAZY | RTLD_NOLOAD); }

/* libomptarget does not remove the file of an image, which debuggers read while the program runs. */
static void remove_image(const char *file) {
  static const char start[] = "/tmp/tmpfile_";
  if (!strncmp(file, start, sizeof start - 1))
    unlink(file);
}

static void release_images(void) {
  for (int i = 0; i < MOST_FUNCTIONS && mo_last_calls[i]; ++i)
    mo_last_calls[i](NULL, 0, 0);
}

static void begin_end(void) {
  if (!mo_is_entered)
    pthread_rwlock_wrlock(&mo_entry);
  mo_is_ender = true;
  mo_is_ending = true;
  if (!mo_is_entered)
    pthread_rwlock_unlock(&mo_entry);
}

bool mo_end_launches(void) {
  if (!mo_is_ender) {
    begin_end();
    each_image(remove_image);
    if (mo_launches)
      each_image(keep_image);
    else
      release_images();
  }
  return !mo_launches;
}

static void before_fork(void) {
  if (!mo_is_entered)
    pthread_rwlock_wrlock(&mo_entry);
}

static void after_fork(void) {
  if (!mo_is_entered)
    pthread_rwlock_unlock(&mo_entry);
}

/* A child process has only the thread that called fork. */
static void begin_child(void) {
  mo_entry = (pthread_rwlock_t)PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
  if (mo_is_entered)
    pthread_rwlock_rdlock(&mo_entry);
  mo_launches = mo_is_launching;
  mo_forget_workers();
}

__attribute__((constructor)) static void watch_forks(void) {
  pthread_atfork(before_fork, after_fork, begin_child);
}
