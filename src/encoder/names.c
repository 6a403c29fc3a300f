/* names.c: see names.h. */
#include "encoder/names.h"

#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char OURS[] = "encoder.";

/* In this order: a file of conr may have heads whose names look like a prefix. */
static const char *const prefixes[] = {"encoder.", "", "resnet.", "module.", "model.", "backbone."};

/* Tensors that features do not need: heads of conr, classifiers of torchvision, timm and Hugging
 * Face. */
static const char *const ignored[] = {"projector.", "predictor.", "fc.", "classifier.", "head."};

static bool begins(const char *text, const char *with) {
    return !strncmp(text, with, strlen(with));
}

bool names_find(const tensors *file, encoder_names *out) {
    static const char *const needed[] = {"encoder.conv1.weight", "encoder.layer1.0.conv1.weight"};
    for (int hugging = 0; hugging < 2; hugging++)
        for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
            encoder_names names = {prefixes[i], hugging};
            char name[2][FULL_NAME];
            for (int k = 0; k < 2; k++) names_in_file(&names, needed[k], name[k]);
            if (!tensors_find(file, name[0]) || !tensors_find(file, name[1])) continue;
            *out = names;
            return true;
        }
    return false;
}

/* rest: a name of torchvision: "conv1.weight", "layer1.0.bn2.bias", "layer2.0.downsample.1.weight" */
static void hugging_face_name(const char *prefix, const char *rest, char out[FULL_NAME]) {
    int stage, block, number, length = 0;
    char kind[16];
    if (sscanf(rest, "layer%d.%d.%n", &stage, &block, &length) == 2 && length > 0) {
        rest += length, length = 0;
        int at =
            snprintf(out, FULL_NAME, "%sencoder.stages.%d.layers.%d.", prefix, stage - 1, block);
        size_t left = FULL_NAME - (size_t)at;
        if (sscanf(rest, "downsample.%d%n", &number, &length) == 1)
            snprintf(out + at, left, "shortcut.%s%s", number ? "normalization" : "convolution",
                     rest + length);
        else if (sscanf(rest, "%15[a-z]%d%n", kind, &number, &length) == 2)
            snprintf(out + at, left, "layer.%d.%s%s", number - 1,
                     strcmp(kind, "bn") ? "convolution" : "normalization", rest + length);
        return;
    }
    sscanf(rest, "%15[a-z]%d%n", kind, &number, &length); /* conv1, bn1 */
    snprintf(out, FULL_NAME, "%sembedder.embedder.%s%s", prefix,
             strcmp(kind, "bn") ? "convolution" : "normalization", rest + length);
}

void names_in_file(const encoder_names *names, const char *ours, char out[FULL_NAME]) {
    if (!begins(ours, OURS))
        snprintf(out, FULL_NAME, "%s", ours);
    else if (names->is_hugging_face)
        hugging_face_name(names->prefix, ours + strlen(OURS), out);
    else
        snprintf(out, FULL_NAME, "%s%s", names->prefix, ours + strlen(OURS));
}

/* ---- what else there is ---------------------------------------------------------------------- */

static bool is_ignored(const char *name) {
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        if (begins(name, ignored[i])) return true;
    return false;
}

/* Whether a tensor belongs to the encoder; the name without its last part is a layer's. */
static bool is_known(const encoder_names *names, const network *net, const char *name) {
    static const char *const fields[] = {"weight", "bias", "running_mean", "running_var",
                                         "num_batches_tracked"};
    for (int l = 0; l < net->encoder_end; l++) {
        const layer *x = &net->layer[l];
        for (int norm = 0; x->kind == LAYER_CONV && norm < 2; norm++) {
            char whole[FULL_NAME];
            names_in_file(names, norm ? x->norm_name : x->name, whole);
            size_t n = strlen(whole);
            if (strncmp(name, whole, n) || name[n] != '.') continue;
            for (int i = 0; i < (norm ? 5 : 1); i++)
                if (!strcmp(name + n + 1, fields[i])) return true;
        }
    }
    return false;
}

int names_check(const encoder_names *names, const tensors *file, const network *net) {
    const char *odd[2] = {NULL};
    int n = 0; /* one is named, two are many */
    for (int i = 0; i < file->n && n < 2; i++) {
        const char *name = file->tensor[i].name;
        if (!begins(name, names->prefix) || is_ignored(name + strlen(names->prefix)) ||
            is_ignored(name) || is_known(names, net, name))
            continue;
        odd[n++] = name;
    }
    if (n == 0) return 0;
    return fail(
        CONR_EFORMAT,
        "%s: its tensor '%.100s'%s not part of a %s; give a plain ResNet, or convert it with "
        "python -m conr.convert",
        file->path, odd[0], n > 1 ? " and others are" : " is", encoder_name(net->spec.encoder));
}
