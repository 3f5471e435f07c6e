/* The worker threads that run the blocks of a kernel on the CPU.
 *
 * The launching thread works too, and can complete a job alone, so that a job never waits for a worker to
 * start. It begins alone, because most launches complete before another core would wake up.
 */
#define _GNU_SOURCE 1
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "host_entry.h"
#include "mgpu.h"

enum {
  MOST_THREADS = 1024,
  ALONE_NS = 20000, /* about the time to wake a thread and to wait for it */
};

typedef struct job {
  mo_range body;
  void *argument;
  uint64_t count;
  _Atomic uint64_t next; /* the first item that no thread has taken */
  unsigned helpers;      /* workers inside; guarded by the lock */
  struct job *following; /* in the list of jobs for workers; guarded by the lock */
} job;

static struct {
  pthread_mutex_t lock;
  pthread_cond_t work, idle;
  job *jobs;
  pthread_t *threads;
  unsigned thread_count; /* including the launching thread; 0: not known yet */
  unsigned started;
  bool stops;
} mo_pool = {.lock = PTHREAD_MUTEX_INITIALIZER,
             .work = PTHREAD_COND_INITIALIZER,
             .idle = PTHREAD_COND_INITIALIZER};

static _Thread_local bool mo_is_inside; /* in a body: a nested call runs alone */

static unsigned usable_cores(void) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    return (unsigned)CPU_COUNT(&set);
  return 1;
}

static void read_thread_count(void) {
  const char *text = getenv("MLIR_OFFLOAD_NUM_THREADS");
  mo_pool.thread_count = usable_cores();
  if (!text || !*text)
    return;
  char *end;
  long wanted = strtol(text, &end, 10);
  if (*end || wanted < 1 || wanted > MOST_THREADS) {
    mo_error("MLIR_OFFLOAD_NUM_THREADS is '%s'", text);
    mo_hint("set it to a number from 1 to %d, or unset it to use every core", MOST_THREADS);
  }
  mo_pool.thread_count = (unsigned)wanted;
}

static unsigned thread_count(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, read_thread_count);
  return mo_pool.thread_count;
}

/* Takes pieces until none is left: large ones first, single items at the end, so that all
 * threads finish at about the same time. */
static void work_on(job *work) {
  uint64_t share = 2 * (uint64_t)thread_count();
  uint64_t begin = atomic_load_explicit(&work->next, memory_order_relaxed);
  mo_is_inside = true;
  while (begin < work->count) {
    uint64_t size = (work->count - begin) / share;
    uint64_t end = begin + (size ? size : 1);
    if (atomic_compare_exchange_weak(&work->next, &begin, end)) {
      work->body(work->argument, begin, end);
      begin = atomic_load_explicit(&work->next, memory_order_relaxed);
    }
  }
  mo_is_inside = false;
}

/* Removes the job from the list, if it is still there. The caller must hold the lock. */
static void withdraw(job *work) {
  job **link = &mo_pool.jobs;
  while (*link && *link != work)
    link = &(*link)->following;
  if (*link)
    *link = work->following;
}

static void *run_worker(void *unused) {
  (void)unused;
  pthread_mutex_lock(&mo_pool.lock);
  for (;;) {
    while (!mo_pool.jobs && !mo_pool.stops)
      pthread_cond_wait(&mo_pool.work, &mo_pool.lock);
    job *work = mo_pool.jobs;
    if (!work)
      break;
    ++work->helpers;
    pthread_mutex_unlock(&mo_pool.lock);
    work_on(work);
    pthread_mutex_lock(&mo_pool.lock);
    withdraw(work); /* all its items are taken */
    if (!--work->helpers)
      pthread_cond_broadcast(&mo_pool.idle);
  }
  pthread_mutex_unlock(&mo_pool.lock);
  return NULL;
}

void mo_forget_workers(void) {
  pthread_mutex_init(&mo_pool.lock, NULL);
  pthread_cond_init(&mo_pool.work, NULL);
  pthread_cond_init(&mo_pool.idle, NULL);
  mo_pool.jobs = NULL;
  mo_pool.started = 0;
}

/* Starts the missing workers. If that fails, fewer workers are sufficient. The caller must hold the lock. */
static void start_workers(void) {
  if (mo_pool.started + 1 >= mo_pool.thread_count || mo_pool.stops)
    return;
  if (!mo_pool.threads)
    mo_pool.threads = calloc(mo_pool.thread_count, sizeof *mo_pool.threads);
  if (!mo_pool.threads)
    return;
  sigset_t all, before;
  sigfillset(&all); /* signals are for the program's own threads */
  pthread_sigmask(SIG_SETMASK, &all, &before);
  while (mo_pool.started + 1 < mo_pool.thread_count &&
         !pthread_create(&mo_pool.threads[mo_pool.started], NULL, run_worker, NULL))
    ++mo_pool.started;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Called at exit, and before dlclose unmaps the code of the workers. At exit they may be in kernels that do not
 * terminate. */
__attribute__((destructor)) static void stop_workers(void) {
  if (!mo_end_launches())
    return;
  pthread_mutex_lock(&mo_pool.lock);
  mo_pool.stops = true;
  pthread_cond_broadcast(&mo_pool.work);
  unsigned started = mo_pool.started;
  pthread_mutex_unlock(&mo_pool.lock);
  for (unsigned i = 0; i < started; ++i)
    pthread_join(mo_pool.threads[i], NULL);
  free(mo_pool.threads);
}

static void run_together(job *work) {
  pthread_mutex_lock(&mo_pool.lock);
  start_workers();
  work->following = mo_pool.jobs;
  mo_pool.jobs = work;
  pthread_cond_broadcast(&mo_pool.work);
  pthread_mutex_unlock(&mo_pool.lock);
  work_on(work);
  pthread_mutex_lock(&mo_pool.lock);
  withdraw(work);
  while (work->helpers)
    pthread_cond_wait(&mo_pool.idle, &mo_pool.lock);
  pthread_mutex_unlock(&mo_pool.lock);
}

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* Runs pieces of growing size until ALONE_NS have passed; returns the number of completed items. */
static uint64_t run_alone(uint64_t count, mo_range body, void *argument) {
  int64_t started = now_ns();
  uint64_t done = 0, size = 1;
  mo_is_inside = true;
  while (done < count) {
    uint64_t end = count - done < size ? count : done + size;
    body(argument, done, end);
    done = end;
    int64_t elapsed = now_ns() - started;
    if (elapsed >= ALONE_NS)
      break;
    if (elapsed < ALONE_NS / 8)
      size *= 2;
  }
  mo_is_inside = false;
  return done;
}

void mo_parallel_for(uint64_t count, mo_range body, void *argument) {
  if (count <= 1 || mo_is_inside || thread_count() == 1) {
    if (count)
      body(argument, 0, count);
    return;
  }
  job work = {.body = body, .argument = argument, .count = count};
  work.next = run_alone(count, body, argument);
  if (work.next < count)
    run_together(&work);
}
