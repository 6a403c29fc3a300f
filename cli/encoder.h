/* encoder.h: pretrained networks in place of a training: their flags, opening and describing them. */
#ifndef CLI_ENCODER_H
#define CLI_ENCODER_H

#include "cli.h"
#include "conr.h"

/* clang-format off */
#define ENCODER_FLAGS                                                                              \
    {"encoder", "W.safetensors", NULL, "take the features of this pretrained network: ViT, DINO, DINOv2, CLIP, SigLIP"}, \
    {"encoder-set", "KEY=VALUE...", NULL, "with --encoder: size, resize, filter, mean, deviation, pool, gelu, heads"}
/* clang-format on */

/* Refuses --encoder-set without a network, or without '='.  0, or EXIT_USAGE. */
int encoder_check_flags(const arguments *a, bool wanted);

/* Opens the file with what --encoder-set says and, unless --quiet, tells what it is.  0, or an exit
 * code after a message. */
int encoder_open(const arguments *a, conr *c, const char *path, conr_encoder **out);

/* conr info W.safetensors. */
int encoder_describe(const arguments *a, conr *c);

#endif
