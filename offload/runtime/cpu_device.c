/* The device runtime of CPU kernel images: distributes blocks over host threads, runs the threads of a block as
 * fibers, and implements printf and assertions. Linked as bitcode into every image and made internal there.
 */
#include "cpu_device.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#if !defined(__x86_64__)
#error "kernel images for the CPU are made for x86-64 only"
#endif

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MO_ASAN 1
void __sanitizer_start_switch_fiber(void **fake_stack, const void *bottom, size_t size);
void __sanitizer_finish_switch_fiber(void *fake_stack, const void **bottom, size_t *size);
void __asan_unpoison_memory_region(const volatile void *begin, size_t size);
#endif
#endif

#ifdef MO_TSAN
/* For ThreadSanitizer each fiber is a separate thread, although one host thread runs them in turn
 * (sanitizer/tsan_interface.h). This file itself is not instrumented. */
#ifndef MO_NO_SYNC
#define MO_NO_SYNC 1u
#endif
void *__tsan_get_current_fiber(void);
void *__tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void *fiber);
void __tsan_set_fiber_name(void *fiber, const char *name);
void __tsan_switch_to_fiber(void *fiber, unsigned flags);
void __tsan_ignore_thread_begin(void);
void __tsan_ignore_thread_end(void);
void __tsan_acquire(void *address);
void __tsan_release(void *address);
#endif

/* Launch ------------------------------------------------------------------------------------ */

typedef struct mo_launched {
  const mo_launch *launch;
  void **params;
  const mo_kernel *kernel;
  _Atomic uint64_t failures; /* threads that failed an assertion */
} mo_launched;

struct mo_fibers;

typedef struct mo_block {
  mo_launched *launched;
  struct mo_fibers *fibers;
  uint32_t thread_count, failures;
#ifdef MO_TSAN
  void *order; /* the address that the threads release and acquire */
#endif
} mo_block;

/* Reports an error of the launch as a whole. The caller then returns from the launch. */
static void refuse(const mo_launched *launched, const char *message) {
  launched->launch->fail(launched->kernel->name, message);
}

static void fail(const mo_launched *launched, const char *message) {
  refuse(launched, message);
  abort();
}

enum { MOST_FAILURES_SHOWN = 1024 };

static void fail_for_assertions(const mo_launched *launched, uint64_t failures) {
  char text[128];
  if (failures == 0) return;
  const char *more = failures > MOST_FAILURES_SHOWN ? ", of which the first 1024 are shown" : "";
  snprintf(text, sizeof text, "%llu thread%s failed an assertion%s", (unsigned long long)failures,
           failures == 1 ? "" : "s", more);
  fflush(stdout);
  refuse(launched, text);
}

/* The swizzle patterns of tensor maps and wgmma repeat after this number of bytes. */
#define SHARED_ALIGNMENT ((uint64_t)1024)

static uint64_t round_up(uint64_t bytes) { return (bytes + 63) & ~(uint64_t)63; }

typedef void (*mo_run_block)(mo_thread_context *context);

static void run_in_memory(mo_launched *launched, uint64_t begin, uint64_t end,
                          struct mo_fibers *fibers, mo_run_block run) {
  const mo_launch *launch = launched->launch;
  const mo_kernel *kernel = launched->kernel;
  uint64_t shared = kernel->static_shared + round_up(launch->dynamic_shared);
  char *memory = NULL;
  if (shared > 0) {
    memory = aligned_alloc(SHARED_ALIGNMENT, (shared + SHARED_ALIGNMENT - 1) & ~(SHARED_ALIGNMENT - 1));
    if (memory == NULL) fail(launched, "out of memory for the shared memory of a block");
  }
  mo_block block = {launched, fibers, launch->block[0] * launch->block[1] * launch->block[2], 0};
  mo_thread_context context = {.static_shared = memory,
                  .dynamic_shared = memory == NULL ? NULL : memory + kernel->static_shared,
                  .block = &block};
#ifdef MO_TSAN
  block.order = malloc(1);
  if (block.order == NULL) fail(launched, "out of memory for a block");
#endif
  memcpy(context.block_dim, launch->block, sizeof context.block_dim);
  memcpy(context.grid_dim, launch->grid, sizeof context.grid_dim);
  for (uint64_t number = begin; number < end; ++number) {
    uint64_t row = number / launch->grid[0];
    context.block_id[0] = (uint32_t)(number % launch->grid[0]);
    context.block_id[1] = (uint32_t)(row % launch->grid[1]);
    context.block_id[2] = (uint32_t)(row / launch->grid[1]);
    block.failures = 0;
    run(&context);
  }
#ifdef MO_TSAN
  free(block.order);
#endif
  free(memory);
}

#ifdef MO_TSAN
/* Blocks are not ordered against each other. Therefore each one has its own memory and its own thread for
 * ThreadSanitizer; otherwise the work of one block would appear to happen before that of the next one. */
