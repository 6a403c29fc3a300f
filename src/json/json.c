/* json.c: see json.h. */
#include "json/json.h"

#include <stdlib.h>
#include <string.h>

json_t *json_put(json_t *object, const char *key, json_t *value) {
    if (object && value && !json_object_set(object, key, value)) return json_decref(value), object;
    json_decref(value);
    json_decref(object);
    return NULL;
}

json_t *json_push(json_t *array, json_t *value) {
    if (array && value && !json_array_append(array, value)) return json_decref(value), array;
    json_decref(value);
    json_decref(array);
    return NULL;
}

json_t *json_text(const char *text, bool *odd) {
    json_error_t why;
    json_t *out = json_pack_ex(&why, 0, "s", text); /* json_string does not say why it fails */
    *odd = !out && json_error_code(&why) == json_error_invalid_utf8;
    return out;
}

typedef struct growing {
    char *text;
    size_t n, room;
    bool failed; /* stays */
} growing;

static int add_text(const char *text, size_t n, void *user) {
    growing *g = user;
    if (!g->failed && g->room - g->n <= n) { /* one byte more for the NUL */
        size_t room = 2 * (g->room + n) + 1;
        char *more = realloc(g->text, room);
        if (more) g->text = more, g->room = room;
        g->failed = !more;
    }
    if (g->failed) return -1;
    memcpy(g->text + g->n, text, n);
    g->n += n;
    g->text[g->n] = 0;
    return 0;
}

char *json_write(const json_t *value, size_t flags) {
    growing g = {0};
    if (value && !json_dump_callback(value, add_text, &g, flags) && !g.failed) return g.text;
    free(g.text);
    return NULL;
}

/* jansson says nothing when memory is short, or calls the text wrong: that must happen twice. */
json_t *json_read(const char *text, bool *scarce) {
    json_t *out = NULL;
    *scarce = false;
    for (int attempt = 0; attempt < 2 && !out && !*scarce; attempt++) {
        json_error_t why;
        out = json_loads(text, 0, &why);
        *scarce = !out && (!why.text[0] || json_error_code(&why) == json_error_out_of_memory);
    }
    return out;
}
