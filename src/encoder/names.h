/* names.h: whose names a file has for the tensors of an encoder.
 *
 * Ours are torchvision's with "encoder." before them; timm has torchvision's, Hugging Face its own.
 * Files may have a prefix before all names. */
#ifndef CONR_NAMES_H
#define CONR_NAMES_H

#include "encoder/network.h"

typedef struct encoder_names {
    const char *prefix; /* before all names: "", "encoder.", "resnet.", ...; static */
    bool
        is_hugging_face; /* embedder.embedder.convolution, encoder.stages.0.layers.0.layer.0. ... */
} encoder_names;

enum { FULL_NAME = NETWORK_NAME + 64 };

/* Whether the file holds a ResNet under names that are known. */
bool names_find(const tensors *file, encoder_names *out);

/* One of our names, "encoder.layer1.0.conv1.weight", as this file has it.  Heads keep theirs. */
void names_in_file(const encoder_names *names, const char *ours, char out[FULL_NAME]);

/* Fails, naming them, if there are tensors beside those of the network's encoder, of heads and of a
 * classifier: then the encoder is not what it is taken for. */
int names_check(const encoder_names *names, const tensors *file, const network *net);

#endif
