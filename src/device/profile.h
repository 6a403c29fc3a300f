/* profile.h: where a device's time goes, by kind of operation.
 *
 * profile_start puts timed entries over a device's table, profile_stop takes them off again.  Each
 * entry waits for the device, or marks its moments in the queue where the device has such, so this
 * is for looking, not for racing.  One device at a time. */
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
