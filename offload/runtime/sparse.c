/* The sparse operations of MLIR's gpu dialect, implemented with cuSPARSE. Compiled and linked only if the program
 * calls them. The part of cuSPARSE (11 to 13) that is used is declared here, so that no CUDA headers are
 * required. Its ABI is plain C.
 */
#include <pthread.h>
#include <stddef.h>

#include "mgpu.h"

enum { ROW_MAJOR = 2, BASE_ZERO = 0, DEFAULT_ALGORITHM = 0 };
/* cudaDataType: the compute types of cuSPARSE. */
enum { REAL_32 = 0, REAL_64 = 1, COMPLEX_32 = 4, COMPLEX_64 = 5, INTEGER_32 = 10 };

typedef void *handle_t;

int cusparseCreate(handle_t *);
int cusparseDestroy(handle_t);
int cusparseSetStream(handle_t, void *stream);
const char *cusparseGetErrorName(int);
const char *cusparseGetErrorString(int);
int cusparseCreateDnVec(void **, int64_t size, void *values, int type);
int cusparseDestroyDnVec(void *);
int cusparseCreateDnMat(void **, int64_t rows, int64_t columns, int64_t leading, void *values,
                        int type, int order);
int cusparseDestroyDnMat(void *);
int cusparseCreateCoo(void **, int64_t rows, int64_t columns, int64_t count, void *row_indices,
                      void *column_indices, void *values, int index_type, int base, int type);
int cusparseCreateCsr(void **, int64_t rows, int64_t columns, int64_t count, void *positions,
                      void *indices, void *values, int position_type, int index_type, int base,
                      int type);
int cusparseCreateCsc(void **, int64_t rows, int64_t columns, int64_t count, void *positions,
                      void *indices, void *values, int position_type, int index_type, int base,
                      int type);
int cusparseCreateBsr(void **, int64_t rows, int64_t columns, int64_t count, int64_t block_rows,
                      int64_t block_columns, void *positions, void *indices, void *values,
                      int position_type, int index_type, int base, int type, int order);
int cusparseDestroySpMat(void *);
int cusparseSpMatGetSize(void *, int64_t *rows, int64_t *columns, int64_t *count);
int cusparseCsrSetPointers(void *, void *positions, void *indices, void *values);
int cusparseSpMV_bufferSize(handle_t, int op, const void *alpha, void *a, void *x, const void *beta,
                            void *y, int type, int algorithm, size_t *);
int cusparseSpMV(handle_t, int op, const void *alpha, void *a, void *x, const void *beta, void *y,
                 int type, int algorithm, void *buffer);
int cusparseSpMM_bufferSize(handle_t, int op_a, int op_b, const void *alpha, void *a, void *b,
                            const void *beta, void *c, int type, int algorithm, size_t *);
int cusparseSpMM(handle_t, int op_a, int op_b, const void *alpha, void *a, void *b,
                 const void *beta, void *c, int type, int algorithm, void *buffer);
int cusparseSDDMM_bufferSize(handle_t, int op_a, int op_b, const void *alpha, void *a, void *b,
                             const void *beta, void *c, int type, int algorithm, size_t *);
int cusparseSDDMM(handle_t, int op_a, int op_b, const void *alpha, void *a, void *b,
                  const void *beta, void *c, int type, int algorithm, void *buffer);
int cusparseSpGEMM_createDescr(void **);
int cusparseSpGEMM_destroyDescr(void *);
int cusparseSpGEMM_workEstimation(handle_t, int op_a, int op_b, const void *alpha, void *a, void *b,
                                  const void *beta, void *c, int type, int algorithm, void *descr,
                                  size_t *, void *buffer);
int cusparseSpGEMM_compute(handle_t, int op_a, int op_b, const void *alpha, void *a, void *b,
                           const void *beta, void *c, int type, int algorithm, void *descr,
                           size_t *, void *buffer);