static void run_each(mo_launched *launched, uint64_t begin, uint64_t end,
                     struct mo_fibers *fibers, mo_run_block run) {
  void *thread = __tsan_get_current_fiber();
  for (uint64_t number = begin; number < end; ++number) {
    void *block = __tsan_create_fiber(0);
    __tsan_switch_to_fiber(block, MO_NO_SYNC);
    /* Functions that the runtime calls, such as snprintf, write to the stack that all blocks share. */
    __tsan_ignore_thread_begin();
    run_in_memory(launched, number, number + 1, fibers, run);
    __tsan_ignore_thread_end();
    __tsan_release(launched);
    __tsan_switch_to_fiber(thread, MO_NO_SYNC);
    __tsan_destroy_fiber(block);
  }
}
#else
static void run_each(mo_launched *launched, uint64_t begin, uint64_t end,
                     struct mo_fibers *fibers, mo_run_block run) {
  run_in_memory(launched, begin, end, fibers, run);
}
#endif

static void run_block(mo_thread_context *context) {
  const mo_launched *launched = context->block->launched;
  launched->kernel->run(context, launched->params);
}

void mo_cpu_run_blocks(void *launched, uint64_t begin, uint64_t end) {
  run_each(launched, begin, end, NULL, run_block);
}

static __attribute__((noinline)) void launch_checked(const mo_launch *launch, void **params, const mo_kernel *kernel) {
  mo_launched launched = {launch, params, kernel, 0};
  char message[160];
  uint64_t thread_count = (uint64_t)launch->block[0] * launch->block[1] * launch->block[2];
  uint64_t blocks = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
  if (launch->version < 1 || launch->version > MO_LAUNCH_VERSION) {
    snprintf(message, sizeof message, "the image speaks launch version %d, the runtime %u",
             MO_LAUNCH_VERSION, launch->version);
    refuse(&launched, message);
    return;
  }
  if (thread_count == 0 || thread_count > MO_MAX_BLOCK || launch->block[0] > MO_MAX_BLOCK ||
      launch->block[1] > MO_MAX_BLOCK || launch->block[2] > MO_MAX_BLOCK) {
    snprintf(message, sizeof message,
             "block size %u x %u x %u: a block has 1 to %u threads", launch->block[0],
             launch->block[1], launch->block[2], MO_MAX_BLOCK);
    refuse(&launched, message);
    return;
  }
  if (blocks == 0) {
    snprintf(message, sizeof message, "grid size %u x %u x %u: a grid has at least one block",
             launch->grid[0], launch->grid[1], launch->grid[2]);
    refuse(&launched, message);
    return;
  }
  launch->parallel_for(blocks, kernel->range, &launched);
#ifdef MO_TSAN
  __tsan_acquire(&launched);
#endif
  fail_for_assertions(&launched, launched.failures);
}

#include "cpu_features.c"

MO_ANY_PROCESSOR void mo_cpu_launch(const mo_launch *launch, void **params, const mo_kernel *kernel) {
  const char *missing = missing_feature();
  char message[224];
  if (missing == NULL) {
    launch_checked(launch, params, kernel);
    return;
  }
  snprintf(message, sizeof message,
           "this processor lacks %s, which the kernels for the CPU are compiled for\n"
           "compile them with -march=, for example -march=x86-64; the default is the processor that compiles",
           missing);
  launch->fail(kernel->name, message);
}

static int is_known(const char *place) { return place != NULL && *place != '\0'; }

_Noreturn void mo_cpu_disagree(const mo_thread_context *context, const char *at, const char *others) {
  char message[1024];
  const char *first = is_known(at) ? at : others, *second = first == at ? others : NULL;
  int shows_first = is_known(first), shows_second = is_known(second) && strcmp(first, second) != 0;
  snprintf(message, sizeof message,
           "block: [%u,%u,%u] some threads wait at %s gpu.barrier%s%s that others do not reach%s%s",
           context->block_id[0], context->block_id[1], context->block_id[2], shows_first ? "the" : "a",
           shows_first ? " of " : "", shows_first ? first : "",
           shows_second ? ": they wait at that of " : "", shows_second ? second : "");
  fail(context->block->launched, message);
  abort();
}

/* Fibers ------------------------------------------------------------------------------------ */

#define STACK_BYTES ((size_t)256 << 10)
#define GUARD_BYTES ((size_t)4096)
#define CANARY UINT64_C(0x9e3779b97f4a7c15)
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102 /* Linux 6.13 */
#endif

typedef struct mo_stack {
  void *rsp;
  void *rip;
  void *rbp;
} mo_stack;

enum { READY, IN_WARP, AT_BARRIER, AT_MBARRIER, DONE };

typedef struct mo_fiber {
  mo_stack stack;
  mo_thread_context context;
  uint32_t status;
  uint32_t site, operation, mask, first, second, vote;
  const char *at; /* the barrier */
  uint64_t value, result;
  void (*meet)(char *const *lanes); /* executes MO_FRAGMENTS */
  const uint64_t *canary; /* at the bottom of the stack, if that has no guard page */
#ifdef MO_ASAN
  void *fake_stack;
#endif
#ifdef MO_TSAN
  void *thread;
#endif
} mo_fiber;

