/* libcudart as recording_gpu.c has it, and libcusparse and libcusparseLt in the same library: they write down
 * what they are asked for, and give handles, descriptors and sizes. */
#include "recording_gpu.c"

enum { HANDLES = 0x400000, WORKSPACE = 128, COMPRESSED = 72, COMPRESSING = 16 };
static size_t made_handles;

#define HANDLE(handle) name_of(handle, HANDLES, 'h').chars
#define CALLED(call, ...)                                \
  do {                                                   \
    printf(call " " __VA_ARGS__);                        \
    printf("\n");                                        \
    return status_of(call);                              \
  } while (0)

static void *make(void **handle) { return *handle = (void *)(HANDLES + STEP * ++made_handles); }

/* cuSPARSE --------------------------------------------------------------------------------- */

const char *cusparseGetErrorName(int status) {
  return status == 3 ? "CUSPARSE_STATUS_INVALID_VALUE" : "CUSPARSE_STATUS_OTHER";
}
const char *cusparseGetErrorString(int status) { return (void)status, "text"; }
int cusparseCreate(void **handle) { CALLED("cusparseCreate", "%s", HANDLE(make(handle))); }
int cusparseDestroy(void *handle) { return (void)handle, 0; }
int cusparseSetStream(void *handle, void *stream) {
  CALLED("cusparseSetStream", "%s %s", HANDLE(handle), STREAM(stream));
}
int cusparseCreateDnVec(void **vector, int64_t size, void *values, int type) {
  CALLED("cusparseCreateDnVec", "%s size %ld at %s type %d", HANDLE(make(vector)), size, PLACE(values), type);
}
int cusparseDestroyDnVec(void *vector) { CALLED("cusparseDestroyDnVec", "%s", HANDLE(vector)); }
int cusparseCreateDnMat(void **matrix, int64_t rows, int64_t columns, int64_t leading, void *values, int type,
                        int order) {
  CALLED("cusparseCreateDnMat", "%s %ld x %ld leading %ld at %s type %d order %d", HANDLE(make(matrix)), rows,
         columns, leading, PLACE(values), type, order);
}
int cusparseDestroyDnMat(void *matrix) { CALLED("cusparseDestroyDnMat", "%s", HANDLE(matrix)); }
int cusparseCreateCoo(void **matrix, int64_t rows, int64_t columns, int64_t count, void *row, void *column,
                      void *values, int index, int base, int type) {
  CALLED("cusparseCreateCoo", "%s %ld x %ld with %ld at %s %s %s index %d base %d type %d", HANDLE(make(matrix)),
         rows, columns, count, PLACE(row), PLACE(column), PLACE(values), index, base, type);
}
static int compressed(const char *call, void **matrix, int64_t rows, int64_t columns, int64_t count,
                      void *positions, void *indices, void *values, int position, int index, int base, int type) {
  printf("%s %s %ld x %ld with %ld at %s %s %s index %d %d base %d type %d\n", call, HANDLE(make(matrix)), rows,
         columns, count, PLACE(positions), PLACE(indices), PLACE(values), position, index, base, type);
  return status_of(call);
}
int cusparseCreateCsr(void **m, int64_t r, int64_t c, int64_t n, void *p, void *i, void *v, int pt, int it, int b,
                      int t) {
  return compressed("cusparseCreateCsr", m, r, c, n, p, i, v, pt, it, b, t);
}
int cusparseCreateCsc(void **m, int64_t r, int64_t c, int64_t n, void *p, void *i, void *v, int pt, int it, int b,
                      int t) {
  return compressed("cusparseCreateCsc", m, r, c, n, p, i, v, pt, it, b, t);
}
int cusparseCreateBsr(void **m, int64_t r, int64_t c, int64_t n, int64_t block_rows, int64_t block_columns,
                      void *p, void *i, void *v, int pt, int it, int b, int t, int order) {
  printf("blocks %ld x %ld order %d: ", block_rows, block_columns, order);
  return compressed("cusparseCreateBsr", m, r, c, n, p, i, v, pt, it, b, t);
}
int cusparseDestroySpMat(void *matrix) { CALLED("cusparseDestroySpMat", "%s", HANDLE(matrix)); }
int cusparseSpMatGetSize(void *matrix, int64_t *rows, int64_t *columns, int64_t *count) {
  *rows = 3, *columns = 4, *count = 5;
  CALLED("cusparseSpMatGetSize", "%s", HANDLE(matrix));
}
int cusparseCsrSetPointers(void *matrix, void *positions, void *indices, void *values) {
  CALLED("cusparseCsrSetPointers", "%s to %s %s %s", HANDLE(matrix), PLACE(positions), PLACE(indices), PLACE(values));
}

