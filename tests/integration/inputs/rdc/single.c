#include <stdio.h>
void go(float *);
int main(void) {
  float x = 21;
  go(&x);
  printf("%g\n", x);
}
