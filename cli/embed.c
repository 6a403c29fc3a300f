/* embed.c: conr embed: features of images by a trained model or a pretrained network, or of features
 * by the head of a run. */
#include "cli.h"

#include "conr.h"
#include "data.h"
#include "encoder.h"
#include "progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const flag flags[] = {
    {"out", "F.npy", NULL, "the file to write: float32 [n,d], rows of length 1"},
    ENCODER_FLAGS,
    DATA_FLAGS,
    {0},
};

static int print_result(const arguments *a, const conr_images *m, int64_t n, int64_t d) {
    const char *out = flag_text(a, "out");
    if (flag_on(a, "json")) {
        json_t *o =
            json_pack("{so sI sI}", "out", json_name(out), "n", (json_int_t)n, "d", (json_int_t)d);
        return print_json(m ? data_add_skipped(o, m) : o);
    }
    if (!flag_on(a, "quiet"))
        fprintf(stderr, "%s: %lld %s, %lld features each\n", out, (long long)n,
                m ? "images" : "rows", (long long)d);
    return EXIT_OK;
}

/* By a model, a run that takes images, or a pretrained network (the others are NULL).  file: what it
 * is read from. */
static int embed_images(const arguments *a, conr *c, const char *file, const char *src,
                        const conr_model *model, conr_clustering *k, conr_encoder *e) {
    const char *out = flag_text(a, "out");
    conr_images_options io;
    conr_images_info before;
    conr_clustering_info info;
    conr_images *m = NULL;
    float *x = NULL;
    int64_t n, d;
    int rc, code;
    if ((rc = data_options(a, &io)) || (rc = data_open(c, src, &io, &m)) ||
        (rc = data_refuse_output(out, file, m)))
        goto done;
    conr_images_about(m, &before);
    if (model) {
        code = conr_embed(c, model, m, &x, &n, &d);
    } else if (e) {
        code = conr_encode(c, e, m, &x, &n, &d);
    } else {
        code = conr_clustering_images(c, k, m, &x, &n);
        conr_clustering_about(k, &info);
        d = info.width;
    }
    if (code < 0 || conr_write_floats(out, x, n, d) < 0) {
        rc = library_error();
        goto done;
    }
    data_warn(m, before.skipped);
    rc = print_result(a, m, n, d);
done:
    conr_free(x);
    conr_images_close(m);
    return rc;
}

static int embed_features(const arguments *a, conr *c, const conr_clustering *k) {
    const char *out = flag_text(a, "out");
    conr_clustering_info info;
    float *x = NULL;
    int64_t n;
    int rc;
    conr_clustering_about(k, &info);
    if ((rc = data_refuse_output(out, operand(a, 1), NULL)) ||
        (rc = data_embed_features(c, k, operand(a, 0), operand(a, 1), &x, &n)))
        return rc;
    if (conr_write_floats(out, x, n, info.width) < 0)
        rc = library_error();
    else
        rc = print_result(a, NULL, n, info.width);
    free(x);
    return rc;
}

static int embed_encoder(const arguments *a, conr *c, const char *file, const char *src) {
    conr_encoder *e;
    int rc = encoder_open(a, c, file, &e);
    if (rc) return rc;
    rc = embed_images(a, c, file, src, NULL, NULL, e);
    conr_encoder_close(e);
    return rc;
}

static int embed(const arguments *a, conr *c) {
    conr_model *model = NULL;
    conr_clustering *k = NULL;
    conr_clustering_info info;
    int rc, made = conr_is_features_run(operand(a, 0));
    if (made < 0 || (made ? conr_clustering_open(c, operand(a, 0), &k)
                          : conr_model_open(c, operand(a, 0), &model)) < 0)
        return library_error();
    if (k) conr_clustering_about(k, &info);
    if (flag_on(a, "encoder") && !k)
        rc = usage_error("--encoder: is for a run of a pretrained network; leave it out, or leave "
                         "out %s",
                         operand(a, 0));
    else if (flag_on(a, "encoder") && conr_clustering_set_encoder(k, flag_text(a, "encoder")) < 0)
        rc = library_error();
    else if (k && !strcmp(info.takes, "features"))
        rc = embed_features(a, c, k);
    else
        rc = embed_images(a, c, operand(a, 0), operand(a, 1), model, k, NULL);
    conr_clustering_close(k);
    conr_model_close(model);
    return rc;
}

static int run(const arguments *a) {
    conr_images_options io; /* mistakes are reported first */
    conr *c = NULL;
    int threads, rc;
    if (!flag_text(a, "out")) return usage_error("--out: is missing; give the file to write");
    if ((rc = data_options(a, &io)) || (rc = flag_int(a, "threads", 0, 1024, &threads))) return rc;
    bool one = operand_count(a) == 1, file = !one && conr_is_encoder(operand(a, 0));
    if (one && !flag_on(a, "encoder"))
        return usage_error("SRC: is missing; give RUN and SRC, or SRC and --encoder W.safetensors");
    if (file && flag_on(a, "encoder"))
        return usage_error("--encoder: %s is a network already; leave it out", operand(a, 0));
    if ((rc = encoder_check_flags(a, one || file))) return rc;
    if (conr_open(flag_text(a, "device"), threads, &c) < 0) return library_error();
    progress_start(c, flag_on(a, "quiet"));
    rc = one    ? embed_encoder(a, c, flag_text(a, "encoder"), operand(a, 0))
         : file ? embed_encoder(a, c, operand(a, 0), operand(a, 1))
                : embed(a, c);
    conr_close(c);
    return rc;
}

const verb verb_embed = {
    .name = "embed",
    .operands = "RUN SRC|F.npy --out F.npy | SRC --encoder W.safetensors --out F.npy",
    .summary = "Compute the features of images with a trained model",
    .text =
        "RUN is a run folder or a model.safetensors file.  Rows are in the order of the images;\n"
        "images that cannot be read are left out, with a warning.\n"
        "RUN@EPOCH embeds with the checkpoint that a training kept of that epoch (keep_every).\n"
        "A run made from features takes features, and gives them as its head does.\n"
        "With --encoder, or W.safetensors in place of RUN, they are those of a pretrained "
        "network.\n"
        "\nExample: conr embed runs/photos new-photos/ --out features.npy\n"
        "         conr embed runs/photos@800 photos/ --out stage1.npy\n"
        "         conr embed photos/ --encoder dinov2.safetensors --out dinov2.npy\n",
    .low = 1,
    .high = 2,
    .flags = flags,
    .run = run,
};
