/* resnet.h: ResNets in anybody's safetensors files: which one a file holds, and its features.
 *
 * Known are ResNet-18, -34, -50 and -101 (and what conr itself trains) of any width, under the names
 * of torchvision, timm, Hugging Face or conr, as fp32, fp16 or bf16.  What the weights do not tell:
 * a first convolution of 7x7 has stride 2 and a max-pool behind it, one of 3x3 has stride 1 and none;
 * bottlenecks have their stride in the 3x3 ("v1.5").
 *
 *     tensors f;
 *     TRY(tensors_open("resnet50.safetensors", &f));
 *     if ((rc = resnet_recognize(&f, &about)) == 1) {
 *         TRY(resnet_open(dev, &f, 224, 32, &r));                batches of 32 images of 224x224
 *         TRY(resnet_encode(r, images, n, features));            n <= 32
 *     } */
#ifndef CONR_RESNET_H
#define CONR_RESNET_H

#include "device/device.h"
#include "encoder/network.h"

typedef struct resnet_about {
    encoder_kind encoder;
    stem_kind stem;
    int width, channels; /* of the first stage: 64 as published; of the images: 1 or 3 */
    int features;        /* d: 512 or 2048 at width 64 */
    const char *form; /* whose names the file has: "torchvision", "Hugging Face", "conr"; static */
    size_t weights;   /* numbers, statistics included */
} resnet_about;

/* 1: the file holds a ResNet that is known, and *out says which; 0: it holds none; or a CONR_E*
 * code: it holds one that is not known.  Reads shapes, not values. */
int resnet_recognize(const tensors *file, resnet_about *out);

/* The network for images of size x size. */
network_spec resnet_spec(const resnet_about *about, int size);

typedef struct resnet resnet;

/* The network on the device, with memory for `batch` images of size x size; the file may be closed
 * then.  Checks every tensor. */
int resnet_open(device *dev, const tensors *file, int size, int batch, resnet **out);
void resnet_close(resnet *r); /* NULL is fine */

/* Bytes of device memory that resnet_open takes, weights included. */
int resnet_bytes(device *dev, const resnet_about *about, int size, int batch, size_t *out);

/* Features [n,d] of n <= batch images [n,size,size,channels], normalized, both on the host: the
 * means over the last maps, not scaled.  Waits. */
int resnet_encode(resnet *r, const float *images, int n, float *features);

#endif
