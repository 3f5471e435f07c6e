#include <stdio.h>

int shared(int);

int main(void) {
  printf("%d\n", shared(6));
  return 0;
}
