/* encoder.h: an open pretrained network, for whoever writes down what it is (src/run). */
#ifndef CONR_PRETRAINED_ENCODER_H
#define CONR_PRETRAINED_ENCODER_H

#include "conr.h"
#include "pretrained/family.h"

struct conr_encoder {
    device *dev;
    const family *family;
    void *net;
    encoder_about about;
    int batch;
    char *path;
    const char *type;
    uint64_t checksum;
    char settings[256];
};

#endif
