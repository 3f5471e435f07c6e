/* The interface between the generated code of a CPU kernel image and cpu_device.c.
 * translate/cpu/intrinsics.py defines mo_thread_context in LLVM IR, translate/cpu/launch.py mo_kernel.
 */
#ifndef MO_CPU_DEVICE_H
#define MO_CPU_DEVICE_H

#include "mo_launch.h"

#define MO_MAX_BLOCK 1024u
#define MO_WARP 32u

struct mo_block;

/* The context of one thread, the first argument of every device function. */
typedef struct mo_thread_context {
  uint32_t thread[3];
  uint32_t linear; /* index in the block, x innermost */
  uint32_t block_dim[3];
  uint32_t block_id[3];
  uint32_t grid_dim[3];
  char *static_shared;
  char *dynamic_shared;
  struct mo_block *block;
} mo_thread_context;

typedef struct mo_kernel {
  const char *name;
  void (*run)(mo_thread_context *context, void **params); /* runs a block; with fibers, one thread */
  mo_range range;         /* mo_cpu_run_blocks or mo_cpu_run_fibers */
  uint64_t static_shared; /* bytes, a multiple of 64 */
} mo_kernel;

/* Operations of all lanes of a warp. */
enum {
  MO_SHFL_IDX,
  MO_SHFL_UP,
  MO_SHFL_DOWN,
  MO_SHFL_BFLY,
  MO_VOTE_ALL,
  MO_VOTE_ANY,
  MO_VOTE_UNI,
  MO_VOTE_BALLOT,
  MO_MATCH_ANY,
  MO_MATCH_ALL,
  MO_REDUX_ADD,
  MO_REDUX_UMAX,
  MO_REDUX_UMIN,
  MO_REDUX_MAX,
  MO_REDUX_MIN,
  MO_REDUX_AND,
  MO_REDUX_OR,
  MO_REDUX_XOR,
  MO_REDUX_FMAX,
  MO_REDUX_FMIN,
  MO_WARP_BARRIER,
  MO_FRAGMENTS
};

/* The reduction of the votes at a barrier. */
enum { MO_BARRIER_PLAIN, MO_BARRIER_POPC, MO_BARRIER_AND, MO_BARRIER_OR };

/* The values that mo_cpu_cluster returns. The axis is ignored for the last two. */
enum {
  MO_CLUSTER_ID,
  MO_CLUSTERS,
  MO_BLOCK_IN_CLUSTER,
  MO_BLOCKS_OF_CLUSTER,
  MO_RANK_IN_CLUSTER,
  MO_CLUSTER_SIZE
};

/* Operations on an mbarrier. All but the first are flags. */
enum {
  MO_MBARRIER_INIT,
  MO_MBARRIER_ARRIVE = 1,
  MO_MBARRIER_DROP = 2,
  MO_MBARRIER_EXPECT = 4,
  MO_MBARRIER_COMPLETE = 8
};

/* An image contains only the functions of this file that it refers to: fibers only if a kernel needs them. */
void mo_cpu_run_blocks(void *launched, uint64_t begin, uint64_t end);
void mo_cpu_run_fibers(void *launched, uint64_t begin, uint64_t end);
void mo_cpu_launch(const mo_launch *launch, void **params, const mo_kernel *kernel);
/* `at` is a string that is unique to this barrier: file:line:column in the source, or empty. */
uint32_t mo_cpu_barrier(mo_thread_context *context, uint32_t kind, uint32_t vote, const char *at);
/* Returns the lane's 32-bit result, with a predicate, if any, in bit 32. */
uint64_t mo_cpu_warp(mo_thread_context *context, uint32_t site, uint32_t operation, uint32_t mask,
                     uint64_t value, uint32_t first, uint32_t second);
/* The lanes of a warp execute a matrix operation: mo_fragments of cpu_tensor.c. */
void mo_cpu_fragments(mo_thread_context *context, uint32_t site, char *fragments);
/* Returns the previous state. `number` is a number of arrivals or bytes. */
uint64_t mo_cpu_mbarrier(mo_thread_context *context, uint32_t operation, uint64_t *at, uint32_t number);
uint32_t mo_cpu_mbarrier_pending(uint64_t state);
/* Returns whether the phase after one with this parity has begun. Waits for that if `until_complete`. */
uint32_t mo_cpu_mbarrier_wait(mo_thread_context *context, uint64_t *at, uint32_t phase, uint32_t until_complete);
/* Returns when no other thread of the block can run. */
void mo_cpu_let_others_run(mo_thread_context *context);
struct mo_tensor_map;
void mo_cpu_tensor_copy(mo_thread_context *context, uint32_t is_store, char *shared, const struct mo_tensor_map *map,
                        const int32_t *first, uint32_t rank, uint64_t *mbarrier);
/* wgmma.mma_async of m64nNk16: computes the lane's part of d. `element` is 0 for f16, 1 for bf16. */
void mo_cpu_wgmma(const mo_thread_context *context, float *d, uint64_t a, uint64_t b, uint32_t n, uint32_t element,
                  uint32_t adds, int32_t sign_a, int32_t sign_b, uint32_t transposes_a,
                  uint32_t transposes_b);
/* Copies `read` of `size` bytes, and clears the others. */
void mo_cpu_copy_part(char *to, const char *from, uint32_t size, uint32_t read);
/* mo_cpu_warp for the lanes in `active`, without fibers, with the same results. */
void mo_cpu_collective(uint32_t operation, uint32_t active, const uint32_t *mask,
                       const uint64_t *value, const uint32_t *first, const uint32_t *second,
                       uint64_t *result);
/* Fails, because some threads of the block wait at barrier `at`, which others do not reach: they wait at
 * barrier `others`. NULL: the location is unknown, or they have left the kernel. */
_Noreturn void mo_cpu_disagree(const mo_thread_context *context, const char *at, const char *others);
uint32_t mo_cpu_cluster(const mo_thread_context *context, uint32_t what, uint32_t axis);
uint64_t mo_cpu_nanoseconds(void);
int32_t mo_cpu_vprintf(const char *format, const char *arguments);
/* A failed assertion with the arguments of CUDA's __assertfail: it is printed, and the launch fails at its end.
 * The first function returns, and the thread then leaves the kernel. The second one ends the fiber or, without
 * fibers, the program. */
void mo_cpu_note_failure(mo_thread_context *context, const char *message, const char *file, uint32_t line,
                         const char *function, uint64_t size);
void mo_cpu_assertfail(mo_thread_context *context, const char *message, const char *file, uint32_t line,
                       const char *function, uint64_t size);
/* Returns whether a thread of the block has failed. The code after the next barrier then cannot run. */
uint32_t mo_cpu_has_failed(const mo_thread_context *context);

#endif
