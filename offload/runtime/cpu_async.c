/* mbarriers, copies by tensor maps and wgmma, for kernels on the CPU. Included by cpu_device.c. PTX ISA,
 * "mbarrier", "Tensors" and "Asynchronous warpgroup level matrix instructions". A copy or product is complete when
 * its instruction returns, as PTX permits.
 */
#include "mo_tensor_map.h"

/* mbarrier ---------------------------------------------------------------------------------- */

typedef struct mo_mbarrier {
  uint64_t expected : 20, pending : 20, bytes : 23, phase : 1; /* bytes: the outstanding bytes plus a bias */
} mo_mbarrier;

static const uint64_t no_bytes = 1u << 22;

static mo_mbarrier read_mbarrier(const uint64_t *at) {
  mo_mbarrier found;
  memcpy(&found, at, sizeof found);
  return found;
}

static void write_mbarrier(uint64_t *at, mo_mbarrier barrier) {
  if (barrier.pending == 0 && barrier.bytes == no_bytes) {
    barrier.phase = !barrier.phase;
    barrier.pending = barrier.expected;
  }
  memcpy(at, &barrier, sizeof barrier);
}

uint32_t mo_cpu_mbarrier_pending(uint64_t state) { return (uint32_t)read_mbarrier(&state).pending; }

static int has_completed(const mo_fiber *fiber) {
  return fiber->value == 0 || read_mbarrier((const uint64_t *)(uintptr_t)fiber->value).phase != fiber->first;
}

/* Resumes threads at mbarriers: those whose phase is complete or, if the result is 0, those that only test. */
static uint32_t resume_with(mo_fibers *fibers, uint32_t thread_count, uint32_t result) {
  uint32_t resumed = 0;
  for (uint32_t i = 0; i < thread_count; ++i) {
    mo_fiber *fiber = &fibers->fibers[i];
    if (fiber->status != AT_MBARRIER || (result ? !has_completed(fiber) : fiber->second)) continue;
    fiber->result = result;
    fiber->status = READY;
    ++resumed;
  }
  return resumed;
}

/* Called if no other thread can run. */
static uint32_t resume_at_mbarriers(mo_fibers *fibers, uint32_t thread_count) {
  uint32_t resumed = resume_with(fibers, thread_count, 1);
  if (resumed == 0) resumed = resume_with(fibers, thread_count, 0);
  for (uint32_t i = 0; resumed == 0 && i < thread_count; ++i)
    if (fibers->fibers[i].status == AT_MBARRIER)
      fail(fibers->fibers[i].context.block->launched,
           "threads wait at an mbarrier for a phase that no thread can complete");
  return resumed;
}

static void leave_until_resumed(mo_fibers *fibers, mo_fiber *fiber) {
  fiber->status = AT_MBARRIER;
  fibers->resume = resume_at_mbarriers;
  leave_in_order(fibers, fiber);
}

void mo_cpu_let_others_run(mo_thread_context *context) {
  mo_fibers *fibers = context->block->fibers;
  mo_fiber *fiber = &fibers->fibers[context->linear];
  fiber->value = 0;
  leave_until_resumed(fibers, fiber);
}

uint64_t mo_cpu_mbarrier(mo_thread_context *context, uint32_t operation, uint64_t *at, uint32_t number) {
  mo_mbarrier barrier = read_mbarrier(at);
  uint64_t before = *at;
  uint32_t arrivals = operation & MO_MBARRIER_ARRIVE ? operation & MO_MBARRIER_EXPECT ? 1 : number : 0;
#ifdef MO_TSAN
  __tsan_release(context->block->order);
#endif
  if (operation == MO_MBARRIER_INIT) {
    mo_mbarrier made = {number, number, no_bytes, 0};
    memcpy(at, &made, sizeof made);
    /* In upstream's programs all threads initialize an mbarrier and use it without a barrier in between. */
    mo_cpu_let_others_run(context);
    return 0;
  }
  if (arrivals > barrier.pending)
    fail(context->block->launched, "more threads arrive at an mbarrier than it was initialized with");
  if (operation & MO_MBARRIER_EXPECT) barrier.bytes += number;
  if (operation & MO_MBARRIER_COMPLETE) barrier.bytes -= number;
  if (operation & MO_MBARRIER_DROP) barrier.expected -= arrivals;
  barrier.pending -= arrivals;
  write_mbarrier(at, barrier);
  return before;
}

uint32_t mo_cpu_mbarrier_wait(mo_thread_context *context, uint64_t *at, uint32_t phase, uint32_t until_complete) {
  mo_fibers *fibers = context->block->fibers;
  mo_fiber *fiber = &fibers->fibers[context->linear];
  fiber->value = (uint64_t)(uintptr_t)at;
  fiber->first = phase & 1;
  fiber->second = until_complete;
  if (has_completed(fiber)) {
#ifdef MO_TSAN
    __tsan_acquire(context->block->order);
#endif
    return 1;
  }
  leave_until_resumed(fibers, fiber);
  return (uint32_t)fiber->result;
}

/* Tensor maps ------------------------------------------------------------------------------- */