typedef struct mo_fibers {
  mo_stack scheduler;
  char *stacks;
  uint32_t room, guarded; /* number of stacks: mapped, and with a guard */
  mo_fiber *current;
  uint32_t barrier_kind;
  uint32_t (*resume)(struct mo_fibers *fibers, uint32_t thread_count); /* resumes fibers with status AT_MBARRIER */
#ifdef MO_ASAN
  void *fake_stack;
  const void *bottom;
  size_t size;
#endif
#ifdef MO_TSAN
  void *thread;
#endif
  mo_fiber fibers[MO_MAX_BLOCK];
} mo_fibers;

/* Each thread that runs kernels with fibers caches one mapping for its next launch, until the thread ends
 * or the image is unloaded. If the table is full, a thread caches none. */
enum { MOST_THREADS = 64 };
static struct {
  _Atomic uint32_t is_taken;
  mo_fibers *_Atomic idle;
} kept[MOST_THREADS];
static pthread_key_t place_of_thread; /* 1 + the index in `kept` */
static _Atomic uint32_t keeps;

static size_t mapped_size(uint32_t room) {
  return ((sizeof(mo_fibers) + 4095) & ~(size_t)4095) + room * STACK_BYTES;
}

static mo_fibers *map_fibers(uint32_t room) {
  size_t size = mapped_size(room);
  mo_fibers *made = mmap(NULL, size, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED) return NULL;
  made->stacks = (char *)made + size - room * STACK_BYTES;
  made->room = room;
  return made;
}

static void unmap_fibers(mo_fibers *fibers) {
  if (fibers == NULL) return;
#ifdef MO_ASAN
  __asan_unpoison_memory_region(fibers, mapped_size(fibers->room));
#endif
  munmap(fibers, mapped_size(fibers->room));
}

static mo_fibers *take_idle(uint32_t place) {
  return __c11_atomic_exchange(&kept[place].idle, NULL, __ATOMIC_ACQ_REL);
}

static void end_thread(void *number) {
  uint32_t place = (uint32_t)(uintptr_t)number - 1;
  unmap_fibers(take_idle(place));
  kept[place].is_taken = 0;
}

/* Called when the image is unloaded, and at program exit, when threads may still run kernels. */
static void end_image(void) {
  if (!__c11_atomic_exchange(&keeps, 0, __ATOMIC_ACQ_REL)) return;
  pthread_key_delete(place_of_thread);
  for (uint32_t place = 0; place < MOST_THREADS; ++place) unmap_fibers(take_idle(place));
}

static void watch_threads(void) {
  if (pthread_key_create(&place_of_thread, end_thread)) return;
  if (atexit(end_image))
    pthread_key_delete(place_of_thread);
  else
    keeps = 1;
}

/* Called by the host runtime, because libomptarget keeps an image loaded while other libraries have images. */
static void end_library(void *unused, uint64_t begin, uint64_t end) {
  (void)unused, (void)begin, (void)end;
  end_image();
}

static uint32_t take_place(const mo_launch *launch) {
  launch->parallel_for(0, end_library, NULL);
  for (uint32_t place = 0; place < MOST_THREADS; ++place) {
    uint32_t none = 0;
    if (!__c11_atomic_compare_exchange_strong(&kept[place].is_taken, &none, 1, __ATOMIC_ACQ_REL,
                                              __ATOMIC_RELAXED))
      continue;
    if (pthread_setspecific(place_of_thread, (void *)(uintptr_t)(place + 1)) == 0) return place;
    kept[place].is_taken = 0;
    break;
  }
  return MOST_THREADS;
}

/* Returns the index in `kept` of the calling thread, or MOST_THREADS. */
static uint32_t find_place(const mo_launch *launch) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, watch_threads);
  if (!keeps) return MOST_THREADS;
  uintptr_t number = (uintptr_t)pthread_getspecific(place_of_thread);
  return number != 0 ? (uint32_t)number - 1 : take_place(launch);
}

static mo_fibers *acquire_fibers(uint32_t place, uint32_t thread_count) {
  mo_fibers *found = place < MOST_THREADS ? take_idle(place) : NULL;
  if (found != NULL && found->room >= thread_count) return found;
  unmap_fibers(found);
  return map_fibers(thread_count);
}

static void release_fibers(uint32_t place, mo_fibers *fibers) {
  if (place < MOST_THREADS && keeps)
    kept[place].idle = fibers;
  else
    unmap_fibers(fibers);
}

/* Jumps instead of returning, because every return would be mispredicted.
 * The caller-saved registers are dead around a call of this function. */
__attribute__((noinline)) static void switch_stack(mo_stack *from, const mo_stack *to) {
  __asm__ volatile(
      "leaq 1f(%%rip), %%rax\n\t"
      "movq %%rsp, 0(%0)\n\t"
      "movq %%rax, 8(%0)\n\t"
      "movq %%rbp, 16(%0)\n\t"
      "movq 0(%1), %%rsp\n\t"
      "movq 16(%1), %%rbp\n\t"
      "jmpq *8(%1)\n"
      "1:\n\t"
      : "+D"(from), "+S"(to)
      :
      : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "cc",
        "memory");
}

