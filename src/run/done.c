/* done.c: DONE, the last file of a finished run. */
#include "run/done.h"

#include "base/checksum.h"
#include "base/file.h"
#include "base/status.h"

int done_write(const char *folder) {
    /* what other calls read back; whoever does compares */
    static const char *const names[] = {"options.yaml",      "data.json",        "log.jsonl",
                                        "model.safetensors", "head.safetensors", "embeddings.npy",
                                        "centroids.npy",     "labels.csv"};
    int rc = 0;
    char path[4096];
    file_new f = {0};
    snprintf(path, sizeof path, "%s/DONE", folder);
    TRY(file_new_open(&f, path));
    fprintf(f.stream, "conr %s\n", CONR_VERSION);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        if (!file_is_gone(path)) TRY(checksum_line(f.stream, folder, names[i]));
    }
    TRY(file_new_commit(&f));
done:
    file_new_drop(&f);
    return rc;
}
