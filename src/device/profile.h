/* profile.h: where the time of a device goes, by kind of operation.
 *
 * profile_start replaces entries of the device's table by timed ones, profile_stop restores them.
 * A timed entry waits for the device, or takes moments in its queue if the device has them, so the
 * whole is slower than without.  One device at a time. */
#ifndef CONR_PROFILE_H
#define CONR_PROFILE_H

#include "device/device.h"

typedef enum profile_kind {
    PROFILE_CONV_FORWARD,
    PROFILE_CONV_BACK_DATA,
    PROFILE_CONV_BACK_FILTER,
    PROFILE_NORM_FORWARD,
    PROFILE_NORM_BACKWARD,
    PROFILE_POOL,
    PROFILE_ROWS,
    PROFILE_SGD,
    PROFILE_LOSS,
    PROFILE_NEIGHBORS,
    PROFILE_VIEWS,
    PROFILE_KINDS
} profile_kind;

extern const char *const profile_names[PROFILE_KINDS];

void profile_start(device *dev);
void profile_stop(device *dev, double seconds[PROFILE_KINDS]);

#endif
