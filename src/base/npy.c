/* npy.c: the .npy format: magic, version, header length, a Python dict as text, then the elements.
 *
 * Owns the grammar of the header, byte order, Fortran order and the conversion of elements to float
 * or int64.  The header is parsed as NumPy writes it (all versions, also under Python 2), not as
 * Python would evaluate it; anything that NumPy cannot have written is refused.  Files are left to
 * file.c. */
#include "base/npy.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "base/status.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are copied as little-endian");

static const char magic[6] = {'\x93', 'N', 'U', 'M', 'P', 'Y'};

enum { VERSION_1_BYTES = 10 }; /* magic, version, 2 bytes of length; from version 2 on, 4 bytes */

bool npy_count(const int64_t *dim, int n_dims, size_t size, size_t *count) {
    int64_t bytes = (int64_t)size; /* with 0 counted as 1 */
    *count = 1;
    for (int i = 0; i < n_dims; i++) {
        if (__builtin_mul_overflow(bytes, dim[i] ? dim[i] : 1, &bytes)) return false;
        *count *= (size_t)dim[i];
    }
    return bytes <= PTRDIFF_MAX;
}

static bool is_known(char kind, int size) {
    switch (kind) {
    case 'f': return size == 2 || size == 4 || size == 8;
    case 'i':
    case 'u': return size == 1 || size == 2 || size == 4 || size == 8;
    case 'b': return size == 1;
    default: return false;
    }
}

/* ---- the header ------------------------------------------------------------------------------ */

/* The text of the header, not ended by a NUL, and the position in it. */
typedef struct cursor {
    const char *name; /* of the file, for messages */
    const char *start, *at, *end;
} cursor;

static int fail_header(const cursor *c, const char *expected) {
    return fail(CONR_EFORMAT, "%s: expected %s at byte %td of the .npy header; %s", c->name,
                expected, c->at - c->start, "write the file again with numpy.save");
}

static void skip_spaces(cursor *c) {
    while (c->at < c->end && strchr(" \t\r\n", *c->at) && *c->at) c->at++;
}

/* Reads spaces and this character, or nothing but spaces. */
static bool accept(cursor *c, char wanted) {
    skip_spaces(c);
    if (c->at == c->end || *c->at != wanted) return false;
    c->at++;
    return true;
}

static bool accept_word(cursor *c, const char *word) {
    size_t n = strlen(word);
    skip_spaces(c);
    if ((size_t)(c->end - c->at) < n || memcmp(c->at, word, n)) return false;
    c->at += n;
    return true;
}

/* A quoted text of printable ASCII without escapes; longer ones are cut, as none is valid. */
static int read_quoted(cursor *c, char out[32]) {
    char quote = accept(c, '\'') ? '\'' : accept(c, '"') ? '"' : 0;
    if (!quote) return fail_header(c, "quoted text");
    size_t n = 0;
    for (; c->at < c->end && *c->at != quote; c->at++) {
        if (*c->at < ' ' || *c->at > '~' || *c->at == '\\') return fail_header(c, "plain text");
        if (n < 31) out[n++] = *c->at;
    }
    out[n] = 0;
    return accept(c, quote) ? 0 : fail_header(c, "the end of the quoted text");
}

static const char *refused_kind(char kind) {
    switch (kind) {
    case 'O': return "Python objects";
    case 'S':
    case 'a':
    case 'U': return "text";
    case 'c': return "complex numbers";
    case 'M':
    case 'm': return "dates";
    case 'V': return "raw bytes";
    case 'f':
    case 'i':
    case 'u':
    case 'b': return "numbers of an unsupported size";
    default: return "elements of an unknown kind";
    }
}