static uint32_t stack_index(const mo_fibers *fibers, const mo_fiber *fiber) {
  return (uint32_t)(fiber - fibers->fibers);
}

static char *stack_bottom(const mo_fibers *fibers, uint32_t index) {
  return fibers->stacks + index * STACK_BYTES;
}

static void enter_fiber(mo_fibers *fibers, mo_fiber *to) {
  fibers->current = to;
#ifdef MO_ASAN
  __sanitizer_start_switch_fiber(&fibers->fake_stack,
                                 stack_bottom(fibers, stack_index(fibers, to)), STACK_BYTES);
#endif
#ifdef MO_TSAN
  __tsan_switch_to_fiber(to->thread, MO_NO_SYNC);
#endif
  switch_stack(&fibers->scheduler, &to->stack);
#ifdef MO_ASAN
  __sanitizer_finish_switch_fiber(fibers->fake_stack, NULL, NULL);
#endif
}

static void check_stack(const mo_fiber *fiber) {
  if (fiber->canary != NULL && *fiber->canary != CANARY)
    fail(fiber->context.block->launched, "a thread used more than 256 KiB of stack");
}

#ifdef MO_ASAN
static void leave_fiber(mo_fibers *fibers, mo_fiber *fiber) {
  check_stack(fiber);
  __sanitizer_start_switch_fiber(fiber->status == DONE ? NULL : &fiber->fake_stack, fibers->bottom,
                                 fibers->size);
  switch_stack(&fiber->stack, &fibers->scheduler);
  __sanitizer_finish_switch_fiber(fiber->fake_stack, &fibers->bottom, &fibers->size);
}
#elif defined(MO_TSAN)
static void leave_fiber(mo_fibers *fibers, mo_fiber *fiber) {
  check_stack(fiber);
  __tsan_switch_to_fiber(fibers->thread, MO_NO_SYNC);
  switch_stack(&fiber->stack, &fibers->scheduler);
}
#else
/* Switches directly to the next ready lane of the warp, without the scheduler. */
static void leave_fiber(mo_fibers *fibers, mo_fiber *fiber) {
  check_stack(fiber);
  uint32_t index = stack_index(fibers, fiber) + 1;
  uint32_t thread_count = fiber->context.block->thread_count;
  if (index % MO_WARP != 0 && index < thread_count && fibers->fibers[index].status == READY) {
    fibers->current = &fibers->fibers[index];
    switch_stack(&fiber->stack, &fibers->current->stack);
  } else {
    switch_stack(&fiber->stack, &fibers->scheduler);
  }
}
#endif

/* The barrier orders all accesses of the arriving threads before all later ones. */
static void leave_in_order(mo_fibers *fibers, mo_fiber *fiber) {
#ifdef MO_TSAN
  __tsan_release(fiber->context.block->order);
#endif
  leave_fiber(fibers, fiber);
#ifdef MO_TSAN
  __tsan_acquire(fiber->context.block->order);
#endif
}

/* A new stack gets the fibers of the block in a register. */
static void fiber_main(mo_fibers *fibers) {
  mo_fiber *fiber = fibers->current;
#ifdef MO_ASAN
  __sanitizer_finish_switch_fiber(NULL, &fibers->bottom, &fibers->size);
#endif
  const mo_launched *launched = fiber->context.block->launched;
  launched->kernel->run(&fiber->context, launched->params);
  fiber->status = DONE;
#ifdef MO_TSAN
  __tsan_release(fiber->context.block->order);
#endif
  leave_fiber(fibers, fiber);
  __builtin_trap();
}

/* The entry point of a new stack, whose top word is the pointer to the fibers. */
__attribute__((naked, noinline)) static void fiber_start(void) {
  __asm__ volatile(
      "popq %%rdi\n\t"
      "callq *(%%rsp)\n\t"
      "ud2" ::: "memory");
}

/* Without mprotect, which would split the mapping twice per thread; a process has at most 65,530 mappings. */
static void guard_stack(mo_fibers *fibers, uint32_t index) {
  uint64_t *bottom = (uint64_t *)stack_bottom(fibers, index);
  const uint64_t **canary = &fibers->fibers[index].canary;
  *canary = NULL;
  if (madvise(bottom, GUARD_BYTES, MADV_GUARD_INSTALL) != 0) {
    *bottom = CANARY;
    *canary = bottom;
  }
  fibers->guarded = index + 1;
}

