/* export.h: pretrained networks as ONNX files. */
#ifndef CONR_PRETRAINED_EXPORT_H
#define CONR_PRETRAINED_EXPORT_H

#include "pretrained/family.h"

/* Writes the network of a file at the size that is set.  Reads the weights on `host`, a device whose
 * memory is the host's, and checks them as opening it does. */
int vit_onnx(device *host, const tensors *f, const encoder_settings *set, const tensor_note *note,
             int n_notes, const char *path);
int resnet_onnx(device *host, const tensors *f, const encoder_settings *set,
                const tensor_note *note, int n_notes, const char *path);

#endif