/* "<f4": byte order, kind, bytes.  One byte has no order, which NumPy writes as '|'. */
static int read_type(cursor *c, npy *out, bool *big_endian) {
    int rc = 0;
    char type[32] = {0};
    if (accept(c, '['))
        TRY(fail(CONR_EFORMAT, "%s: holds records of several fields (a structured dtype); %s",
                 c->name, "save one field of it as a plain array"));
    TRY(read_quoted(c, type));
    char order = type[0], kind = type[1];
    int size = kind && type[2] && !type[3] ? type[2] - '0' : 0;
    if (!order || !strchr("<>|", order)) TRY(fail_header(c, "a type such as '<f4'"));
    if (!is_known(kind, size) || (order == '|' && size > 1))
        TRY(fail(CONR_EFORMAT, "%s: holds %s (dtype '%s'); save it as float32 or as integers",
                 c->name, refused_kind(kind), type));
    out->kind = kind;
    out->size = size;
    *big_endian = order == '>';
done:
    return rc;
}

static int read_truth(cursor *c, bool *out) {
    *out = accept_word(c, "True");
    return *out || accept_word(c, "False") ? 0 : fail_header(c, "True or False");
}

static int read_size(cursor *c, int64_t *out) {
    skip_spaces(c);
    const char *first = c->at;
    *out = 0;
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++)
        if (__builtin_mul_overflow(*out, 10, out) ||
            __builtin_add_overflow(*out, *c->at - '0', out))
            return fail_header(c, "a size below 2^63");
    if (c->at == first) return fail_header(c, "a size, 0 or more,");
    if (c->at < c->end && *c->at == 'L') c->at++; /* NumPy under Python 2 */
    return 0;
}

/* "()", "(3,)", "(3, 4)", "(3, 4,)"; not "(3)", which is not a tuple. */
static int read_shape(cursor *c, npy *out) {
    int rc = 0;
    if (!accept(c, '(')) TRY(fail_header(c, "a shape such as (3, 4)"));
    out->n_dims = 0;
    while (!accept(c, ')')) {
        if (out->n_dims == NPY_DIMS)
            TRY(fail(CONR_EFORMAT, "%s: has more than %d dimensions; reshape it", c->name,
                     NPY_DIMS));
        TRY(read_size(c, &out->dim[out->n_dims++]));
        bool comma = accept(c, ',');
        if (!comma && (out->n_dims == 1 || c->at == c->end || *c->at != ')'))
            TRY(fail_header(c, "a comma in the shape"));
    }
done:
    return rc;
}

/* Fills kind, size and dim. */
static int read_header(cursor *c, npy *out, bool *big_endian, bool *fortran) {
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    int rc = 0, n_read = 0;
    bool seen[3] = {false};
    if (!accept(c, '{')) TRY(fail_header(c, "'{'"));
    while (!accept(c, '}')) {
        char text[32];
        int key = 0;
        TRY(read_quoted(c, text));
        while (key < 3 && strcmp(text, keys[key])) key++;
        if (key == 3 || seen[key])
            TRY(fail_header(c, "descr, fortran_order and shape, once each,"));
        seen[key] = true;
        if (!accept(c, ':')) TRY(fail_header(c, "':'"));
        switch (key) {
        case 0: TRY(read_type(c, out, big_endian)); break;
        case 1: TRY(read_truth(c, fortran)); break;
        case 2: TRY(read_shape(c, out)); break;
        }
        n_read++;
        if (!accept(c, ',') && (c->at == c->end || *c->at != '}')) TRY(fail_header(c, "','"));
    }
    if (n_read < 3) TRY(fail_header(c, "descr, fortran_order and shape"));
    skip_spaces(c);
    if (c->at < c->end) TRY(fail_header(c, "the end"));
done:
    return rc;
}