/* The swizzle pattern depends on the address; workgroup memory is aligned to 1024 bytes. */
static char *swizzled(const mo_thread_context *context, const char *address, uint32_t swizzle) {
  uint64_t offset = (uint64_t)(address - context->static_shared);
  if (swizzle != 0) offset ^= (offset >> 7 & ((1u << swizzle) - 1)) << 4;
  return context->static_shared + offset;
}

/* Copies a box. Elements outside of the tensor are read as zero and are not written. */
void mo_cpu_tensor_copy(mo_thread_context *context, uint32_t is_store, char *shared, const mo_tensor_map *map,
                        const int32_t *first, uint32_t rank, uint64_t *mbarrier) {
  uint64_t count = 1, size;
  if (map->magic != MO_TENSOR_MAP_MAGIC || map->rank != rank)
    fail(context->block->launched, "a copy by a tensor map of another rank, or that the program did not encode");
  size = map->element_bytes;
  for (uint32_t axis = 0; axis < rank; ++axis) count *= map->box[axis];
  for (uint64_t number = 0; number < count; ++number) {
    uint64_t rest = number;
    char *place = map->address;
    int is_inside = 1;
    for (uint32_t axis = 0; axis < rank; ++axis) {
      int64_t at = first[axis] + (int64_t)(rest % map->box[axis]);
      rest /= map->box[axis];
      is_inside &= at >= 0 && (uint64_t)at < map->sizes[axis];
      place += at * (int64_t)(axis != 0 ? map->strides[axis - 1] : size);
    }
    char *own = swizzled(context, shared + number * size, map->swizzle);
    if (is_store && is_inside) memcpy(place, own, size);
    if (!is_store && is_inside) memcpy(own, place, size);
    if (!is_store && !is_inside) memset(own, 0, size);
  }
  if (mbarrier != NULL) mo_cpu_mbarrier(context, MO_MBARRIER_COMPLETE, mbarrier, (uint32_t)(count * size));
}

void mo_cpu_copy_part(char *to, const char *from, uint32_t size, uint32_t read) {
  for (uint32_t i = 0; i < size; ++i) to[i] = i < read ? from[i] : 0;
}

/* wgmma ------------------------------------------------------------------------------------- */

/* PTX ISA, "Matrix descriptor format": addresses and strides in units of 16 bytes. */
typedef struct descriptor {
  uint64_t address, leading, stride;
} descriptor;

enum { SWIZZLED_128 = 1 };

static descriptor parse_descriptor(const mo_thread_context *context, uint64_t bits) {
  uint64_t base = (uint64_t)(uintptr_t)context->static_shared;
  if (bits >> 62 != SWIZZLED_128)
    fail(context->block->launched, "wgmma of a matrix that is not swizzled by 128 bytes");
  return (descriptor){(((bits & 0x3fff) << 4) - base) & 0x3ffff, (bits >> 16 & 0x3fff) << 4, (bits >> 32 & 0x3fff) << 4};
}

static double element_at(const mo_thread_context *context, const descriptor *from, uint32_t major, uint32_t k,
                         uint32_t is_transposed, uint32_t element) {
  uint64_t at = is_transposed ? major / 64 * from->leading + k / 8 * from->stride + k % 8 * 128 + major % 64 * 2
                              : major / 8 * from->stride + major % 8 * 128 + k * 2;
  uint16_t bits;
  memcpy(&bits, swizzled(context, context->static_shared + from->address + at, 3), sizeof bits);
  return value_of(bits, element);
}

/* Each of the four warps holds 16 rows of d. */
void mo_cpu_wgmma(const mo_thread_context *context, float *d, uint64_t a, uint64_t b, uint32_t n, uint32_t element,
                  uint32_t adds, int32_t sign_a, int32_t sign_b, uint32_t transposes_a,
                  uint32_t transposes_b) {
  descriptor from_a = parse_descriptor(context, a), from_b = parse_descriptor(context, b);
  uint32_t lane = context->linear % MO_WARP, first = context->linear / MO_WARP % 4 * 16 + lane / 4;
  uint32_t of = element != 0 ? MO_BF16 : MO_F16;
  double rows[2][16], sign = sign_a * sign_b;
  for (uint32_t k = 0; k < 32; ++k)
    rows[k / 16][k % 16] = sign * element_at(context, &from_a, first + k / 16 * 8, k % 16, transposes_a & 1, of);
  for (uint32_t pair = 0; pair < n / 4; ++pair) {
    uint32_t column = pair / 2 * 8 + lane % 4 * 2 + pair % 2;
    double sums[2] = {0, 0};
    float *to = d + pair / 2 * 4 + pair % 2;
    for (uint32_t k = 0; k < 16; ++k) {
      double other = element_at(context, &from_b, column, k, transposes_b & 1, of);
      sums[0] += rows[0][k] * other;
      sums[1] += rows[1][k] * other;
    }
    to[0] = (float)(sums[0] + (adds ? to[0] : 0));
    to[2] = (float)(sums[1] + (adds ? to[2] : 0));
  }
}
