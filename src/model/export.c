/* export.c: conr_export; safetensors for torchvision. */
#include "model/export.h"

#include "base/lock.h"
#include "base/status.h"

#include <stdio.h>
#include <string.h>

/* Encoder names lose their prefix, which torchvision's state_dict does not have. */
static int export_safetensors(const conr_model *m, bool projector, const char *path) {
    static const char prefix[] = "encoder.";
    int rc = 0, n;
    arena memory = {0};
    tensor *list;
    conr_model_info about;
    char width[16], size[16], channels[16], mean[64], deviation[64];
    const float *a = m->norm.mean, *b = m->norm.deviation;
    conr_model_about(m, &about);
    snprintf(width, sizeof width, "%d", m->net.spec.width);
    snprintf(size, sizeof size, "%d", about.size);
    snprintf(channels, sizeof channels, "%d", about.channels);
    snprintf(mean, sizeof mean, "%.9g %.9g %.9g", a[0], a[1], a[2]);
    snprintf(deviation, sizeof deviation, "%.9g %.9g %.9g", b[0], b[1], b[2]);
    /* loaders of torch tensors look for "pt" */
    const tensor_note note[] = {{"format", "pt"},           {"producer", "conr " CONR_VERSION},
                                {"encoder", about.encoder}, {"stem", model_stem(m)},
                                {"width", width},           {"size", size},
                                {"channels", channels},     {"mean", mean},
                                {"deviation", deviation}};
    TRY(network_tensors(&m->net, PART_ENCODER | (projector ? PART_PROJECTOR : 0), m->w, m->running,
                        &memory, &list, &n));
    for (int i = 0; i < n; i++)
        if (!strncmp(list[i].name, prefix, sizeof prefix - 1)) list[i].name += sizeof prefix - 1;
    TRY(tensors_write(path, list, n, note, sizeof note / sizeof *note));
done:
    arena_free(&memory);
    return rc;
}

int conr_export(const conr_model *m, const char *format, int projector, const char *path) {
    int rc = 0;
    folder_lock lock = {0};
    bool onnx = !strcmp(format, "onnx");
    if (!onnx && strcmp(format, "safetensors"))
        TRY(fail(CONR_EINVAL, "format %s: no such format; use onnx or safetensors", format));
    TRY(folder_lock_beside(path, "options.yaml", &lock)); /* into the folder of a run */
    TRY(onnx ? export_onnx(m, path) : export_safetensors(m, projector != 0, path));
done:
    folder_lock_drop(&lock);
    return rc;
}
