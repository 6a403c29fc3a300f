/* share.c: see share.h.
 *
 * Found from where the program itself is, so that an installation can be moved: beside bin/ in
 * share/conr/ (make install, a package), or directly above (build/ of a checkout, bin/ of the Python
 * package). */
#include "share.h"

#include "text.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char *share_path(const char *name) {
    static const char *const places[] = {"../share/conr", ".."};
    char self[PATH_MAX], folder[PATH_MAX + 16];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0) return NULL;
    self[n] = 0;
    char *slash = strrchr(self, '/');
    if (!slash) return NULL;
    *slash = 0;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(folder, sizeof folder, "%s/%s", self, places[i]);
        char *path = path_in(folder, name), *plain = realpath(path, NULL);
        free(path);
        if (plain) return plain;
    }
    return NULL;
}

char *share_recipe(const char *name) {
    char file[NAME_MAX + 32];
    if (!*name || strchr(name, '/') || strlen(name) > NAME_MAX) return NULL;
    snprintf(file, sizeof file, "recipes/%s.yaml", name);
    return share_path(file);
}
