/* peak.h: what this machine can do at most, measured: the yardstick of `conr bench`. */
#ifndef CONR_PEAK_H
#define CONR_PEAK_H

double peak_flops(int threads);                         /* fp32, a fused multiply-add counts two */
int peak_copies(int threads, double *bytes_per_second); /* read + written, far beyond the caches */

#endif
