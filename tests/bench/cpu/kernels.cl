// The kernels of kernels.mlir in OpenCL C, for other compilers of kernels for the CPU.
kernel void saxpy(float a, global const float *x, global float *y, long n) {
  size_t i = get_global_id(0);
  if (i < n) y[i] = a * x[i] + y[i];
}

#ifdef cl_khr_fp16
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
kernel void axpy_f16(global const half *x, global half *y, long n) {
  size_t i = get_global_id(0);
  if (i < n) y[i] = 2.0h * x[i] + y[i];
}
#endif

kernel void reduce(global const float *x, global float *o, long n) {
  local float sh[256];
  size_t t = get_local_id(0), i = get_global_id(0);
  sh[t] = i < n ? x[i] : 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (size_t s = get_local_size(0) / 2; s > 0; s /= 2) {
    if (t < s) sh[t] += sh[t + s];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (t == 0) o[get_group_id(0)] = sh[0];
}

kernel void matmul(global const float *A, global const float *B, global float *C) {
  local float sa[16][16], sb[16][16];
  size_t tx = get_local_id(0), ty = get_local_id(1);
  size_t row = get_group_id(1) * 16 + ty, col = get_group_id(0) * 16 + tx;
  float acc = 0;
  for (size_t k = 0; k < 512; k += 16) {
    sa[ty][tx] = A[row * 512 + k + tx];
    sb[ty][tx] = B[(k + ty) * 512 + col];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (size_t j = 0; j < 16; ++j) acc += sa[ty][j] * sb[j][tx];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  C[row * 512 + col] = acc;
}

kernel void bmm(global const float *x, global const float *y, global float *z) {
  local float sa[16][16], sb[16][16];
  size_t tx = get_local_id(0), ty = get_local_id(1);
  size_t i = get_group_id(0) * 256 + ty * 16 + tx;
  sa[ty][tx] = x[i];
  sb[ty][tx] = y[i];
  barrier(CLK_LOCAL_MEM_FENCE);
  float sum = 0;
  for (size_t k = 0; k < 16; ++k) sum += sa[ty][k] * sb[k][tx];
  z[i] = sum;
}

kernel void transpose(global const float *x, global float *y) {
  local float tile[32][33];
  size_t tx = get_local_id(0), ty = get_local_id(1);
  size_t r = get_group_id(1) * 32, q = get_group_id(0) * 32;
  tile[ty][tx] = x[(r + ty) * 1024 + q + tx];
  barrier(CLK_LOCAL_MEM_FENCE);
  y[(q + ty) * 1024 + r + tx] = tile[tx][ty];
}

kernel void stencil(global const float *x, global float *y) {
  size_t c = get_global_id(0), r = get_global_id(1);
  if (c - 1 < 1022 && r - 1 < 1022) {
    global const float *p = x + r * 1024 + c;
    y[r * 1024 + c] = ((p[-1] + p[1]) + (p[-1024] + p[1024])) * 0.25f - p[0];
  }
}

#ifdef SHUFFLES
#pragma OPENCL EXTENSION cl_khr_subgroups : enable
#pragma OPENCL EXTENSION cl_khr_subgroup_shuffle : enable
SUBGROUP_OF_32 kernel void softmax(global const float *x, global float *y) {
  size_t t = get_local_id(0), base = get_group_id(0) * 1024 + t;
  float m = -1e30f, s = 0;
  for (size_t j = 0; j < 1024; j += 32) m = fmax(m, x[base + j]);
  for (uint d = 16; d > 0; d /= 2) m = fmax(m, sub_group_shuffle_xor(m, d));
  for (size_t j = 0; j < 1024; j += 32) s += y[base + j] = exp(x[base + j] - m);
  for (uint d = 16; d > 0; d /= 2) s += sub_group_shuffle_xor(s, d);
  float r = 1 / s;
  for (size_t j = 0; j < 1024; j += 32) y[base + j] *= r;
}
#endif

#ifdef __opencl_c_work_group_collective_functions
kernel void layernorm(global const float *x, global float *y) {
  size_t t = get_local_id(0), base = get_group_id(0) * 1024 + t;
  float s = 0, q = 0;
  for (size_t j = 0; j < 1024; j += 256) s += x[base + j];
  float mean = work_group_reduce_add(s) / 1024;
  for (size_t j = 0; j < 1024; j += 256) {
    float d = x[base + j] - mean;
    q += d * d;
  }
  float scale = rsqrt(work_group_reduce_add(q) / 1024 + 1e-5f);
  for (size_t j = 0; j < 1024; j += 256) y[base + j] = (x[base + j] - mean) * scale;
}
#endif

kernel void scan(global const float *x, global float *y) {
  local float s[256];
  size_t t = get_local_id(0), i = get_global_id(0);
  float sum = s[t] = x[i];
  barrier(CLK_LOCAL_MEM_FENCE);
  for (size_t k = 1; k < get_local_size(0); k += k) {
    if (t >= k) sum += s[t - k];
    barrier(CLK_LOCAL_MEM_FENCE);
    s[t] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  y[i] = sum;
}

kernel void blackscholes(global const float *x, global float *y, long n) {
  size_t i = get_global_id(0);
  if (i < n) {
    float d = log(x[i]) / 0.3f;
    y[i] = x[i] * erf(d) - exp(-0.05f) * erf(d - 0.3f);
  }
}

kernel void histogram(global const int *x, global int *h, long n) {
  local int s[256];
  size_t t = get_local_id(0);
  s[t] = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (long i = get_global_id(0); i < n; i += get_global_size(0)) atomic_add(&s[x[i]], 1);
  barrier(CLK_LOCAL_MEM_FENCE);
  atomic_add(&h[t], s[t]);
}

kernel void nbody(global const float *x, global const float *y, global const float *z,
                  global float *a, long n) {
  size_t i = get_global_id(0);
  float xi = x[i], yi = y[i], zi = z[i], sum = 0;
  for (long j = 0; j < n; ++j) {
    float dx = x[j] - xi, dy = y[j] - yi, dz = z[j] - zi;
    float w = dx * dx + dy * dy + dz * dz + 0.01f;
    sum += dx / (w * sqrt(w));
  }
  a[i] = sum;
}

kernel void spmv(global const int *rows, global const int *columns, global const float *values,
                 global const float *x, global float *y) {
  size_t i = get_global_id(0);
  float sum = 0;
  for (long j = rows[i]; j < rows[i + 1]; ++j) sum += values[j] * x[columns[j]];
  y[i] = sum;
}

kernel void bitonic(global float *x) {
  local float s[256];
  size_t t = get_local_id(0), i = get_global_id(0);
  s[t] = x[i];
  barrier(CLK_LOCAL_MEM_FENCE);
  for (size_t k = 2; k <= get_local_size(0); k += k)
    for (size_t j = k / 2; j > 0; j /= 2) {
      size_t q = t ^ j;
      if (q > t) {
        float a = s[t], b = s[q];
        if ((t & k) == 0 ? a > b : a < b) s[t] = b, s[q] = a;
      }
      barrier(CLK_LOCAL_MEM_FENCE);
    }
  x[i] = s[t];
}
