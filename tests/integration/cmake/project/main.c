#include <stdio.h>

int own(int), archived(int), shared(int);

int main(void) {
  printf("%d %d %d\n", own(2), archived(3), shared(4));
  return 0;
}