int cusparseSpGEMM_copy(handle_t, int op_a, int op_b, const void *alpha, void *a, void *b,
                        const void *beta, void *c, int type, int algorithm, void *descr);
int cudaGetDevice(int *);

static void check(int status, const char *call) {
  if (!status)
    return;
  mo_error("%s failed: %s (%s)", call, cusparseGetErrorName(status),
           cusparseGetErrorString(status));
  mo_hint("check the sizes and types of the matrices; CUDA must be of one release in all its parts");
}

#define CHECKED(call, ...) (mo_require_kind("cuda", #call), check(call(__VA_ARGS__), #call))

/* A handle belongs to a device, and threads must not use it concurrently. */
enum { MAX_DEVICES = 64 };
static _Thread_local handle_t handles[MAX_DEVICES];
static pthread_key_t mo_thread_end;
static bool mo_watches_threads;

static void destroy_handles(void *unused) {
  (void)unused;
  for (int i = 0; i < MAX_DEVICES; ++i)
    if (handles[i])
      cusparseDestroy(handles[i]);
}

static void make_key(void) {
  mo_watches_threads = !pthread_key_create(&mo_thread_end, destroy_handles);
}

/* A thread may end after the library was unloaded. */
__attribute__((destructor)) static void delete_key(void) {
  if (mo_watches_threads)
    pthread_key_delete(mo_thread_end);
}

static handle_t handle_for(void *stream) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  int device = 0;
  mo_require_kind("cuda", "cusparseCreate");
  cudaGetDevice(&device);
  if (device < 0 || device >= MAX_DEVICES) {
    mo_error("sparse operations on device %d", device);
    mo_hint("choose a device below %d", MAX_DEVICES);
  }
  if (!handles[device]) {
    pthread_once(&once, make_key);
    pthread_setspecific(mo_thread_end, handles); /* any value but NULL */
    CHECKED(cusparseCreate, &handles[device]);
  }
  CHECKED(cusparseSetStream, handles[device], stream);
  return handles[device];
}

typedef union scalar {
  float real32[2];
  double real64[2];
  int32_t integer;
} scalar;

/* The factors are 1 in the compute type. */
static scalar one_of(int type) {
  scalar one = {.real64 = {0}};
  if (type == REAL_64 || type == COMPLEX_64)
    one.real64[0] = 1;
  else if (type == INTEGER_32)
    one.integer = 1;
  else if (type == REAL_32 || type == COMPLEX_32)
    one.real32[0] = 1;
  else {
    mo_error("sparse operations do not compute in numbers of type %d (cudaDataType)", type);
    mo_hint("compute in f32, f64, i32 or complex numbers of these: the type behind 'into'");
  }
  return one;
}

/* Defined for programs that call them by name. The handle is created on first use and kept. */
MO_CONTRACT void mgpuCreateSparseEnv(void) {}
MO_CONTRACT void mgpuDestroySparseEnv(void) {}

MO_CONTRACT void *mgpuCreateDnVec(intptr_t size, void *values, int32_t type, void *stream) {
  void *vector = NULL;
  (void)stream;
  CHECKED(cusparseCreateDnVec, &vector, size, values, type);
  return vector;
}
MO_CONTRACT void mgpuDestroyDnVec(void *vector, void *stream) {
  (void)stream;
  CHECKED(cusparseDestroyDnVec, vector);
}
MO_CONTRACT void *mgpuCreateDnMat(intptr_t rows, intptr_t columns, void *values, int32_t type,
                                  void *stream) {
  void *matrix = NULL;
  (void)stream;
  CHECKED(cusparseCreateDnMat, &matrix, rows, columns, columns, values, type, ROW_MAJOR);
  return matrix;
}
MO_CONTRACT void mgpuDestroyDnMat(void *matrix, void *stream) {
  (void)stream;
  CHECKED(cusparseDestroyDnMat, matrix);
}

