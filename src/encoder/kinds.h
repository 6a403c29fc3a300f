/* kinds.h: the encoders and stems there are, one line each.  Their names are settings, metadata of
 * model files and arguments of benchmarks; all of them come from here. */
#ifndef CONR_KINDS_H
#define CONR_KINDS_H

/* clang-format off */
/* X(id, name, its blocks, how many of them in each of the four stages); BAR stands between two lines.
 * Blocks are basic or bottlenecks: see network.c.  The small encoder has three stages. */
#define ENCODERS(X, BAR)                                   \
    X(RESNET18,  "resnet18",  basic,      2, 2, 2, 2)  BAR \
    X(RESNET34,  "resnet34",  basic,      3, 4, 6, 3)  BAR \
    X(RESNET50,  "resnet50",  bottleneck, 3, 4, 6, 3)  BAR \
    X(RESNET101, "resnet101", bottleneck, 3, 4, 23, 3) BAR \
    X(SMALL,     "small",     basic,      1, 1, 1, 0)

/* How images enter: X(id, name, kernel side of the convolution, its stride, whether a 3x3 max-pool
 * of stride 2 follows).  The small encoder has the small stem, the ResNets one of the others. */
#define STEMS(X, BAR)                     \
    X(CIFAR,    "cifar",    3, 1, false) BAR \
    X(IMAGENET, "imagenet", 7, 2, true)  BAR \
    X(SMALL,    "small",    3, 2, false)
/* clang-format on */

/* "resnet18|resnet34|...|small", "cifar|imagenet|small" */
#define KIND_NAME(id, name, ...) name
#define ENCODER_NAMES            ENCODERS(KIND_NAME, "|")
#define STEM_NAMES               STEMS(KIND_NAME, "|")

#endif