/* Magic, version and length, each checked before the next is used. */
static int find_header(const char *name, const unsigned char *bytes, size_t n, cursor *out) {
    if (n < sizeof magic || memcmp(bytes, magic, sizeof magic))
        return fail(CONR_EFORMAT, "%s: is %s; write it with numpy.save", name,
                    n ? "not a .npy file" : "empty, not a .npy file");
    if (n < VERSION_1_BYTES)
        return fail(CONR_EFORMAT, "%s: ends within its header; was it cut short?", name);
    int version = bytes[6];
    if (version < 1 || version > 3 || bytes[7] != 0)
        return fail(CONR_EFORMAT, "%s: has .npy version %d.%d; save it as version 1.0, 2.0 or 3.0",
                    name, version, bytes[7]);
    size_t start = version == 1 ? VERSION_1_BYTES : VERSION_1_BYTES + 2;
    size_t length = (size_t)bytes[8] | (size_t)bytes[9] << 8;
    if (version > 1 && n >= start) length |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
    if (n < start || n - start < length)
        return fail(CONR_EFORMAT, "%s: ends within its header; was it cut short?", name);
    const char *text = (const char *)bytes + start;
    *out = (cursor){name, text, text, text + length};
    return 0;
}

/* ---- the elements ---------------------------------------------------------------------------- */

/* in: the first index varies fastest; out: the last does.  Both: [count], of a->size bytes. */
static void copy_fortran(const npy *a, const unsigned char *in, unsigned char *out) {
    size_t size = (size_t)a->size, from = 0, stride[NPY_DIMS];
    int64_t index[NPY_DIMS] = {0};
    for (int k = 0; k < a->n_dims; k++) stride[k] = k ? stride[k - 1] * (size_t)a->dim[k - 1] : 1;
    for (size_t i = 0; i < a->count; i++) {
        memcpy(out + i * size, in + from * size, size);
        for (int k = a->n_dims - 1; k >= 0; k--) {
            from += stride[k];
            if (++index[k] < a->dim[k]) break;
            from -= stride[k] * (size_t)a->dim[k];
            index[k] = 0;
        }
    }
}

static void swap_bytes(unsigned char *data, size_t count, int size) {
    for (size_t i = 0; i < count; i++, data += size)
        for (int low = 0, high = size - 1; low < high; low++, high--) {
            unsigned char b = data[low];
            data[low] = data[high];
            data[high] = b;
        }
}

/* What the header says about the elements. */
typedef struct npy_form {
    bool big_endian, fortran;
    size_t data; /* offset of the elements in the file */
} npy_form;

/* Everything but the elements.  bytes: the first n bytes of a file of `size`; the whole header must
 * be among them. */
static int read_form(const char *name, const unsigned char *bytes, size_t n, size_t size, npy *out,
                     npy_form *form) {
    int rc = 0;
    cursor c = {0};
    *out = (npy){0};
    *form = (npy_form){0};
    TRY(find_header(name, bytes, n, &c));
    TRY(read_header(&c, out, &form->big_endian, &form->fortran));
    if (!npy_count(out->dim, out->n_dims, (size_t)out->size, &out->count))
        TRY(fail(CONR_EFORMAT, "%s: its shape is larger than any memory; is the file damaged?",
                 name));
    form->data = (size_t)((const unsigned char *)c.end - bytes);
    size_t have = size - form->data, need = out->count * (size_t)out->size;
    if (have != need)
        TRY(fail(CONR_EFORMAT, "%s: has %zu bytes of data, expected %zu; %s", name, have, need,
                 have < need ? "was it cut short?" : "save one array to one file"));
done:
    return rc;
}

int npy_parse(const char *name, const unsigned char *bytes, size_t n, npy *out) {
    int rc = 0;
    npy_form form;
    TRY(read_form(name, bytes, n, n, out, &form));
    out->data = memory_new(name, out->count, (size_t)out->size);
    if (!out->data) TRY(CONR_ENOMEM);
    if (form.fortran)
        copy_fortran(out, bytes + form.data, out->data);
    else
        memcpy(out->data, bytes + form.data, out->count * (size_t)out->size);
    if (form.big_endian) swap_bytes(out->data, out->count, out->size);
done:
    if (rc < 0) npy_free(out);
    return rc;
}

/* The bytes up to the end of the header, or all of a shorter or damaged file.  *out: freed by the
 * caller. */
