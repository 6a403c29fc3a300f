/* peak.h: the measured peak rates of this machine, the yardstick of `conr bench`. */
#ifndef CONR_PEAK_H
#define CONR_PEAK_H

double peak_flops(int threads); /* fp32; a fused multiply-add counts as two */
int peak_copies(int threads,
                double *bytes_per_second); /* read + written, far larger than the caches */

#endif
