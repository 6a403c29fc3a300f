/* features.c: see features.h. */
#include "settings/features.h"

#include "base/file.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

static const option list[] = {OPTIONS_LIST(FEATURES_OPTIONS, features_options)};
enum { N_OPTIONS = sizeof list / sizeof *list };

void features_default(features_options *o) { options_default(OPTIONS_OF(list), o); }

void features_text(char out[OPTION_TEXT_SIZE], const char *text) {
    size_t n = strlen(text);
    if (n >= OPTION_TEXT_SIZE) text += n - OPTION_TEXT_SIZE + 1;
    snprintf(out, OPTION_TEXT_SIZE, "%s", text);
    bool plain = n < OPTION_TEXT_SIZE;
    features_options probe;
    features_default(&probe);
    if (plain && options_set(OPTIONS_OF(list), &probe, "from", out) == 0) return;
    for (char *c = out; *c; c++) /* cut in the middle of a character, or not UTF-8 */
        if ((unsigned char)*c >= 128 || (unsigned char)*c < ' ') *c = '?';
}

int features_write(const features_options *o, const char *path) {
    int rc = 0;
    file_new f = {0};
    TRY(file_new_open(&f, path));
    options_write_yaml(OPTIONS_OF(list), o, f.stream);
    TRY(file_new_commit(&f));
done:
    file_new_drop(&f);
    return rc;
}

/* Whether a line begins with the key. */
static bool has_source(const char *text) {
    static const char key[] = "source:";
    for (const char *at = text; at; at = strchr(at, '\n')) {
        if (*at == '\n') at++;
        if (!strncmp(at, key, sizeof key - 1)) return true;
    }
    return false;
}

int features_read(features_options *o, const char *path) {
    int rc = 0;
    file_bytes b = {0};
    features_default(o);
    TRY(file_read(path, 1 << 20, &b, NULL));
    b.data[b.n] = 0;
    if (!has_source((const char *)b.data)) goto done;
    TRY(options_read_yaml_text(OPTIONS_OF(list), o, path, (const char *)b.data, b.n));
    rc = 1;
done:
    file_bytes_free(&b);
    return rc;
}

bool features_at(const features_options *o, int i, const option **about,
                 char value[OPTION_TEXT_SIZE], char initial[OPTION_TEXT_SIZE]) {
    features_options usual;
    if (i < 0 || i >= N_OPTIONS) return false;
    features_default(&usual);
    *about = &list[i];
    options_get_text(OPTIONS_OF(list), o, list[i].key, value);
    options_get_text(OPTIONS_OF(list), &usual, list[i].key, initial);
    return true;
}

void features_as_training(const features_options *o, train_options *t) {
    memcpy(t->split, o->split, sizeof t->split);
    memcpy(t->classes, o->classes, sizeof t->classes);
    memcpy(t->labels, o->labels, sizeof t->labels);
    memcpy(t->version, o->version, sizeof t->version);
    memcpy(t->device, o->device, sizeof t->device);
    t->long_tail = o->long_tail;
    t->clusters = o->clusters;
    if (o->k > 0) t->k = o->k;
    if (o->k1 > 0) t->k1 = o->k1;
    if (o->k2 > 0) t->k2 = o->k2;
    if (o->alpha >= 0) t->alpha = o->alpha;
    if (o->layers >= 0) t->layers = o->layers;
    if (o->resymmetrize >= 0) t->resymmetrize = o->resymmetrize;
    t->restarts = o->restarts;
    t->seed = o->seed;
}
