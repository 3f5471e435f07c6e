/* The program of sparse.mlir, written as NVIDIA's samples of cuSPARSE and cuSPARSELt are. */
#include <stddef.h>
#include <stdint.h>

enum { R_16F = 2, R_64F = 1, INDEX_64 = 3, ROW = 2, COMPUTE_16F = 1, STRIP = 1, TRANSPOSE = 1, NON_TRANSPOSE = 0 };

/* Of cuSPARSELt 0.8 and newer. */
typedef struct {
  _Alignas(16) uint8_t data[512];
} lt;

int cudaStreamCreateWithFlags(void **, unsigned);
int cudaStreamSynchronize(void *);
int cudaMallocAsync(void **, size_t, void *);
int cudaFreeAsync(void *, void *);
int cudaMemcpyAsync(void *, const void *, size_t, int, void *);

int cusparseCreate(void **);
int cusparseSetStream(void *, void *);
int cusparseCreateCsr(void **, int64_t, int64_t, int64_t, void *, void *, void *, int, int, int, int);
int cusparseCreateDnVec(void **, int64_t, void *, int);
int cusparseCreateDnMat(void **, int64_t, int64_t, int64_t, void *, int, int);
int cusparseSpMV_bufferSize(void *, int, const void *, void *, void *, const void *, void *, int, int, size_t *);
int cusparseSpMV(void *, int, const void *, void *, void *, const void *, void *, int, int, void *);
int cusparseSpMM_bufferSize(void *, int, int, const void *, void *, void *, const void *, void *, int, int, size_t *);
int cusparseSpMM(void *, int, int, const void *, void *, void *, const void *, void *, int, int, void *);
int cusparseDestroySpMat(void *);
int cusparseDestroyDnVec(void *);
int cusparseDestroyDnMat(void *);

int cusparseLtInit(lt *);
int cusparseLtStructuredDescriptorInit(lt *, lt *, int64_t, int64_t, int64_t, uint32_t, int, int, int);
int cusparseLtDenseDescriptorInit(lt *, lt *, int64_t, int64_t, int64_t, uint32_t, int, int);
int cusparseLtMatmulDescriptorInit(lt *, lt *, int, int, lt *, lt *, lt *, lt *, int);
int cusparseLtMatmulAlgSelectionInit(lt *, lt *, lt *, int);
int cusparseLtMatmulPlanInit(lt *, lt *, lt *, lt *);
int cusparseLtSpMMAPrune(lt *, lt *, void *, void *, int, void *);
int cusparseLtSpMMAPruneCheck(lt *, lt *, void *, int *, void *);
int cusparseLtMatmulGetWorkspace(lt *, lt *, size_t *);
int cusparseLtSpMMACompressedSize(lt *, lt *, size_t *, size_t *);
int cusparseLtSpMMACompress(lt *, lt *, void *, void *, void *, void *);
int cusparseLtMatmul(lt *, lt *, const float *, void *, void *, const float *, void *, void *, void *, void **, int);
int cusparseLtMatmulPlanDestroy(lt *);
int cusparseLtMatmulAlgSelectionDestroy(lt *);
int cusparseLtMatDescriptorDestroy(lt *);

static void *stream;

static void *allocate(size_t size) {
  void *pointer;
  cudaMallocAsync(&pointer, size, stream);
  return pointer;
}

