// OpenMP with an image for the CPU: the program runs where entries and image are found.
//--- target
int main(void) {
  int value = 3;
#pragma omp target map(tofrom : value)
  value += 4;
  return value;
}
