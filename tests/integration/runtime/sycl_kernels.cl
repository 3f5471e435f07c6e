/* What sycl_program.c launches; the host passes nothing for the pointers to local memory. */
typedef struct mixed {
  uchar byte;
  double number;
} mixed;

kernel void saxpy(float a, global const float *x, global float *y, uint count) {
  size_t i = get_global_id(0);
  if (i < count)
    y[i] += a * x[i];
}

kernel void turn(global int *out, local int *scratch) {
  size_t i = get_local_id(0), size = get_local_size(0);
  scratch[i] = (int)get_global_id(0);
  barrier(CLK_LOCAL_MEM_FENCE);
  out[get_global_id(0)] = scratch[size - 1 - i];
}

kernel void types(global double *out, uchar a, short b, int3 c, long d, char2 e, mixed f,
                  constant int *g, double h) {
  out[0] = a, out[1] = b, out[2] = c.z, out[3] = d, out[4] = e.y;
  out[5] = f.byte, out[6] = f.number, out[7] = g[1], out[8] = h;
}

kernel void shape(global uint *out) {
  size_t i = get_global_linear_id();
  out[i] = get_group_id(0) + 10 * get_group_id(1) + 100 * get_group_id(2);
}

kernel __attribute__((reqd_work_group_size(8, 1, 1))) void eight(global int *out) {
  out[get_global_id(0)] = 8;
}

/* The pointer lies in memory: the device is not told of it by an argument. */
kernel void follow(global const ulong *where) {
  *(global int *)where[0] = 77;
}