MO_CONTRACT void *mgpuCreateCoo(intptr_t rows, intptr_t columns, intptr_t count, void *row_indices,
                                void *column_indices, void *values, int32_t index_type,
                                int32_t type, void *stream) {
  void *matrix = NULL;
  (void)stream;
  CHECKED(cusparseCreateCoo, &matrix, rows, columns, count, row_indices, column_indices, values,
          index_type, BASE_ZERO, type);
  return matrix;
}
/* CUDA 12 removed cusparseCreateCooAoS. */
MO_CONTRACT void *mgpuCreateCooAoS(intptr_t rows, intptr_t columns, intptr_t count, void *indices,
                                   void *values, int32_t index_type, int32_t type, void *stream) {
  (void)rows, (void)columns, (void)count, (void)indices, (void)values, (void)index_type;
  (void)type, (void)stream;
  mo_error("gpu.create_coo_aos: cuSPARSE has no such matrices from CUDA 12 on");
  mo_hint("give the indices of rows and columns in two buffers, to gpu.create_coo");
}
MO_CONTRACT void *mgpuCreateCsr(intptr_t rows, intptr_t columns, intptr_t count, void *positions,
                                void *indices, void *values, int32_t position_type,
                                int32_t index_type, int32_t type, void *stream) {
  void *matrix = NULL;
  (void)stream;
  CHECKED(cusparseCreateCsr, &matrix, rows, columns, count, positions, indices, values,
          position_type, index_type, BASE_ZERO, type);
  return matrix;
}
MO_CONTRACT void *mgpuCreateCsc(intptr_t rows, intptr_t columns, intptr_t count, void *positions,
                                void *indices, void *values, int32_t position_type,
                                int32_t index_type, int32_t type, void *stream) {
  void *matrix = NULL;
  (void)stream;
  CHECKED(cusparseCreateCsc, &matrix, rows, columns, count, positions, indices, values,
          position_type, index_type, BASE_ZERO, type);
  return matrix;
}
MO_CONTRACT void *mgpuCreateBsr(intptr_t rows, intptr_t columns, intptr_t count,
                                intptr_t block_rows, intptr_t block_columns, void *positions,
                                void *indices, void *values, int32_t position_type,
                                int32_t index_type, int32_t type, void *stream) {
  void *matrix = NULL;
  (void)stream;
  CHECKED(cusparseCreateBsr, &matrix, rows, columns, count, block_rows, block_columns, positions,
          indices, values, position_type, index_type, BASE_ZERO, type, ROW_MAJOR);
  return matrix;
}
MO_CONTRACT void mgpuDestroySpMat(void *matrix, void *stream) {
  (void)stream;
  CHECKED(cusparseDestroySpMat, matrix);
}
MO_CONTRACT void mgpuSpMatGetSize(void *matrix, void *rows, void *columns, void *count,
                                  void *stream) {
  (void)stream;
  CHECKED(cusparseSpMatGetSize, matrix, rows, columns, count);
}
MO_CONTRACT void mgpuSetCsrPointers(void *matrix, void *positions, void *indices, void *values,
                                    void *stream) {
  (void)stream;
  CHECKED(cusparseCsrSetPointers, matrix, positions, indices, values);
}

