/* 2:4 sparse matrices of MLIR's gpu dialect, implemented with cuSPARSELt. Compiled and linked only if the program
 * calls them. The part of cuSPARSELt (0.6 to 0.10) that is used is declared here, so that no headers are
 * required. Its ABI is plain C.
 *
 * gpu-to-llvm allocates each matrix on the stack, with the size of cuSPARSELt 0.5. Only a pointer is stored there,
 * because the size depends on the release.
 */
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>

#include "catch.h"
#include "mgpu.h"

enum { ROW_MAJOR = 2, SPARSITY_50_PERCENT = 0, DEFAULT_ALGORITHM = 0, PRUNE_STRIP = 1 };
enum { ALIGNMENT_BYTES = 16, OLDEST_VERSION = 600, MAX_DEVICES = 64 };
/* Values from gpu-to-llvm: cusparseComputeType of cuSPARSELt 0.5, and the pruning of gpu.create_2to4_spmat. */
enum { LOWERED_16F = 0, LOWERED_32I = 1, PRUNE_NOTHING = 0, PRUNE_AND_CHECK = 2 };
/* cusparseComputeType of cuSPARSELt 0.6 and newer. */
enum { COMPUTE_32I = 0, COMPUTE_16F = 1 };

/* Handles and descriptors: 13,072 bytes up to cuSPARSELt 0.6, 1,024 in 0.7, 512 from 0.8 on. */
typedef struct opaque {
  _Alignas(16) char bytes[13312];
} opaque;

int cusparseLtInit(opaque *);
int cusparseLtGetVersion(const opaque *, int *);
int cusparseLtDenseDescriptorInit(const opaque *, opaque *, int64_t rows, int64_t columns,
                                  int64_t leading, uint32_t alignment, int type, int order);
int cusparseLtStructuredDescriptorInit(const opaque *, opaque *, int64_t rows, int64_t columns,
                                       int64_t leading, uint32_t alignment, int type, int order,
                                       int sparsity);
int cusparseLtMatDescriptorDestroy(const opaque *);
int cusparseLtMatmulDescriptorInit(const opaque *, opaque *, int op_a, int op_b, const opaque *a,
                                   const opaque *b, const opaque *c, const opaque *d, int compute);
int cusparseLtMatmulAlgSelectionInit(const opaque *, opaque *, const opaque *matmul, int algorithm);
/* 0.8 or newer. */
__attribute__((weak)) int cusparseLtMatmulAlgSelectionDestroy(const opaque *);
int cusparseLtMatmulPlanInit(const opaque *, opaque *, const opaque *matmul,
                             const opaque *selection);
int cusparseLtMatmulPlanDestroy(const opaque *);
int cusparseLtMatmulGetWorkspace(const opaque *, const opaque *plan, size_t *);
int cusparseLtSpMMAPrune(const opaque *, const opaque *matmul, const void *in, void *out,
                         int algorithm, void *stream);
int cusparseLtSpMMAPruneCheck(const opaque *, const opaque *matmul, const void *in, int *is_invalid,
                              void *stream);
int cusparseLtSpMMACompressedSize(const opaque *, const opaque *plan, size_t *size,
                                  size_t *buffer_size);
int cusparseLtSpMMACompress(const opaque *, const opaque *plan, const void *dense, void *compressed,
                            void *buffer, void *stream);
int cusparseLtMatmul(const opaque *, const opaque *plan, const void *alpha, const void *a,
                     const void *b, const void *beta, const void *c, void *d, void *workspace,
                     void **streams, int32_t stream_count);
int cudaGetDevice(int *);

extern void *mgpuMemAlloc(uint64_t, void *stream, bool) MO_CONTRACT;
extern void mgpuMemFree(void *, void *stream) MO_CONTRACT;
extern void mgpuMemcpy(void *, void *, size_t, void *stream) MO_CONTRACT;
extern void mgpuStreamSynchronize(void *stream) MO_CONTRACT;

/* cusparseStatus_t. The library has a function for the names only from 0.7 on. */
static const char *name_of(int status) {
  static const char *const names[] = {
      "SUCCESS",           "NOT_INITIALIZED", "ALLOC_FAILED",
      "INVALID_VALUE",     "ARCH_MISMATCH",   "MAPPING_ERROR",
      "EXECUTION_FAILED",  "INTERNAL_ERROR",  "MATRIX_TYPE_NOT_SUPPORTED",
      "ZERO_PIVOT",        "NOT_SUPPORTED",   "INSUFFICIENT_RESOURCES",
  };
  return status >= 0 && status < (int)(sizeof names / sizeof *names) ? names[status] : "UNKNOWN";
}

