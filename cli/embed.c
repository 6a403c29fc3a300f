/* embed.c: conr embed: features of images, by a trained model. */
#include "cli.h"

#include "conr.h"
#include "data.h"
#include "progress.h"

#include <stdio.h>

static const flag flags[] = {
    {"out", "F.npy", NULL, "the file to write: float32 [n,d], rows of length 1"},
    DATA_FLAGS,
    {0},
};

static int run(const arguments *a) {
    const char *out = flag_text(a, "out");
    conr_images_options io;
    conr_images_info before;
    int threads, rc;
    if (!out) return usage_error("--out: is missing; give the file to write");
    if ((rc = data_options(a, &io)) || (rc = flag_int(a, "threads", 0, 1024, &threads))) return rc;
    conr *c = NULL;
    conr_model *model = NULL;
    conr_images *m = NULL;
    float *x = NULL;
    int64_t n, d;
    if (conr_open(flag_text(a, "device"), threads, &c) < 0) return library_error();
    progress_start(c, flag_on(a, "quiet"));
    if (conr_model_open(c, operand(a, 0), &model) < 0) {
        rc = library_error();
        goto done;
    }
    if ((rc = data_open(c, operand(a, 1), &io, &m)) ||
        (rc = data_refuse_output(out, operand(a, 0), m)))
        goto done;
    conr_images_about(m, &before);
    if (conr_embed(c, model, m, &x, &n, &d) < 0 || conr_write_floats(out, x, n, d) < 0) {
        rc = library_error();
        goto done;
    }
    data_warn(m, before.skipped);
    if (flag_on(a, "json"))
        rc = print_json(data_add_skipped(
            json_pack("{so sI sI}", "out", json_name(out), "n", (json_int_t)n, "d", (json_int_t)d),
            m));
    else if (!flag_on(a, "quiet"))
        fprintf(stderr, "%s: %lld images, %lld features each\n", out, (long long)n, (long long)d);
done:
    conr_free(x);
    conr_images_close(m);
    conr_model_close(model);
    conr_close(c);
    return rc;
}

const verb verb_embed = {
    .name = "embed",
    .operands = "RUN SRC --out F.npy",
    .summary = "Compute the features of images with a trained model",
    .text =
        "RUN is a run folder or a model.safetensors file.  Rows are in the order of the images;\n"
        "images that cannot be read are left out, with a warning.\n"
        "\nExample: conr embed runs/photos new-photos/ --out features.npy\n",
    .low = 2,
    .high = 2,
    .flags = flags,
    .run = run,
};
