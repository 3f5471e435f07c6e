/* Runs a function of gpu_faults.mlir, and prints what it gives. */
#include <stdio.h>
#include <string.h>

#define EACH(X) X(behind) X(freed) X(host_memory) X(workgroup) X(divergent) X(early) X(touch) X(late) X(uninitialized) X(race) X(workgroup_race)
#define DECLARE(name) int _mlir_ciface_##name(void);
EACH(DECLARE)

int main(int count, char **names) {
#define RUN(name) \
  if (!strcmp(names[count - 1], #name)) \
    printf("%s %d\n", #name, _mlir_ciface_##name());
  EACH(RUN)
  return 0;
}
