/* cuda_hog.cu: takes all memory of a GPU but the given number of MiB, says so, and holds it until
 * its standard input ends. */
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    size_t leave = (size_t)(argc > 1 ? atol(argv[1]) : 256) << 20, available, total;
    for (size_t step = (size_t)1 << 33; step >= 1 << 21;) {
        void *p;
        if (cudaMemGetInfo(&available, &total)) return 1;
        if (available < leave + step || cudaMalloc(&p, step)) step /= 2;
    }
    if (cudaMemGetInfo(&available, &total)) return 1;
    printf("%zu MiB are left\n", available >> 20);
    fflush(stdout);
    while (getchar() != EOF) {}
    return 0;
}
