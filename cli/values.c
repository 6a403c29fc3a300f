/* values.c: see values.h. */
#include "values.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

json_t *json_merge(json_t *object, json_t *more) {
    if (object && more && !json_object_update_missing(object, more))
        return json_decref(more), object;
    json_decref(more);
    json_decref(object);
    return NULL;
}

json_t *json_name(const char *name) {
    json_error_t why;
    json_t *text = json_pack_ex(&why, 0, "s", name); /* json_string does not say why it fails */
    if (text || json_error_code(&why) != json_error_invalid_utf8) return text;
    size_t n = strlen(name);
    char *plain = malloc(n + 1);
    if (!plain) return NULL;
    for (size_t i = 0; i <= n; i++) plain[i] = (unsigned char)name[i] < 128 ? name[i] : '?';
    text = json_string(plain);
    free(plain);
    return text;
}

json_t *json_number(double x) { return isfinite(x) ? json_real(x) : json_null(); }