static void prepare_fiber(mo_fibers *fibers, const mo_thread_context *first, uint32_t index) {
  mo_fiber *fiber = &fibers->fibers[index];
  char *bottom = stack_bottom(fibers, index);
  if (index >= fibers->guarded) guard_stack(fibers, index);
  /* Different offsets in the stacks, because equal ones would map to the same cache sets. */
  char *top = bottom + STACK_BYTES - 64 - (index * 320) % 16384;
  void **words = (void **)((uintptr_t)top & ~(uintptr_t)63) - 3; /* aligned at the call below */
  words[0] = fibers;
  words[1] = (void *)fiber_main;
  fiber->stack = (mo_stack){words, (void *)fiber_start, NULL};
  fiber->context = *first;
  fiber->context.linear = index;
  fiber->context.thread[0] = index % first->block_dim[0];
  fiber->context.thread[1] = index / first->block_dim[0] % first->block_dim[1];
  fiber->context.thread[2] = index / (first->block_dim[0] * first->block_dim[1]);
  fiber->status = READY;
}

/* Warp operations --------------------------------------------------------------------------- */

static mo_fiber *warp_of(mo_fibers *fibers, uint32_t index) {
  return &fibers->fibers[index / MO_WARP * MO_WARP];
}

static uint32_t lanes_of(const mo_fiber *warp, const mo_fibers *fibers, uint32_t thread_count) {
  uint32_t left = thread_count - stack_index(fibers, warp);
  return left < MO_WARP ? left : MO_WARP;
}

/* The operands of the lanes of a warp. */
typedef struct mo_lanes {
  uint64_t value[MO_WARP];
  uint32_t first[MO_WARP], second[MO_WARP];
} mo_lanes;

/* PTX ISA, shfl.sync: `clamp` has the last lane in bits 0-4, the segment mask in bits 8-12. */
static uint64_t shuffled(const mo_lanes *warp, uint32_t operation, uint32_t lane,
                         uint32_t group) {
  uint32_t segment = warp->second[lane] >> 8 & 31, clamp = warp->second[lane] & 31;
  uint32_t last = (lane & segment) | (clamp & ~segment), from = lane;
  uint32_t distance = warp->first[lane] & 31;
  int valid = 0;
  switch (operation) {
  case MO_SHFL_UP:
    from = lane - distance;
    valid = (int32_t)from >= (int32_t)last;
    break;
  case MO_SHFL_DOWN:
    from = lane + distance;
    valid = from <= last;
    break;
  case MO_SHFL_BFLY:
    from = lane ^ distance;
    valid = from <= last;
    break;
  default:
    from = (lane & segment) | (distance & ~segment);
    valid = from <= last;
    break;
  }
  if (!valid || from >= MO_WARP || !(group >> from & 1)) from = lane;
  return (warp->value[from] & 0xffffffffu) | (uint64_t)valid << 32;
}

static float as_float(uint64_t bits) {
  uint32_t word = (uint32_t)bits;
  float value;
  memcpy(&value, &word, sizeof value);
  return value;
}

static uint32_t combined(uint32_t operation, uint32_t a, uint32_t b) {
  switch (operation) {
  case MO_REDUX_ADD: return a + b;
  case MO_REDUX_UMAX: return a > b ? a : b;
  case MO_REDUX_UMIN: return a < b ? a : b;
  case MO_REDUX_MAX: return (int32_t)a > (int32_t)b ? a : b;
  case MO_REDUX_MIN: return (int32_t)a < (int32_t)b ? a : b;
  case MO_REDUX_AND: return a & b;
  case MO_REDUX_OR: return a | b;
  case MO_REDUX_XOR: return a ^ b;
  case MO_REDUX_FMAX: return !(as_float(b) <= as_float(a)) && as_float(b) == as_float(b) ? b : a;
  default: return !(as_float(b) >= as_float(a)) && as_float(b) == as_float(b) ? b : a;
  }
}

static uint64_t reduced(const mo_lanes *warp, uint32_t operation, uint32_t group) {
  uint32_t result = 0;
  int is_first = 1;
  for (uint32_t lane = 0; lane < MO_WARP; ++lane) {
    if (!(group >> lane & 1)) continue;
    uint32_t value = (uint32_t)warp->value[lane];
    result = is_first ? value : combined(operation, result, value);
    is_first = 0;
  }
  return result;
}

static uint32_t lanes_with(const mo_lanes *warp, uint32_t group, uint64_t value) {
  uint32_t lanes = 0;
  for (uint32_t lane = 0; lane < MO_WARP; ++lane)
    if (group >> lane & 1 && warp->value[lane] == value) lanes |= 1u << lane;
  return lanes;
}

static uint64_t lane_result(const mo_lanes *warp, uint32_t operation, uint32_t lane,
                            uint32_t group) {
  uint32_t votes = group & ~lanes_with(warp, group, 0);
  uint32_t alike = lanes_with(warp, group, warp->value[lane]);
  switch (operation) {
  case MO_SHFL_IDX:
  case MO_SHFL_UP:
  case MO_SHFL_DOWN:
  case MO_SHFL_BFLY: return shuffled(warp, operation, lane, group);
  case MO_VOTE_ALL: return votes == group;
  case MO_VOTE_ANY: return votes != 0;
  case MO_VOTE_UNI: return votes == group || votes == 0;
  case MO_VOTE_BALLOT: return votes;
  case MO_MATCH_ANY: return alike;
  case MO_MATCH_ALL: return alike == group ? group | (uint64_t)1 << 32 : 0;
  case MO_WARP_BARRIER: return 0;
  default: return reduced(warp, operation, group);
  }
}

