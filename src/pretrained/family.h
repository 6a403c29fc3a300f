/* family.h: pretrained networks, as families: kinds of files that are recognized by the tensors they
 * hold.
 *
 *     encoder.c         the public calls: a file, what it is, features of images
 *     families.c        the list of families; a new one is a row there
 *     settings.c        KEY=VALUE over what the family knows
 *     vit*.c            vision transformers
 *     resnet_family.c   ResNets; the network is encoder/resnet.h
 *
 * A family knows its names, its network, and how its images are prepared. */
#ifndef CONR_PRETRAINED_FAMILY_H
#define CONR_PRETRAINED_FAMILY_H

#include "base/tensors.h"
#include "device/device.h"
#include "views/pixels.h"
#include "views/pixels_resize.h"

/* From an image to what the network sees. */
typedef struct preparation {
    int size;             /* pixels of a side */
    int side;             /* the short side is resized to it before the center is cut out; 0: the
                             image is squashed to size x size */
    pixels_filter filter; /* that resizes */
    pixels_norm norm;
} preparation;

typedef enum pooling { POOL_CLASS, POOL_MEAN, POOL_HEAD } pooling;

/* What the caller set; the rest has values that mean "as the family does it". */
typedef struct encoder_settings {
    int size;                     /* 0 */
    int side;                     /* -1 */
    int filter;                   /* -1 */
    bool has_mean, has_deviation; /* */
    float mean[3], deviation[3];  /* */
    int pool, gelu;               /* -1 */
    int heads;                    /* 0 */
} encoder_settings;

/* What a file is. */
typedef struct encoder_about {
    const char *family; /* "DINOv2"; static */
    const char *form;   /* whose names it has: "Hugging Face"; static */
    char network[64];   /* "ViT-S/14 with 4 registers" */
    preparation prepare;
    int unit;                /* the size is a multiple of it */
    int features;            /* d */
    const char *pool, *gelu; /* words of settings; NULL: there is no choice.  Static */
    int heads;               /* 0: none */
    size_t weights;          /* numbers */
} encoder_about;

typedef struct family {
    /* 1: the file is of this family, and *about says what it is, set: applied; 0: it is not; or a
     * CONR_E* code: it looks like it, but cannot be used. */
    int (*recognize)(const tensors *f, const encoder_settings *set, encoder_about *about);
    /* The network on the device, with memory for `batch` images.  The file may be closed then. */
    int (*open)(device *dev, const tensors *f, const encoder_settings *set, int batch, void **out);
    void (*close)(void *net); /* NULL is fine */
    /* The pixels of an image [size,size,3] in the order that `encode` takes; NULL: the same.  Called
     * by many threads. */
    void (*arrange)(const void *net, const float *image, float *out);
    /* Floats of an image that `arrange` writes; NULL: size*size*3. */
    size_t (*values)(const void *net);
    /* Features [n,d] of n <= batch images [n][values]; both on the host.  Waits. */
    int (*encode)(void *net, const float *images, int n, float *features);
} family;

/* The family of a file, and what it is; fails if there is none. */
int family_find(const tensors *f, const encoder_settings *set, const family **out,
                encoder_about *about);

/* settings.c.  texts: "KEY=VALUE", ended by NULL; may be NULL itself. */
int settings_parse(const char *const *texts, encoder_settings *out);
/* What was set of how images are prepared, over what the family does. */
int settings_prepare(const encoder_settings *set, preparation *p);
extern const char *const settings_pools[], *const settings_gelus[], *const settings_filters[];

/* ImageNet's mean and deviation, which most families use. */
extern const pixels_norm settings_imagenet;

extern const family family_vit, family_resnet;

#endif