static int read_beginning(const file_reader *file, const char *path, unsigned char **out,
                          size_t *n) {
    int rc = 0;
    unsigned char head[VERSION_1_BYTES + 2] = {0};
    *n = file->size < sizeof head ? file->size : sizeof head;
    TRY(file_reader_read(file, path, 0, *n, head));
    size_t length = sizeof head + ((size_t)head[8] | (size_t)head[9] << 8);
    if (head[6] > 1) length += (size_t)head[10] << 16 | (size_t)head[11] << 24;
    bool ours = *n >= VERSION_1_BYTES && !memcmp(head, magic, sizeof magic);
    if (ours) *n = length < file->size ? length : file->size;
    *out = memory_new(path, *n + 1, 1);
    if (!*out) TRY(CONR_ENOMEM);
    TRY(file_reader_read(file, path, 0, *n, *out));
done:
    return rc;
}

int npy_head(const file_reader *file, const char *path, npy *out, size_t *data) {
    int rc = 0;
    unsigned char *head = NULL;
    size_t n;
    npy_form form;
    *out = (npy){0};
    TRY(read_beginning(file, path, &head, &n));
    TRY(read_form(path, head, n, file->size, out, &form));
    *data = form.fortran || form.big_endian ? 0 : form.data;
done:
    free(head);
    return rc;
}

int npy_is(const char *path, bool *out) {
    file_bytes file;
    int rc = file_read(path, sizeof magic, &file, NULL);
    if (rc < 0) return rc;
    *out = file.n == sizeof magic && !memcmp(file.data, magic, sizeof magic);
    file_bytes_free(&file);
    return rc;
}

int npy_read(const char *path, npy *out) {
    int rc = 0;
    size_t data, size;
    file_reader file;
    unsigned char *bytes = NULL;
    *out = (npy){0};
    TRY(file_reader_open(path, &file));
    TRY(npy_head(&file, path, out, &data));
    size = out->count * (size_t)out->size;
    if (data) { /* as we want it: straight into its place */
        out->data = memory_new(path, out->count, (size_t)out->size);
        if (!out->data) TRY(CONR_ENOMEM);
        TRY(file_reader_read(&file, path, data, size, out->data));
    } else {
        bytes = memory_new(path, file.size, 1);
        if (!bytes) TRY(CONR_ENOMEM);
        TRY(file_reader_read(&file, path, 0, file.size, bytes));
        TRY(npy_parse(path, bytes, file.size, out));
    }
done:
    file_reader_close(&file);
    free(bytes);
    if (rc < 0) npy_free(out);
    return rc;
}

void npy_free(npy *a) {
    free(a->data);
    *a = (npy){0};
}

/* ---- conversions ----------------------------------------------------------------------------- */