/* A lane at an mbarrier may still reach the call of the others. */
static int is_awaited(const mo_fiber *warp, uint32_t lanes) {
  for (uint32_t lane = 0; lane < lanes; ++lane)
    if (warp[lane].status == AT_MBARRIER) return 1;
  return 0;
}

/* Lanes that wait at the same call with the same mask form a group. A group is preferred if all lanes in its
 * mask have arrived. If lanes diverged and wait at different calls, the lowest call is chosen. */
static uint32_t choose_group(const mo_fiber *warp, uint32_t lanes) {
  uint32_t alive = 0, chosen = 0, chosen_site = UINT32_MAX;
  int chosen_complete = 0;
  for (uint32_t lane = 0; lane < lanes; ++lane)
    if (warp[lane].status != DONE) alive |= 1u << lane;
  for (uint32_t lane = 0; lane < lanes; ++lane) {
    const mo_fiber *fiber = &warp[lane];
    if (fiber->status != IN_WARP || chosen >> lane & 1) continue;
    uint32_t group = 0;
    for (uint32_t other = 0; other < lanes; ++other)
      if (warp[other].status == IN_WARP && warp[other].site == fiber->site &&
          warp[other].mask == fiber->mask)
        group |= 1u << other;
    int complete = (fiber->mask & alive & ~group) == 0;
    if (complete > chosen_complete ||
        (complete == chosen_complete && fiber->site < chosen_site)) {
      chosen = group;
      chosen_site = fiber->site;
      chosen_complete = complete;
    }
  }
  return chosen_complete || !is_awaited(warp, lanes) ? chosen : 0;
}

static void give_results(mo_fiber *warp, uint32_t lanes, uint32_t group) {
  mo_lanes brought;
  for (uint32_t lane = 0; lane < lanes; ++lane) {
    brought.value[lane] = warp[lane].value;
    brought.first[lane] = warp[lane].first;
    brought.second[lane] = warp[lane].second;
  }
  for (uint32_t lane = 0; lane < lanes; ++lane)
    if (group >> lane & 1)
      warp[lane].result = lane_result(&brought, warp[lane].operation, lane, group);
}

static void meet_at_fragments(mo_fiber *warp, uint32_t group) {
  char *lanes[MO_WARP];
  if (group != UINT32_MAX) {
    char message[160];
    uint32_t count = (uint32_t)__builtin_popcount(group);
    snprintf(message, sizeof message,
             "%u thread%s of a subgroup execute%s a matrix operation that needs all 32", count,
             count == 1 ? "" : "s", count == 1 ? "s" : "");
    fail(warp->context.block->launched, message);
  }
  for (uint32_t lane = 0; lane < MO_WARP; ++lane) lanes[lane] = (char *)(uintptr_t)warp[lane].value;
  warp->meet(lanes);
}

static void run_warp(mo_fibers *fibers, uint32_t start, uint32_t thread_count) {
  mo_fiber *warp = warp_of(fibers, start);
  uint32_t lanes = lanes_of(warp, fibers, thread_count);
  for (;;) {
    for (uint32_t lane = 0; lane < lanes; ++lane)
      if (warp[lane].status == READY) enter_fiber(fibers, &warp[lane]);
    uint32_t group = choose_group(warp, lanes);
    if (group == 0) return;
    if (warp[__builtin_ctz(group)].operation == MO_FRAGMENTS)
      meet_at_fragments(warp, group);
    else
      give_results(warp, lanes, group);
    for (uint32_t lane = 0; lane < lanes; ++lane)
      if (group >> lane & 1) warp[lane].status = READY;
  }
}

void mo_cpu_collective(uint32_t operation, uint32_t active, const uint32_t *mask,
                       const uint64_t *value, const uint32_t *first, const uint32_t *second,
                       uint64_t *result) {
  mo_lanes brought;
  memcpy(brought.value, value, sizeof brought.value);
  memcpy(brought.first, first, sizeof brought.first);
  memcpy(brought.second, second, sizeof brought.second);
  for (uint32_t lane = 0; lane < MO_WARP; ++lane) {
    if (!(active >> lane & 1)) continue;
    uint32_t group = 0;
    for (uint32_t other = 0; other < MO_WARP; ++other)
      if (active >> other & 1 && mask[other] == mask[lane]) group |= 1u << other;
    result[lane] = lane_result(&brought, operation, lane, group);
  }
}

