/* export.c: conr export: a trained or a pretrained encoder, or the log of a run, for other
 * programs. */
#include "cli.h"

#include "conr.h"
#include "data.h"
#include "encoder.h"
#include "run.h"
#include "tensorboard.h"

#include <stdio.h>
#include <string.h>

static const flag flags[] = {
    {"out", "F", NULL, "the file to write; tensorboard: the folder"},
    {"format", "NAME", NULL, "onnx, safetensors or tensorboard; default: by the ending of --out"},
    {"projector", NULL, NULL, "safetensors: include the projector; ONNX always does"},
    {"encoder-set", "KEY=VALUE...", NULL,
     "of a pretrained network: size, resize, filter, mean, deviation, pool, gelu, heads"},
    {0},
};

static bool ends_in(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n > m && !strcmp(text + n - m, end);
}

/* The curves of a run, for TensorBoard. */
static int export_log(const arguments *a) {
    const char *out = flag_text(a, "out");
    long n;
    if (flag_on(a, "projector"))
        return usage_error("--projector: is for safetensors; leave it out with tensorboard");
    int rc = tensorboard_write(operand(a, 0), out, &n);
    if (rc != EXIT_OK) return rc;
    if (flag_on(a, "json"))
        return print_json(json_pack("{so ss sI}", "out", json_name(out), "format", "tensorboard",
                                    "values", (json_int_t)n));
    if (!flag_on(a, "quiet"))
        fprintf(stderr, "%s: %ld values; tensorboard --logdir %s\n", out, n, out);
    return EXIT_OK;
}

/* A pretrained network. */
static int export_encoder(const arguments *a, const char *format, int threads) {
    const char *out = flag_text(a, "out"), *file = operand(a, 0);
    conr *c = NULL;
    conr_encoder *e = NULL;
    conr_encoder_info i;
    int rc;
    if (strcmp(format, "onnx"))
        return usage_error("--format %s: %s is a safetensors file already; use it as it is", format,
                           file);
    if (flag_on(a, "projector"))
        return usage_error("--projector: a pretrained network has none; leave it out");
    if (conr_open("cpu", threads, &c) < 0) return library_error();
    if ((rc = encoder_open(a, c, file, &e))) goto done;
    if (conr_encoder_export(c, e, out) < 0) {
        rc = library_error();
        goto done;
    }
    conr_encoder_about(e, &i);
    if (flag_on(a, "json"))
        rc = print_json(json_pack("{so ss ss si si si ss}", "out", json_name(out), "format", format,
                                  "encoder", i.network, "size", i.size, "channels", 3, "features",
                                  i.features, "settings", i.settings));
    else if (!flag_on(a, "quiet"))
        fprintf(stderr, "%s: images [N,3,%d,%d] in [0,1] -> features [N,%d]\n", out, i.size, i.size,
                i.features);
done:
    conr_encoder_close(e);
    conr_close(c);
    return rc;
}

static int run(const arguments *a) {
    const char *out = flag_text(a, "out"), *format = flag_text(a, "format");
    int threads, rc = EXIT_OK;
    if (!out) return usage_error("--out: is missing; give the file to write");
    if (!format)
        format = ends_in(out, ".onnx")          ? "onnx"
                 : ends_in(out, ".safetensors") ? "safetensors"
                                                : NULL;
    if (!format) return usage_error("--format: is missing; give onnx, safetensors or tensorboard");
    if (!strcmp(format, "tensorboard")) return export_log(a);
    if (strcmp(format, "onnx") && strcmp(format, "safetensors"))
        return usage_error("--format %s: no such format; give onnx, safetensors or tensorboard",
                           format);
    if ((rc = flag_int(a, "threads", 0, 1024, &threads)) ||
        (rc = data_refuse_output(out, operand(a, 0), NULL)))
        return rc;
    bool pretrained = conr_is_encoder(operand(a, 0));
    if ((rc = encoder_check_flags(a, pretrained))) return rc;
    if (pretrained) return export_encoder(a, format, threads);
    conr_model *model = NULL;
    conr_model_info i;
    conr *c = NULL;
    if (conr_open("cpu", threads, &c) < 0 || conr_model_open(c, operand(a, 0), &model) < 0 ||
        conr_export(model, format, flag_on(a, "projector"), out) < 0) {
        rc = library_error();
        goto done;
    }
    conr_model_about(model, &i);
    if (flag_on(a, "json"))
        rc = print_json(json_pack("{so ss ss si si si}", "out", json_name(out), "format", format,
                                  "encoder", i.encoder, "size", i.size, "channels", i.channels,
                                  "features", i.features));
    else if (!flag_on(a, "quiet") && !strcmp(format, "onnx"))
        fprintf(stderr, "%s: images [N,%d,%d,%d] in [0,1] -> features [N,%d]\n", out, i.channels,
                i.size, i.size, i.features);
    else if (!flag_on(a, "quiet"))
        fprintf(stderr, "%s: %s, named as in torchvision\n", out, i.encoder);
done:
    conr_model_close(model);
    conr_close(c);
    return rc;
}

const verb verb_export = {
    .name = "export",
    .operands = "RUN --out F.onnx|F.safetensors | W.safetensors --out F.onnx | RUN --format "
                "tensorboard --out DIR",
    .summary = "Export the encoder (ONNX, torchvision), or the curves (TensorBoard)",
    .text =
        "  onnx         takes images [N,channels,size,size] with values in [0,1] (normalization\n"
        "               is included); gives `features`, as conr embed does, and `encoder`, the\n"
        "               output before the projector\n"
        "  safetensors  weights named as in torchvision's ResNets;\n"
        "               docs/export.md shows how to load them\n"
        "  tensorboard  the numbers of log.jsonl over the steps, as an event file in a folder;\n"
        "               also of a training that is still running\n"
        "\nA pretrained network (ResNet, ViT, DINO, DINOv2, CLIP, SigLIP) becomes ONNX for the "
        "size\n"
        "that it is used with; its `encoder` are the features before they are scaled.\n"
        "\nExample: conr export runs/photos --out photos.onnx\n"
        "         conr export dinov2.safetensors --out dinov2.onnx\n"
        "         conr export runs/photos --format tensorboard --out tb/photos\n",
    .low = 1,
    .high = 1,
    .flags = flags,
    .run = run,
};