/* The factors in the type that is computed in: cudaDataType. */
static text factor_of(const void *factor, int type) {
  text name;
  double value = type == 1 || type == 5 ? *(const double *)factor
                 : type == 10           ? *(const int *)factor
                                        : *(const float *)factor;
  snprintf(name.chars, sizeof name.chars, "%g", value);
  return name;
}
#define FACTOR(factor) factor_of(factor, type).chars

int cusparseSpMV_bufferSize(void *h, int op, const void *alpha, void *a, void *x, const void *beta, void *y,
                            int type, int algorithm, size_t *size) {
  *size = WORKSPACE;
  CALLED("cusparseSpMV_bufferSize", "%s op %d %s %s %s %s %s type %d algorithm %d", HANDLE(h), op, FACTOR(alpha),
         HANDLE(a), HANDLE(x), FACTOR(beta), HANDLE(y), type, algorithm);
}
int cusparseSpMV(void *h, int op, const void *alpha, void *a, void *x, const void *beta, void *y, int type,
                 int algorithm, void *buffer) {
  CALLED("cusparseSpMV", "%s op %d %s %s %s %s %s type %d algorithm %d at %s", HANDLE(h), op, FACTOR(alpha),
         HANDLE(a), HANDLE(x), FACTOR(beta), HANDLE(y), type, algorithm, PLACE(buffer));
}

#define PRODUCT(name)                                                                                             \
  int name##_bufferSize(void *h, int op_a, int op_b, const void *alpha, void *a, void *b, const void *beta,       \
                        void *c, int type, int algorithm, size_t *size) {                                         \
    *size = WORKSPACE;                                                                                            \
    CALLED(#name "_bufferSize", "%s op %d %d %s %s %s %s %s type %d algorithm %d", HANDLE(h), op_a, op_b,         \
           FACTOR(alpha), HANDLE(a), HANDLE(b), FACTOR(beta), HANDLE(c), type, algorithm);                        \
  }                                                                                                               \
  int name(void *h, int op_a, int op_b, const void *alpha, void *a, void *b, const void *beta, void *c, int type, \
           int algorithm, void *buffer) {                                                                         \
    CALLED(#name, "%s op %d %d %s %s %s %s %s type %d algorithm %d at %s", HANDLE(h), op_a, op_b, FACTOR(alpha),  \
           HANDLE(a), HANDLE(b), FACTOR(beta), HANDLE(c), type, algorithm, PLACE(buffer));                        \
  }
PRODUCT(cusparseSpMM)
PRODUCT(cusparseSDDMM)

int cusparseSpGEMM_createDescr(void **descr) { CALLED("cusparseSpGEMM_createDescr", "%s", HANDLE(make(descr))); }
int cusparseSpGEMM_destroyDescr(void *descr) { CALLED("cusparseSpGEMM_destroyDescr", "%s", HANDLE(descr)); }
#define STEP_OF_SPGEMM(name)                                                                                      \
  int name(void *h, int op_a, int op_b, const void *alpha, void *a, void *b, const void *beta, void *c, int type, \
           int algorithm, void *descr, size_t *size, void *buffer) {                                              \
    if (!buffer)                                                                                                  \
      *size = WORKSPACE;                                                                                          \
    CALLED(#name, "%s op %d %d %s %s %s %s %s type %d algorithm %d %s %zu at %s", HANDLE(h), op_a, op_b,          \
           FACTOR(alpha), HANDLE(a), HANDLE(b), FACTOR(beta), HANDLE(c), type, algorithm, HANDLE(descr), *size,   \
           PLACE(buffer));                                                                                        \
  }
STEP_OF_SPGEMM(cusparseSpGEMM_workEstimation)
STEP_OF_SPGEMM(cusparseSpGEMM_compute)
int cusparseSpGEMM_copy(void *h, int op_a, int op_b, const void *alpha, void *a, void *b, const void *beta, void *c,
                        int type, int algorithm, void *descr) {
  CALLED("cusparseSpGEMM_copy", "%s op %d %d %s %s %s %s %s type %d algorithm %d %s", HANDLE(h), op_a, op_b,
         FACTOR(alpha), HANDLE(a), HANDLE(b), FACTOR(beta), HANDLE(c), type, algorithm, HANDLE(descr));
}

/* cuSPARSELt: what it makes lies with the caller, 512 bytes each; the first word holds the name. */

#define LT(descriptor) HANDLE(*(void *const *)(descriptor))