/* All threads that have not exited wait at the barrier: count the votes and resume them. */
static uint32_t release_barrier(mo_fibers *fibers, uint32_t thread_count) {
  uint32_t waiting = 0, votes = 0, result = 0;
  const mo_fiber *first = NULL;
  for (uint32_t i = 0; i < thread_count; ++i) {
    if (fibers->fibers[i].status != AT_BARRIER) continue;
    if (first == NULL) first = &fibers->fibers[i];
    if (fibers->fibers[i].at != first->at) mo_cpu_disagree(&first->context, first->at, fibers->fibers[i].at);
    ++waiting;
    votes += fibers->fibers[i].vote != 0;
  }
  if (fibers->barrier_kind == MO_BARRIER_POPC) result = votes;
  if (fibers->barrier_kind == MO_BARRIER_AND) result = votes == waiting;
  if (fibers->barrier_kind == MO_BARRIER_OR) result = votes != 0;
  for (uint32_t i = 0; i < thread_count; ++i) {
    if (fibers->fibers[i].status != AT_BARRIER) continue;
    fibers->fibers[i].result = result;
    /* Behind a failed assertion no thread comes further than to the next barrier. */
    fibers->fibers[i].status = mo_cpu_has_failed(&first->context) ? DONE : READY;
  }
  return waiting;
}

