#include <stdint.h>
#include <stdio.h>
void go(float*,float*,int64_t,int64_t,int64_t);
int main(){float a[4]={1,2,3,4};go(a,a,0,4,1);printf("%g %g %g %g\n",a[0],a[1],a[2],a[3]);}
