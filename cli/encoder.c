/* encoder.c: see encoder.h. */
#include "encoder.h"

#include "progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int encoder_check_flags(const arguments *a, bool wanted) {
    const char *pair;
    for (int i = 0; (pair = flag_nth(a, "encoder-set", i)); i++) {
        if (!wanted)
            return usage_error("--encoder-set: is for a pretrained network; give --encoder "
                               "W.safetensors, too");
        if (!strchr(pair, '='))
            return usage_error("--encoder-set %s: is not KEY=VALUE; write size=224", pair);
    }
    return EXIT_OK;
}

/* "prepared: short side to 256 pixels (bicubic), the center 224 x 224" */
static void print_preparation(FILE *f, const conr_encoder_info *i) {
    if (i->resize)
        fprintf(f, "short side to %d pixels (%s), the center %d x %d", i->resize, i->filter,
                i->size, i->size);
    else
        fprintf(f, "squashed to %d x %d pixels (%s)", i->size, i->size, i->filter);
    fprintf(f, "; mean %.4g %.4g %.4g, deviation %.4g %.4g %.4g", (double)i->mean[0],
            (double)i->mean[1], (double)i->mean[2], (double)i->deviation[0],
            (double)i->deviation[1], (double)i->deviation[2]);
}

int encoder_open(const arguments *a, conr *c, const char *path, conr_encoder **out) {
    const char **set;
    int n = 0;
    while (flag_nth(a, "encoder-set", n)) n++;
    set = calloc((size_t)n + 1, sizeof *set);
    if (!set) return failed("%s: out of memory; close other programs", path);
    for (int i = 0; i < n; i++) set[i] = flag_nth(a, "encoder-set", i);
    int code = conr_encoder_open(c, path, set, out);
    free(set);
    if (code < 0) return library_error();
    if (!flag_on(a, "quiet")) {
        conr_encoder_info i;
        conr_encoder_about(*out, &i);
        fprintf(stderr, "%s: %s, %s (%s names), %d features\nimages: ", path, i.family, i.network,
                i.form, i.features);
        print_preparation(stderr, &i);
        fputs("; change with --encoder-set\n", stderr);
    }
    return EXIT_OK;
}

static json_t *three(const float *x) {
    return json_pack("[fff]", (double)x[0], (double)x[1], (double)x[2]);
}

static int print_info(const char *path, const conr_encoder_info *i, bool json) {
    char sum[32];
    snprintf(sum, sizeof sum, "%016llx", (unsigned long long)i->checksum);
    if (json)
        return print_json(json_pack("{so ss ss ss ss sI si ss ss si si ss so so ss ss}", "encoder",
                                    json_name(path), "family", i->family, "names", i->form,
                                    "network", i->network, "type", i->type, "weights",
                                    (json_int_t)i->weights, "features", i->features, "pool",
                                    i->pool, "gelu", i->gelu, "size", i->size, "resize", i->resize,
                                    "filter", i->filter, "mean", three(i->mean), "deviation",
                                    three(i->deviation), "settings", i->settings, "checksum", sum));
    print_name(path);
    printf(": a pretrained network, %s\n  network  %s, %s names\n", i->family, i->network, i->form);
    printf("  weights  %.1f million, %s, checksum %s\n", (double)i->weights / 1e6, i->type, sum);
    printf("  images   ");
    print_preparation(stdout, i);
    printf("\n  features %d, by %s; GELU %s\n  settings", i->features,
           !strcmp(i->pool, "class")  ? "the class token"
           : !strcmp(i->pool, "mean") ? "the mean over the image"
                                      : "its head",
           i->gelu);
    printf(" %s\n", i->settings);
    return finish_output();
}

int encoder_describe(const arguments *a, conr *c) {
    conr_encoder *e;
    conr_encoder_info i;
    if (conr_encoder_open(c, operand(a, 0), NULL, &e) < 0) return library_error();
    conr_encoder_about(e, &i);
    int rc = print_info(operand(a, 0), &i, flag_on(a, "json"));
    conr_encoder_close(e);
    return rc;
}