#ifdef MO_TSAN
/* Stacks are mapped anew for each block, so that data of the previous block is not shared memory. */
static void start_threads(mo_fibers *fibers, const mo_thread_context *first, uint32_t thread_count) {
  const uint32_t *dim = first->block_dim, *id = first->block_id;
  fibers->thread = __tsan_get_current_fiber();
  fibers->guarded = 0;
  if (mmap(fibers->stacks, STACK_BYTES * thread_count, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
    fail(first->block->launched, "out of memory for the stacks of threads");
  for (uint32_t i = 0; i < thread_count; ++i) {
    char name[96];
    snprintf(name, sizeof name, "block: [%u,%u,%u], thread: [%u,%u,%u]", id[0], id[1], id[2],
             i % dim[0], i / dim[0] % dim[1], i / (dim[0] * dim[1]));
    fibers->fibers[i].thread = __tsan_create_fiber(0);
    __tsan_set_fiber_name(fibers->fibers[i].thread, name);
  }
}
#endif

static void run_with_fibers(mo_thread_context *first) {
  mo_fibers *fibers = first->block->fibers;
  uint32_t thread_count = first->block->thread_count;
#ifdef MO_TSAN
  start_threads(fibers, first, thread_count);
#endif
  for (uint32_t i = 0; i < thread_count; ++i) prepare_fiber(fibers, first, i);
  do {
    for (uint32_t start = 0; start < thread_count; start += MO_WARP) run_warp(fibers, start, thread_count);
  } while ((fibers->resume != NULL && fibers->resume(fibers, thread_count) != 0) ||
           release_barrier(fibers, thread_count) != 0);
#ifdef MO_TSAN
  __tsan_acquire(first->block->order);
  for (uint32_t i = 0; i < thread_count; ++i) __tsan_destroy_fiber(fibers->fibers[i].thread);
#endif
}

void mo_cpu_run_fibers(void *launched, uint64_t begin, uint64_t end) {
  const mo_launch *launch = ((const mo_launched *)launched)->launch;
  const uint32_t *block = launch->block;
  uint32_t place = find_place(launch);
  mo_fibers *fibers = acquire_fibers(place, block[0] * block[1] * block[2]);
  if (fibers == NULL) fail(launched, "out of memory for the stacks of threads");
  run_each(launched, begin, end, fibers, run_with_fibers);
  release_fibers(place, fibers);
}

uint32_t mo_cpu_barrier(mo_thread_context *context, uint32_t kind, uint32_t vote, const char *at) {
  mo_fibers *fibers = context->block->fibers;
  mo_fiber *fiber = &fibers->fibers[context->linear];
  fibers->barrier_kind = kind;
  fiber->vote = vote;
  fiber->at = at;
  fiber->status = AT_BARRIER;
  leave_in_order(fibers, fiber);
  return (uint32_t)fiber->result;
}

uint64_t mo_cpu_warp(mo_thread_context *context, uint32_t site, uint32_t operation, uint32_t mask,
                     uint64_t value, uint32_t first, uint32_t second) {
  mo_fibers *fibers = context->block->fibers;
  mo_fiber *fiber = &fibers->fibers[context->linear];
  fiber->site = site;
  fiber->operation = operation;
  fiber->mask = mask;
  fiber->value = value;
  fiber->first = first;
  fiber->second = second;
  fiber->status = IN_WARP;
  if (operation == MO_WARP_BARRIER)
    leave_in_order(fibers, fiber);
  else
    leave_fiber(fibers, fiber);
  return fiber->result;
}

/* The blocks of a cluster need not run concurrently, because kernels with cluster barriers are rejected. */
uint32_t mo_cpu_cluster(const mo_thread_context *context, uint32_t what, uint32_t axis) {
  static const uint32_t one[3] = {1, 1, 1};
  const mo_launch *launch = context->block->launched->launch;
  const uint32_t *size = launch->version > 1 && launch->cluster[0] ? launch->cluster : one, *id = context->block_id;
  switch (what) {
  case MO_CLUSTER_ID: return id[axis] / size[axis];
  case MO_CLUSTERS: return context->grid_dim[axis] / size[axis];
  case MO_BLOCK_IN_CLUSTER: return id[axis] % size[axis];
  case MO_BLOCKS_OF_CLUSTER: return size[axis];
  case MO_RANK_IN_CLUSTER:
    return (id[2] % size[2] * size[1] + id[1] % size[1]) * size[0] + id[0] % size[0];
  default: return size[0] * size[1] * size[2];
  }
}

uint64_t mo_cpu_nanoseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* printf and assertions --------------------------------------------------------------------- */

static const char *take(const char **arguments, size_t size) {
  uintptr_t address = ((uintptr_t)*arguments + size - 1) & ~(uintptr_t)(size - 1);
  *arguments = (const char *)(address + size);
  return (const char *)address;
}

/* Narrow integers are passed with 32 bits, as in C. Their upper bits are ignored. */
static int64_t take_integer(const char **arguments, size_t size, int is_signed) {
  const char *from = take(arguments, size < 4 ? 4 : size);
  uint64_t value = 0;
  memcpy(&value, from, size);
  unsigned unused = (unsigned)(64 - 8 * size);
  return is_signed ? (int64_t)(value << unused) >> unused : (int64_t)value;
}

static size_t integer_size(const char *length, const char *end) {
  if (end - length >= 2 && length[0] == 'h') return 1;
  if (end - length >= 1 && length[0] == 'h') return 2;
  return length != end ? 8 : 4;
}

/* Prints one conversion `%...c`. The arguments have the layout of vprintf on NVIDIA GPUs. */
static int print_one(FILE *out, const char *spec, const char *end, const char **arguments) {
  char format[40];
  const char *length = end - 1;
  while (length > spec && strchr("hlLjzt", length[-1]) != NULL) --length;
  int flags = (int)(length - spec);
  if (flags > 30) flags = 30;
  char conversion = end[-1];
  if (strchr("diuoxXc", conversion) != NULL) {
    size_t size = conversion == 'c' ? 4 : integer_size(length, end - 1);
    long long value = take_integer(arguments, size, conversion == 'd' || conversion == 'i');
    const char *width = conversion == 'c' ? "" : "ll";
    snprintf(format, sizeof format, "%.*s%s%c", flags, spec, width, conversion);
    return conversion == 'c' ? fprintf(out, format, (int)value) : fprintf(out, format, value);
  }
  snprintf(format, sizeof format, "%.*s%c", flags, spec, conversion);
  if (strchr("eEfFgGaA", conversion) != NULL) {
    double value;
    memcpy(&value, take(arguments, sizeof value), sizeof value);
    return fprintf(out, format, value);
  }
  if (conversion == 's' || conversion == 'p') {
    void *value;
    memcpy(&value, take(arguments, sizeof value), sizeof value);
    return fprintf(out, format, value);
  }
  return (int)fwrite(spec, 1, (size_t)(end - spec), out);
}

int32_t mo_cpu_vprintf(const char *format, const char *arguments) {
  int32_t converted = 0;
  flockfile(stdout);
  while (*format != '\0') {
    const char *percent = strchr(format, '%');
    size_t plain = percent == NULL ? strlen(format) : (size_t)(percent - format);
    fwrite(format, 1, plain, stdout);
    if (percent == NULL) break;
    if (percent[1] == '%') {
      fputc('%', stdout);
      format = percent + 2;
      continue;
    }
    size_t span = 1 + strspn(percent + 1, "-+ #0123456789.hlLjzt");
    if (percent[span] == '\0') {
      fputs(percent, stdout);
      break;
    }
    print_one(stdout, percent, percent + span + 1, &arguments);
    ++converted;
    format = percent + span + 1;
  }
  funlockfile(stdout);
  return converted;
}

void mo_cpu_note_failure(mo_thread_context *context, const char *message, const char *file, uint32_t line,
                         const char *function, uint64_t size) {
  (void)size;
  ++context->block->failures;
  if (context->block->launched->failures++ >= MOST_FAILURES_SHOWN) return;
  fprintf(stderr, "%s:%u: %s: block: [%u,%u,%u], thread: [%u,%u,%u] Assertion `%s` failed.\n", file,
          line, function, context->block_id[0], context->block_id[1], context->block_id[2], context->thread[0],
          context->thread[1], context->thread[2], message);
}

uint32_t mo_cpu_has_failed(const mo_thread_context *context) { return context->block->failures != 0; }

void mo_cpu_assertfail(mo_thread_context *context, const char *message, const char *file, uint32_t line,
                       const char *function, uint64_t size) {
  mo_fibers *fibers = context->block->fibers;
  mo_cpu_note_failure(context, message, file, line, function, size);
  if (fibers == NULL) {
    fail_for_assertions(context->block->launched, context->block->launched->failures);
    abort();
  }
  mo_fiber *fiber = &fibers->fibers[context->linear];
  fiber->status = DONE;
  leave_fiber(fibers, fiber);
  __builtin_trap();
}

#include "cpu_tensor.c"

#include "cpu_async.c"

#include "cpu_math.c"