int cusparseLtInit(void **handle) {
  memset(handle, 0, 512);
  CALLED("cusparseLtInit", "%s", HANDLE(make(handle)));
}
int cusparseLtGetVersion(void **handle, int *version) {
  const char *wanted = getenv("RECORD_SPARSE_LT");
  (void)handle;
  return *version = atoi(wanted ? wanted : "1000"), 0;
}
int cusparseLtDenseDescriptorInit(void **h, void **matrix, int64_t rows, int64_t columns, int64_t leading,
                                  uint32_t alignment, int type, int order) {
  make(matrix);
  CALLED("cusparseLtDenseDescriptorInit", "%s %s %ld x %ld leading %ld aligned %u type %d order %d", LT(h),
         LT(matrix), rows, columns, leading, alignment, type, order);
}
int cusparseLtStructuredDescriptorInit(void **h, void **matrix, int64_t rows, int64_t columns, int64_t leading,
                                       uint32_t alignment, int type, int order, int sparsity) {
  make(matrix);
  CALLED("cusparseLtStructuredDescriptorInit", "%s %s %ld x %ld leading %ld aligned %u type %d order %d sparsity %d",
         LT(h), LT(matrix), rows, columns, leading, alignment, type, order, sparsity);
}
int cusparseLtMatDescriptorDestroy(void **matrix) { CALLED("cusparseLtMatDescriptorDestroy", "%s", LT(matrix)); }
int cusparseLtMatmulDescriptorInit(void **h, void **product, int op_a, int op_b, void **a, void **b, void **c,
                                   void **d, int compute) {
  make(product);
  CALLED("cusparseLtMatmulDescriptorInit", "%s %s op %d %d %s %s %s %s compute %d", LT(h), LT(product), op_a, op_b,
         LT(a), LT(b), LT(c), LT(d), compute);
}
int cusparseLtMatmulAlgSelectionInit(void **h, void **selection, void **product, int algorithm) {
  make(selection);
  CALLED("cusparseLtMatmulAlgSelectionInit", "%s %s of %s algorithm %d", LT(h), LT(selection), LT(product), algorithm);
}
int cusparseLtMatmulAlgSelectionDestroy(void **selection) {
  CALLED("cusparseLtMatmulAlgSelectionDestroy", "%s", LT(selection));
}
int cusparseLtMatmulPlanInit(void **h, void **plan, void **product, void **selection) {
  make(plan);
  CALLED("cusparseLtMatmulPlanInit", "%s %s of %s by %s", LT(h), LT(plan), LT(product), LT(selection));
}
int cusparseLtMatmulPlanDestroy(void **plan) { CALLED("cusparseLtMatmulPlanDestroy", "%s", LT(plan)); }
int cusparseLtMatmulGetWorkspace(void **h, void **plan, size_t *size) {
  *size = WORKSPACE;
  CALLED("cusparseLtMatmulGetWorkspace", "%s %s", LT(h), LT(plan));
}
int cusparseLtSpMMAPrune(void **h, void **product, const void *in, void *out, int algorithm, void *stream) {
  CALLED("cusparseLtSpMMAPrune", "%s %s %s to %s algorithm %d on %s", LT(h), LT(product), PLACE(in), PLACE(out),
         algorithm, STREAM(stream));
}
int cusparseLtSpMMAPruneCheck(void **h, void **product, const void *in, int *is_invalid, void *stream) {
  *is_invalid = getenv("RECORD_UNPRUNED") != NULL;
  CALLED("cusparseLtSpMMAPruneCheck", "%s %s %s says at %s on %s", LT(h), LT(product), PLACE(in), PLACE(is_invalid),
         STREAM(stream));
}
int cusparseLtSpMMACompressedSize(void **h, void **plan, size_t *size, size_t *buffer_size) {
  *size = COMPRESSED, *buffer_size = COMPRESSING;
  CALLED("cusparseLtSpMMACompressedSize", "%s %s", LT(h), LT(plan));
}
int cusparseLtSpMMACompress(void **h, void **plan, const void *dense, void *result, void *buffer, void *stream) {
  CALLED("cusparseLtSpMMACompress", "%s %s %s to %s by %s on %s", LT(h), LT(plan), PLACE(dense), PLACE(result),
         PLACE(buffer), STREAM(stream));
}
int cusparseLtMatmul(void **h, void **plan, const float *alpha, const void *a, const void *b, const float *beta,
                     const void *c, void *d, void *workspace, void **streams, int32_t count) {
  CALLED("cusparseLtMatmul", "%s %s %g %s %s %g %s to %s by %s on %d streams %s", LT(h), LT(plan), *alpha, PLACE(a),
         PLACE(b), *beta, PLACE(c), PLACE(d), PLACE(workspace), count, count ? STREAM(*streams) : "");
}
