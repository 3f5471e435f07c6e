#include <stdio.h>

int archived(int), shared(int);

int main(void) {
  printf("%d %d\n", archived(3), shared(4));
  return 0;
}
