// What clang registers for OpenMP.
int counter = 7;
double table[16];
int linked = 3;
#pragma omp declare target to(counter, table)
#pragma omp declare target link(linked)
void run(void) {
#pragma omp target
  counter = linked;
}