static void check(int status, const char *call) {
  if (!status)
    return;
  mo_error("%s failed: CUSPARSE_STATUS_%s", call, name_of(status));
  mo_hint("matrices '2 of 4' need a GPU from sm_80 on, sizes that are multiples of 16 (8 for f16), "
          "and f16 computed in f16 or i8 computed in i32");
}

#define CHECKED(call, ...) (mo_require_kind("cuda", #call), check(call(__VA_ARGS__), #call))

/* One lock for all calls, because it is not documented which of them may be concurrent. Their host part is
 * short. */
static pthread_mutex_t mo_lt_lock = PTHREAD_MUTEX_INITIALIZER;

typedef struct lt_matrix {
  opaque descriptor;
  void *values;
  const opaque *handle;
  /* For the product with this sparse matrix on the left side. */
  opaque product, selection, plan;
  bool is_planned;
} lt_matrix;

static void *allocate(size_t size_bytes) {
  void *memory = calloc(1, size_bytes);
  if (!memory) {
    mo_error("out of host memory for a matrix");
    mo_hint("free host memory");
  }
  return memory;
}

static const opaque *make_handle(void) {
  opaque *handle = allocate(sizeof *handle);
  int version = 0;
  CHECKED(cusparseLtInit, handle);
  CHECKED(cusparseLtGetVersion, handle, &version);
  if (version < OLDEST_VERSION) {
    mo_error("this is cuSPARSELt %d.%d.%d", version / 1000, version % 1000 / 100, version % 100);
    mo_hint("install cuSPARSELt 0.6 or newer");
  }
  return handle;
}

/* Returns the handle of the current device, which is never destroyed. The caller must hold the lock. */
static const opaque *current_handle(void) {
  static const opaque *handles[MAX_DEVICES];
  int device = 0;
  mo_require_kind("cuda", "cusparseLtInit");
  cudaGetDevice(&device);
  if (device < 0 || device >= MAX_DEVICES) {
    mo_error("sparse operations on device %d", device);
    mo_hint("choose a device below %d", MAX_DEVICES);
  }
  if (!handles[device])
    handles[device] = make_handle();
  return handles[device];
}

static lt_matrix *make_matrix(lt_matrix **place, void *values) {
  lt_matrix *matrix = *place = allocate(sizeof *matrix);
  matrix->values = values;
  matrix->handle = current_handle();
  return matrix;
}

MO_CONTRACT void mgpuCreateCuSparseLtDnMat(lt_matrix **place, intptr_t rows, intptr_t columns,
                                           void *values, int32_t type, void *stream) {
  (void)stream;
  mo_lock(&mo_lt_lock);
  lt_matrix *made = make_matrix(place, values);
  CHECKED(cusparseLtDenseDescriptorInit, made->handle, &made->descriptor, rows, columns, columns,
          ALIGNMENT_BYTES, type, ROW_MAJOR);
  mo_unlock(&mo_lt_lock);
}

MO_CONTRACT void mgpuCusparseLtCreate2To4SpMat(lt_matrix **place, intptr_t rows, intptr_t columns,
                                               void *values, int32_t type, void *stream) {
  (void)stream;
  mo_lock(&mo_lt_lock);
  lt_matrix *made = make_matrix(place, values);
  CHECKED(cusparseLtStructuredDescriptorInit, made->handle, &made->descriptor, rows, columns,
          columns, ALIGNMENT_BYTES, type, ROW_MAJOR, SPARSITY_50_PERCENT);
  mo_unlock(&mo_lt_lock);
}

static void forget_plan(lt_matrix *matrix) {
  if (!matrix->is_planned)
    return;
  CHECKED(cusparseLtMatmulPlanDestroy, &matrix->plan);
  if (cusparseLtMatmulAlgSelectionDestroy)
    CHECKED(cusparseLtMatmulAlgSelectionDestroy, &matrix->selection);
  matrix->is_planned = false;
}

static void destroy_matrix(lt_matrix *matrix) {
  mo_lock(&mo_lt_lock);
  forget_plan(matrix);
  CHECKED(cusparseLtMatDescriptorDestroy, &matrix->descriptor);
  mo_unlock(&mo_lt_lock);
  free(matrix);
}