static void of_cusparse(void) {
  void *handle, *a, *dx, *dy, *db, *dc;
  size_t size;
  double one = 1;
  void *positions = allocate(4 * 8), *indices = allocate(5 * 8), *values = allocate(5 * 8);
  void *x = allocate(4 * 8), *y = allocate(3 * 8);
  cusparseCreateCsr(&a, 3, 4, 5, positions, indices, values, INDEX_64, INDEX_64, 0, R_64F);
  cusparseCreateDnVec(&dx, 4, x, R_64F);
  cusparseCreateDnVec(&dy, 3, y, R_64F);
  cusparseCreate(&handle);
  cusparseSetStream(handle, stream);
  cusparseSpMV_bufferSize(handle, NON_TRANSPOSE, &one, a, dx, &one, dy, R_64F, 0, &size);
  void *buffer = allocate(size);
  cusparseSpMV(handle, NON_TRANSPOSE, &one, a, dx, &one, dy, R_64F, 0, buffer);
  void *b = allocate(3 * 5 * 8), *c = allocate(4 * 5 * 8);
  cusparseCreateDnMat(&db, 3, 5, 5, b, R_64F, ROW);
  cusparseCreateDnMat(&dc, 4, 5, 5, c, R_64F, ROW);
  cusparseSpMM_bufferSize(handle, TRANSPOSE, NON_TRANSPOSE, &one, a, db, &one, dc, R_64F, 0, &size);
  buffer = allocate(size);
  cusparseSpMM(handle, TRANSPOSE, NON_TRANSPOSE, &one, a, db, &one, dc, R_64F, 0, buffer);
  cusparseDestroySpMat(a);
  cusparseDestroyDnVec(dx);
  cusparseDestroyDnVec(dy);
  cusparseDestroyDnMat(db);
  cusparseDestroyDnMat(dc);
}

static void of_cusparselt(void) {
  static lt handle, sparse, left, right, product, selection, plan;
  size_t workspace_size, compressed_size, buffer_size;
  float one = 1;
  int is_invalid;
  void *a = allocate(16 * 32 * 2), *b = allocate(32 * 64 * 2), *c = allocate(16 * 64 * 2);
  cusparseLtInit(&handle);
  cusparseLtStructuredDescriptorInit(&handle, &sparse, 16, 32, 32, 16, R_16F, ROW, 0);
  cusparseLtDenseDescriptorInit(&handle, &left, 32, 64, 64, 16, R_16F, ROW);
  cusparseLtDenseDescriptorInit(&handle, &right, 16, 64, 64, 16, R_16F, ROW);
  cusparseLtMatmulDescriptorInit(&handle, &product, NON_TRANSPOSE, NON_TRANSPOSE, &sparse, &left, &right, &right,
                                 COMPUTE_16F);
  cusparseLtMatmulAlgSelectionInit(&handle, &selection, &product, 0);
  cusparseLtMatmulPlanInit(&handle, &plan, &product, &selection);
  cusparseLtSpMMAPrune(&handle, &product, a, a, STRIP, stream);
  int *on_device = allocate(sizeof is_invalid);
  cusparseLtSpMMAPruneCheck(&handle, &product, a, on_device, stream);
  cudaMemcpyAsync(&is_invalid, on_device, sizeof is_invalid, 4, stream);
  cudaStreamSynchronize(stream);
  cudaFreeAsync(on_device, stream);
  cusparseLtMatmulGetWorkspace(&handle, &plan, &workspace_size);
  cusparseLtSpMMACompressedSize(&handle, &plan, &compressed_size, &buffer_size);
  void *workspace = allocate(workspace_size), *compressed = allocate(compressed_size);
  void *buffer = allocate(buffer_size);
  cusparseLtSpMMACompress(&handle, &plan, a, compressed, buffer, stream);
  cusparseLtMatmul(&handle, &plan, &one, compressed, b, &one, c, c, workspace, &stream, 1);
  cusparseLtMatmulPlanDestroy(&plan);
  cusparseLtMatmulAlgSelectionDestroy(&selection);
  cusparseLtMatDescriptorDestroy(&sparse);
  cusparseLtMatDescriptorDestroy(&left);
  cusparseLtMatDescriptorDestroy(&right);
}

int main(void) {
  cudaStreamCreateWithFlags(&stream, 1);
  of_cusparse();
  cudaStreamSynchronize(stream);
  of_cusparselt();
  cudaStreamSynchronize(stream);
  return 0;
}
