/* export.c: a pretrained network as an ONNX file. */
#include "pretrained/export.h"

#include "base/checksum.h"
#include "base/lock.h"
#include "base/output.h"
#include "base/status.h"
#include "context/context.h"
#include "pretrained/encoder.h"

#include <string.h>

/* The settings that an open network writes down, taken apart. */
static int settings_of(const conr_encoder *e, encoder_settings *out) {
    enum { MOST = 16 };
    char text[sizeof e->settings], *rest = text;
    const char *list[MOST + 1] = {0};
    memcpy(text, e->settings, sizeof text);
    for (int n = 0; n < MOST && rest; n++) list[n] = strsep(&rest, " ");
    return settings_parse(list, out);
}

int conr_encoder_export(conr *c, const conr_encoder *e, const char *path) {
    int rc = 0;
    folder_lock lock = {0};
    tensors f = {0};
    encoder_settings set;
    uint64_t sum;
    const tensor_note note[] = {
        {"family", e->about.family}, {"encoder", e->about.network}, {"settings", e->settings}};
    int n = sizeof note / sizeof *note;
    TRY(output_check(path, e->path, NULL));
    TRY(folder_lock_beside(path, "options.yaml", &lock)); /* into the folder of a run */
    TRY(checksum_file(e->path, SIZE_MAX, &sum));
    if (sum != e->checksum)
        TRY(fail(CONR_EFORMAT, "%s: has changed since it was opened; open it again", e->path));
    TRY(settings_of(e, &set));
    TRY(tensors_open(e->path, &f));
    TRY(e->family == &family_vit ? vit_onnx(c->host, &f, &set, note, n, path)
                                 : resnet_onnx(c->host, &f, &set, note, n, path));
done:
    tensors_close(&f);
    folder_lock_drop(&lock);
    return rc;
}
