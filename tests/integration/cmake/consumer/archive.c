#include <stdio.h>

int archived(int);

int main(void) {
  printf("%d\n", archived(5));
  return 0;
}