/* Results are added to the existing values, as in upstream's runtime: both factors are 1. */
MO_CONTRACT intptr_t mgpuSpMVBufferSize(int32_t op, void *a, void *x, void *y, int32_t type,
                                        void *stream) {
  scalar one = one_of(type);
  size_t size = 0;
  CHECKED(cusparseSpMV_bufferSize, handle_for(stream), op, &one, a, x, &one, y, type,
          DEFAULT_ALGORITHM, &size);
  return (intptr_t)size;
}
MO_CONTRACT void mgpuSpMV(int32_t op, void *a, void *x, void *y, int32_t type, void *buffer,
                          void *stream) {
  scalar one = one_of(type);
  CHECKED(cusparseSpMV, handle_for(stream), op, &one, a, x, &one, y, type, DEFAULT_ALGORITHM,
          buffer);
}
MO_CONTRACT intptr_t mgpuSpMMBufferSize(int32_t op_a, int32_t op_b, void *a, void *b, void *c,
                                        int32_t type, void *stream) {
  scalar one = one_of(type);
  size_t size = 0;
  CHECKED(cusparseSpMM_bufferSize, handle_for(stream), op_a, op_b, &one, a, b, &one, c, type,
          DEFAULT_ALGORITHM, &size);
  return (intptr_t)size;
}
MO_CONTRACT void mgpuSpMM(int32_t op_a, int32_t op_b, void *a, void *b, void *c, int32_t type,
                          void *buffer, void *stream) {
  scalar one = one_of(type);
  CHECKED(cusparseSpMM, handle_for(stream), op_a, op_b, &one, a, b, &one, c, type,
          DEFAULT_ALGORITHM, buffer);
}
MO_CONTRACT intptr_t mgpuSDDMMBufferSize(int32_t op_a, int32_t op_b, void *a, void *b, void *c,
                                         int32_t type, void *stream) {
  scalar one = one_of(type);
  size_t size = 0;
  CHECKED(cusparseSDDMM_bufferSize, handle_for(stream), op_a, op_b, &one, a, b, &one, c, type,
          DEFAULT_ALGORITHM, &size);
  return (intptr_t)size;
}
MO_CONTRACT void mgpuSDDMM(int32_t op_a, int32_t op_b, void *a, void *b, void *c, int32_t type,
                           void *buffer, void *stream) {
  scalar one = one_of(type);
  CHECKED(cusparseSDDMM, handle_for(stream), op_a, op_b, &one, a, b, &one, c, type,
          DEFAULT_ALGORITHM, buffer);
}

MO_CONTRACT void *mgpuSpGEMMCreateDescr(void *stream) {
  void *descr = NULL;
  (void)stream;
  CHECKED(cusparseSpGEMM_createDescr, &descr);
  return descr;
}
MO_CONTRACT void mgpuSpGEMMDestroyDescr(void *descr, void *stream) {
  (void)stream;
  CHECKED(cusparseSpGEMM_destroyDescr, descr);
}
/* cuSPARSE does not add products of sparse matrices to existing values: the second factor is 0. */
MO_CONTRACT intptr_t mgpuSpGEMMWorkEstimation(void *descr, int32_t op_a, int32_t op_b, void *a,
                                              void *b, void *c, int32_t type, intptr_t bytes,
                                              void *buffer, void *stream) {
  scalar one = one_of(type), zero = {.real64 = {0}};
  size_t size = (size_t)bytes;
  CHECKED(cusparseSpGEMM_workEstimation, handle_for(stream), op_a, op_b, &one, a, b, &zero, c, type,
          DEFAULT_ALGORITHM, descr, &size, buffer);
  return (intptr_t)size;
}
MO_CONTRACT intptr_t mgpuSpGEMMCompute(void *descr, int32_t op_a, int32_t op_b, void *a, void *b,
                                       void *c, int32_t type, intptr_t bytes, void *buffer,
                                       void *stream) {
  scalar one = one_of(type), zero = {.real64 = {0}};
  size_t size = (size_t)bytes;
  CHECKED(cusparseSpGEMM_compute, handle_for(stream), op_a, op_b, &one, a, b, &zero, c, type,
          DEFAULT_ALGORITHM, descr, &size, buffer);
  return (intptr_t)size;
}
MO_CONTRACT void mgpuSpGEMMCopy(void *descr, int32_t op_a, int32_t op_b, void *a, void *b, void *c,
                                int32_t type, void *stream) {
  scalar one = one_of(type), zero = {.real64 = {0}};
  CHECKED(cusparseSpGEMM_copy, handle_for(stream), op_a, op_b, &one, a, b, &zero, c, type,
          DEFAULT_ALGORITHM, descr);
}
