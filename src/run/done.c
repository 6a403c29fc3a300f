/* done.c: DONE, the last file of a finished run. */
#include "run/done.h"

#include "base/checksum.h"
#include "base/file.h"
#include "base/status.h"

#include <stdio.h>

/* A run that went on has other clusters: decisions about the old ones do not apply to them. */
static void set_edits_aside(const char *folder) {
    char now[4096], old[4096];
    snprintf(now, sizeof now, "%s/edits.json", folder);
    snprintf(old, sizeof old, "%s/edits.previous.json", folder);
    if (file_is_gone(now)) return;
    rename(now, old);
    snprintf(now, sizeof now, "%s/untouched.csv", folder);
    remove(now);
}

int done_write(const char *folder) {
    /* what other calls read back; whoever does compares */
    static const char *const names[] = {"options.yaml",      "data.json",        "log.jsonl",
                                        "model.safetensors", "head.safetensors", "embeddings.npy",
                                        "centroids.npy",     "labels.csv"};
    int rc = 0;
    char path[4096];
    file_new f = {0};
    snprintf(path, sizeof path, "%s/DONE", folder);
    set_edits_aside(folder);
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
