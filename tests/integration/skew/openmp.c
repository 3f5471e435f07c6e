// OpenMP offloading: the module of the host and that of the device.
//--- target
#ifndef LIBRARY
int main(void) {
  int value = 3;
#pragma omp target map(tofrom : value)
  value += 4;
  return value;
}
#endif
//--- loop
void scale(float *a, int n) {
#pragma omp target teams distribute parallel for map(tofrom : a[0 : n])
  for (int i = 0; i < n; i++) a[i] *= 2;
}