/* IEEE half: 1 bit sign, 5 exponent, 10 fraction.  Exact, NaN payloads included. */
static float float_of_half(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31,
             fraction = half & 1023, bits;
    float value;
    if (exponent == 0) { /* zero and subnormals: fraction * 2^-24 */
        value = (float)fraction * 0x1p-24f;
        return sign ? -value : value;
    }
    bits = sign | (exponent == 31 ? 255 : exponent + 127 - 15) << 23 | fraction << 13;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#define TYPE(kind, size) ((kind) << 8 | (size))

/* One case of a switch over TYPE: out[i] = to(v), where v is the i-th element. */
#define CASE_EACH(kind, type, to)                                                                  \
    case TYPE(kind, (int)sizeof(type)):                                                            \
        for (size_t i = 0; i < count; i++) {                                                       \
            type v;                                                                                \
            memcpy(&v, (const char *)in + i * sizeof v, sizeof v);                                 \
            out[i] = to(v);                                                                        \
        }                                                                                          \
        break;
#define CASE_INTEGERS(to)                                                                          \
    CASE_EACH('i', int8_t, to)                                                                     \
    CASE_EACH('i', int16_t, to)                                                                    \
    CASE_EACH('i', int32_t, to)                                                                    \
    CASE_EACH('i', int64_t, to)                                                                    \
    CASE_EACH('u', uint8_t, to)                                                                    \
    CASE_EACH('u', uint16_t, to)                                                                   \
    CASE_EACH('u', uint32_t, to)                                                                   \
    CASE_EACH('u', uint64_t, to)

void npy_floats(char kind, int size, const void *in, size_t count, float *out) {
    switch (TYPE(kind, size)) {
        CASE_EACH('f', uint16_t, float_of_half)
        CASE_EACH('f', float, (float))
        CASE_EACH('f', double, (float))
        CASE_EACH('b', uint8_t, !!)
        CASE_INTEGERS((float))
    default: ASSERT(is_known(kind, size));
    }
}

static void to_int64(char kind, int size, const void *in, size_t count, int64_t *out) {
    switch (TYPE(kind, size)) {
        CASE_INTEGERS((int64_t))
    default: ASSERT(kind == 'i' || kind == 'u');
    }
}

enum { PART_BYTES = 4 << 20 }; /* read at a time */

/* Whether an array can be features. */
static int check_features(const char *path, const npy *a) {
    if (a->kind == 'b')
        return fail(CONR_EINVAL,
                    "%s: holds booleans, features are floats or integers; save it as float32",
                    path);
    if (a->n_dims < 1 || a->n_dims > 2)
        return fail(CONR_EINVAL, "%s: has %d dimensions, features have 2, [n,d]; reshape it", path,
                    a->n_dims);
    return 0;
}

int npy_read_features(const char *path, float **out, int64_t *n, int64_t *d) {
    int rc = 0;
    npy a = {0};
    float *values = NULL;
    TRY(npy_read(path, &a));
    TRY(check_features(path, &a));
    int64_t columns = a.n_dims == 2 ? a.dim[1] : 1;
    if (a.kind == 'f' && a.size == 4) { /* not copied: features may fill half the memory */
        values = a.data;
        a.data = NULL;
    } else {
        values = memory_new(path, a.count, sizeof *values);
        if (!values) TRY(CONR_ENOMEM);
        npy_floats(a.kind, a.size, a.data, a.count, values);
    }
    TRY(numbers_check(path, values, a.dim[0], columns));
    *out = values;
    *n = a.dim[0];
    *d = columns;
    values = NULL;
done:
    free(values);
    npy_free(&a);
    return rc;
}

/* The rows of a part that were read with all others. */
static int keep_part(int part, int parts, float **rows, int64_t *n, int64_t d, int64_t total) {
    int64_t first = total * part / parts;
    *n = total * (part + 1) / parts - first;
    memmove(*rows, *rows + first * d, (size_t)(*n * d) * sizeof **rows);
    float *less = realloc(*rows, (size_t)(*n * d) * sizeof **rows);
    if (less) *rows = less;
    return 0;
}

int npy_read_features_part(const char *path, int part, int parts, float **out, int64_t *n,
                           int64_t *d, int64_t *total) {
    int rc = 0;
    size_t at;
    npy a = {0};
    float *values = NULL;
    char *bytes = NULL;
    file_reader file = {.fd = -1};
    TRY(file_reader_open(path, &file));
    TRY(npy_head(&file, path, &a, &at));
    TRY(check_features(path, &a));
    *d = a.n_dims == 2 ? a.dim[1] : 1;
    *total = a.dim[0];
    if (*total < parts)
        TRY(fail(CONR_EINVAL, "%s: has %lld rows for %d processes; start at most as many", path,
                 (long long)*total, parts));
    if (!at) { /* in another order: there is no reading a part */
        TRY(npy_read_features(path, &values, total, d));
        TRY(keep_part(part, parts, &values, n, *d, *total));
    } else {
        int64_t first = *total * part / parts, count = *total * (part + 1) / parts - first;
        size_t width = (size_t)*d * a.size, piece = PART_BYTES / (width + 1) + 1;
        values = memory_new(path, (size_t)count * *d, sizeof *values);
        bytes = memory_new(path, piece * width, 1);
        TRY(values && bytes ? 0 : CONR_ENOMEM);
        for (size_t i = 0; i < (size_t)count; i += piece) {
            size_t rows = (size_t)count - i < piece ? (size_t)count - i : piece;
            TRY(file_reader_read(&file, path, at + ((size_t)first + i) * width, rows * width,
                                 bytes));
            npy_floats(a.kind, a.size, bytes, rows * *d, values + i * *d);
        }
        *n = count;
        TRY(numbers_check(path, values, count, *d));
    }
    *out = values, values = NULL;
done:
    file_reader_close(&file);
    npy_free(&a);
    free(values), free(bytes);
    return rc;
}

int npy_read_labels(const char *path, int64_t **out, int64_t *n) {
    int rc = 0;
    npy a = {0};
    int64_t *values = NULL;
    TRY(npy_read(path, &a));
    if (a.kind != 'i' && a.kind != 'u')
        TRY(fail(CONR_EINVAL, "%s: holds %s, labels are integers; save it as int32", path,
                 a.kind == 'f' ? "floats" : "booleans"));
    if (a.n_dims != 1)
        TRY(fail(CONR_EINVAL, "%s: has %d dimensions, labels have 1, [n]; reshape it", path,
                 a.n_dims));
    if (!a.count) TRY(fail(CONR_EINVAL, "%s: is empty; give at least one label", path));
    values = memory_new(path, a.count, sizeof *values);
    if (!values) TRY(CONR_ENOMEM);
    to_int64(a.kind, a.size, a.data, a.count, values);
    for (size_t i = 0; a.kind == 'u' && i < a.count; i++)
        if (values[i] < 0) /* only uint64 can wrap */
            TRY(fail(CONR_EINVAL, "%s: label %zu (from 0) is %" PRIu64 ", too large for int64; %s",
                     path, i, (uint64_t)values[i], "renumber the labels"));
    *out = values;
    *n = a.dim[0];
    values = NULL;
done:
    free(values);
    npy_free(&a);
    return rc;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* As NumPy writes it: padded so that the data is aligned to 64 bytes.  Returns its length. */
static size_t make_header(char kind, int size, int n_dims, const int64_t *dim, char out[384]) {
    char text[320];
    int at = snprintf(text, sizeof text, "{'descr': '%c%c%d', 'fortran_order': False, 'shape': (",
                      size == 1 ? '|' : '<', kind, size);
    for (int i = 0; i < n_dims; i++) {
        const char *after = n_dims == 1 ? "," : i + 1 < n_dims ? ", " : "";
        at += snprintf(text + at, sizeof text - (size_t)at, "%" PRId64 "%s", dim[i], after);
    }
    at += snprintf(text + at, sizeof text - (size_t)at, "), }");
    size_t total = (VERSION_1_BYTES + (size_t)at + 1 + 63) / 64 * 64;
    memset(out, ' ', total);
    memcpy(out, magic, sizeof magic);
    out[6] = 1;
    out[7] = 0;
    out[8] = (char)((total - VERSION_1_BYTES) & 255);
    out[9] = (char)((total - VERSION_1_BYTES) >> 8);
    memcpy(out + VERSION_1_BYTES, text, (size_t)at);
    out[total - 1] = '\n';
    return total;
}

int npy_write(const char *path, char kind, int size, int n_dims, const int64_t *dim,
              const void *data) {
    int rc = 0;
    char header[384];
    size_t count;
    file_new f = {0};
    ASSERT(is_known(kind, size) && n_dims >= 0 && n_dims <= NPY_DIMS);
    for (int i = 0; i < n_dims; i++) ASSERT(dim[i] >= 0);
    ASSERT(npy_count(dim, n_dims, (size_t)size, &count));
    TRY(file_new_open(&f, path));
    size_t length = make_header(kind, size, n_dims, dim, header);
    fwrite(header, 1, length, f.stream);
    if (count) fwrite(data, (size_t)size, count, f.stream);
    TRY(file_new_commit(&f));
done:
    file_new_drop(&f);
    return rc;
}