MO_CONTRACT void mgpuDestroyCuSparseLtDnMat(lt_matrix **place, void *stream) {
  (void)stream;
  destroy_matrix(*place);
}

MO_CONTRACT void mgpuDestroyCuSparseLtSpMat(lt_matrix **place, void *stream) {
  (void)stream;
  destroy_matrix(*place);
}

static int compute_type(int32_t lowered) {
  if (lowered != LOWERED_16F && lowered != LOWERED_32I) {
    mo_error("gpu.spmm of a matrix '2 of 4' does not compute in type %d", lowered);
    mo_hint("compute in f16 or i32: the type behind 'into'");
  }
  return lowered == LOWERED_16F ? COMPUTE_16F : COMPUTE_32I;
}

/* D is C, that is, the product is added to C. */
static void plan_product(lt_matrix *a, const lt_matrix *b, const lt_matrix *c, int op_a, int op_b,
                         int compute) {
  forget_plan(a);
  CHECKED(cusparseLtMatmulDescriptorInit, a->handle, &a->product, op_a, op_b, &a->descriptor,
          &b->descriptor, &c->descriptor, &c->descriptor, compute);
  CHECKED(cusparseLtMatmulAlgSelectionInit, a->handle, &a->selection, &a->product,
          DEFAULT_ALGORITHM);
  CHECKED(cusparseLtMatmulPlanInit, a->handle, &a->plan, &a->product, &a->selection);
  a->is_planned = true;
}

static void check_pruned(lt_matrix *a, void *stream) {
  int is_invalid = 0, *on_device = mgpuMemAlloc(sizeof is_invalid, stream, false);
  CHECKED(cusparseLtSpMMAPruneCheck, a->handle, &a->product, a->values, on_device, stream);
  mgpuMemcpy(&is_invalid, on_device, sizeof is_invalid, stream);
  mgpuStreamSynchronize(stream);
  mgpuMemFree(on_device, stream);
  if (is_invalid) {
    mo_error("cusparseLtSpMMAPruneCheck: the matrix is not of the form '2 of 4'");
    mo_hint("two of any four neighbours in a row must be 0: check sizes, strides and values");
  }
}

/* sizes: the sizes of the workspace, the compressed matrix, and the compression buffer. */
MO_CONTRACT void mgpuCuSparseLtSpMMBufferSize(size_t *sizes, int32_t op_a, int32_t op_b,
                                              lt_matrix **place_a, lt_matrix **place_b,
                                              lt_matrix **place_c, int32_t type, int32_t pruning,
                                              void *stream) {
  lt_matrix *a = *place_a;
  mo_lock(&mo_lt_lock);
  plan_product(a, *place_b, *place_c, op_a, op_b, compute_type(type));
  if (pruning != PRUNE_NOTHING)
    CHECKED(cusparseLtSpMMAPrune, a->handle, &a->product, a->values, a->values, PRUNE_STRIP,
            stream);
  if (pruning == PRUNE_AND_CHECK)
    check_pruned(a, stream);
  CHECKED(cusparseLtMatmulGetWorkspace, a->handle, &a->plan, &sizes[0]);
  CHECKED(cusparseLtSpMMACompressedSize, a->handle, &a->plan, &sizes[1], &sizes[2]);
  mo_unlock(&mo_lt_lock);
}

MO_CONTRACT void mgpuCuSparseLtSpMM(lt_matrix **place_a, lt_matrix **place_b, lt_matrix **place_c,
                                    void *workspace, void *compressed, void *buffer, void *stream) {
  const lt_matrix *a = *place_a, *b = *place_b, *c = *place_c;
  const float one = 1;
  if (!a->is_planned) {
    mo_error("gpu.spmm of a matrix '2 of 4' without gpu.spmm_buffer_size before it");
    mo_hint("ask for the sizes of the buffers with gpu.spmm_buffer_size, which plans the product");
  }
  mo_lock(&mo_lt_lock);
  CHECKED(cusparseLtSpMMACompress, a->handle, &a->plan, a->values, compressed, buffer, stream);
  CHECKED(cusparseLtMatmul, a->handle, &a->plan, &one, compressed, b->values, &one, c->values,
          c->values, workspace, &stream, 1);
  mo_unlock(&mo_lt_lock);
}

/* Defined for programs that call them by name. The handle is created on first use and kept. */
MO_CONTRACT void mgpuCreateSparseLtEnv(void) {}
MO_CONTRACT void mgpuDestroySparseLtEnv(void) {}
