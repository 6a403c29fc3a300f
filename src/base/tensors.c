/* tensors.c: the safetensors format.
 *
 * Owns the meaning of the header and the layout of the data: tensors follow one another in the
 * order of their offsets, without overlap or gap, up to the end of the file, as the official reader
 * demands.  JSON is left to jansson, files to file.c, conversions to npy.c.
 *
 * Names with control characters are refused: names end up in one-line messages, on terminals and in
 * reports. */
#include "base/tensors.h"

#include "base/checksum.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/npy.h"
#include "base/status.h"
#include "json/json.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are copied as little-endian");

enum { LENGTH_BYTES = 8, HEADER_LIMIT = 100 * 1000 * 1000 }; /* the official reader's limit */

static const char metadata_key[] = "__metadata__";

/* A note of every file that is written here: the checksum of the header, with zeros for these
 * digits, then of the tensors, as 16 hexadecimal digits.  Files without it are not checked. */
static const char sum_key[] = "xxh64", no_sum[] = "0000000000000000";
enum { SUM_DIGITS = sizeof no_sum - 1 };

struct tensors_memory {
    arena small;          /* path, names, notes, the lists themselves */
    unsigned char *bytes; /* the file; NULL: not ours */
};

static const struct {
    const char *name;
    char kind; /* as in npy.h; 0 for bfloat16, which NumPy does not have */
    int size;
} types[] = {
    [TENSOR_F64] = {"F64", 'f', 8}, [TENSOR_F32] = {"F32", 'f', 4},
    [TENSOR_F16] = {"F16", 'f', 2}, [TENSOR_BF16] = {"BF16", 0, 2},
    [TENSOR_I64] = {"I64", 'i', 8}, [TENSOR_I32] = {"I32", 'i', 4},
    [TENSOR_I16] = {"I16", 'i', 2}, [TENSOR_I8] = {"I8", 'i', 1},
    [TENSOR_U8] = {"U8", 'u', 1},   [TENSOR_BOOL] = {"BOOL", 'b', 1},
};
enum { N_TYPES = sizeof types / sizeof *types };

size_t tensor_size(tensor_type type) { return (size_t)types[type].size; }

const char *tensor_type_name(tensor_type type) { return types[type].name; }

static size_t tensor_bytes(const tensor *t) { return t->count * tensor_size(t->type); }

/* ---- reading --------------------------------------------------------------------------------- */

static int check_name(const char *file, const char *name) {
    for (const char *c = name; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 127)
            return fail(CONR_EFORMAT,
                        "%s: a name in it contains a control character; rename the tensor", file);
    return 0;
}

static int fail_tensor(const tensors *f, const char *name, const char *why) {
    return fail(CONR_EFORMAT, "%s: tensor '%.100s' %s; is the file damaged?", f->path, name, why);
}

static int read_type(const tensors *f, const json_t *value, tensor *t) {
    const char *text = json_string_value(value);
    if (!text) return fail_tensor(f, t->name, "has no dtype");
    for (int i = 0; i < N_TYPES; i++)
        if (!strcmp(text, types[i].name)) {
            t->type = (tensor_type)i;
            return 0;
        }
    return fail(CONR_EFORMAT, "%s: tensor '%.100s' has an unsupported dtype; %s", f->path, t->name,
                "save it as F32");
}

static int read_shape(const tensors *f, const json_t *value, tensor *t) {
    if (!json_is_array(value)) return fail_tensor(f, t->name, "has no shape");
    size_t n = json_array_size(value);
    if (n > TENSOR_DIMS)
        return fail(CONR_EFORMAT, "%s: tensor '%.100s' has more than %d dimensions; reshape it",
                    f->path, t->name, TENSOR_DIMS);
    t->n_dims = (int)n;
    for (size_t i = 0; i < n; i++) {
        const json_t *size = json_array_get(value, i);
        if (!json_is_integer(size) || json_integer_value(size) < 0)
            return fail_tensor(f, t->name, "has a size that is not a whole number");
        t->dim[i] = json_integer_value(size);
    }
    if (!npy_count(t->dim, t->n_dims, tensor_size(t->type), &t->count))
        return fail_tensor(f, t->name, "is larger than any memory");
    return 0;
}

/* Finds the tensor among the n bytes at data; its bytes must match its shape and type. */
static int read_offsets(const tensors *f, const json_t *value, const unsigned char *data, size_t n,
                        tensor *t) {
    const json_t *begin = json_array_get(value, 0), *end = json_array_get(value, 1);
    if (json_array_size(value) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        return fail_tensor(f, t->name, "has no data_offsets");
    json_int_t from = json_integer_value(begin), to = json_integer_value(end);
    if (from < 0 || to < from || (uint64_t)to > n)
        return fail_tensor(f, t->name, "lies outside the file");
    if ((size_t)(to - from) != tensor_bytes(t))
        return fail_tensor(f, t->name, "has data_offsets that do not match its shape and dtype");
    t->data = data + from;
    return 0;
}

static int read_notes(tensors *f, const json_t *notes) {
    const char *key;
    json_t *value;
    arena *a = &f->memory->small;
    if (!json_is_object(notes))
        return fail(CONR_EFORMAT, "%s: its %s is not an object; is the file damaged?", f->path,
                    metadata_key);
    f->note = arena_alloc(a, json_object_size(notes) * sizeof *f->note);
    if (!f->note) return CONR_ENOMEM;
    json_object_foreach((json_t *)notes, key, value) {
        if (check_name(f->path, key) < 0) return CONR_EFORMAT;
        if (!json_is_string(value))
            return fail(CONR_EFORMAT, "%s: its metadata '%.100s' is not text; is it damaged?",
                        f->path, key);
        tensor_note *note = &f->note[f->n_notes++];
        note->key = arena_text(a, key, strlen(key));
        note->value = arena_text(a, json_string_value(value), json_string_length(value));
        if (!note->key || !note->value) return CONR_ENOMEM;
    }
    return 0;
}

static int read_tensor(tensors *f, const char *name, const json_t *value, const unsigned char *data,
                       size_t n) {
    int rc = 0;
    tensor *t = &f->tensor[f->n++];
    TRY(check_name(f->path, name));
    t->name = arena_text(&f->memory->small, name, strlen(name));
    if (!t->name) TRY(CONR_ENOMEM);
    TRY(read_type(f, json_object_get(value, "dtype"), t));
    TRY(read_shape(f, json_object_get(value, "shape"), t));
    TRY(read_offsets(f, json_object_get(value, "data_offsets"), data, n, t));
done:
    return rc;
}

/* By position; an empty tensor comes before the one that starts at the same place. */
static int compare_places(const void *left, const void *right) {
    const tensor *a = left, *b = right;
    if (a->data != b->data) return (const char *)a->data < (const char *)b->data ? -1 : 1;
    size_t x = tensor_bytes(a), y = tensor_bytes(b);
    return x != y ? (x < y ? -1 : 1) : strcmp(a->name, b->name);
}

/* Sorts the tensors and checks that they fill the n bytes at data exactly. */
static int check_layout(tensors *f, const unsigned char *data, size_t n) {
    const unsigned char *at = data;
    if (f->n) qsort(f->tensor, (size_t)f->n, sizeof *f->tensor, compare_places);
    for (int i = 0; i < f->n; i++) {
        const tensor *t = &f->tensor[i];
        if (t->data != at)
            return fail_tensor(f, t->name,
                               (const unsigned char *)t->data < at ? "overlaps the one before it"
                                                                   : "has a gap before it");
        at += tensor_bytes(t);
    }
    if (at != data + n)
        return fail(CONR_EFORMAT, "%s: holds %zu bytes that belong to no tensor; is it damaged?",
                    f->path, n - (size_t)(at - data));
    return 0;
}

/* The checksum of a header of n bytes whose digits are at `digits`, if that is not NULL. */
static uint64_t sum_header(const char *text, size_t n, const char *digits) {
    if (!digits) return checksum(text, n, 0);
    size_t before = (size_t)(digits - text), after = n - before - SUM_DIGITS;
    uint64_t sum = checksum(no_sum, SUM_DIGITS, checksum(text, before, 0));
    return checksum(digits + SUM_DIGITS, after, sum);
}

/* Empty ones do not count: their order is not known from the file. */
static uint64_t sum_tensor(const tensor *t, uint64_t before) {
    return t->count ? checksum(t->data, tensor_bytes(t), before) : before;
}

/* The n bytes of the header at text, and all tensors. */
static int check_sum(const tensors *f, const char *text, size_t n) {
    char digits[SUM_DIGITS + 1];
    const char *note = tensors_note(f, sum_key);
    if (!note || strlen(note) != SUM_DIGITS) return 0;
    uint64_t sum = sum_header(text, n, memmem(text, n, note, SUM_DIGITS));
    for (int i = 0; i < f->n; i++) sum = sum_tensor(&f->tensor[i], sum);
    snprintf(digits, sizeof digits, "%016" PRIx64, sum);
    if (!strcmp(note, digits)) return 0;
    return fail(CONR_EFORMAT,
                "%s: is damaged: its contents do not match their checksum; restore it, or remove "
                "its note '%s' if it was edited",
                f->path, sum_key);
}

/* The length of the header, which must lie within the n bytes of the file. */
static int check_claim(const char *name, const unsigned char *bytes, size_t n, uint64_t *length) {
    if (n < LENGTH_BYTES)
        return fail(CONR_EFORMAT, "%s: is not a safetensors file: it %s; was it cut short?", name,
                    n ? "has only a few bytes" : "is empty");
    memcpy(length, bytes, sizeof *length);
    if (*length <= HEADER_LIMIT && *length <= n - LENGTH_BYTES) return 0;
    return fail(CONR_EFORMAT,
                "%s: claims a header of %" PRIu64 " bytes; is it a whole safetensors file?", name,
                *length);
}

static int fail_header(const char *name, int at) {
    return fail(CONR_EFORMAT, "%s: its header is not a JSON object (byte %d); is it safetensors?",
                name, at);
}

/* The parsed header, owned by the caller, and where the data starts. */
static int read_header(const char *name, const unsigned char *bytes, size_t n, json_t **header,
                       size_t *start) {
    uint64_t length;
    json_error_t error;
    int rc = check_claim(name, bytes, n, &length);
    if (rc < 0) return rc;
    const char *text = (const char *)bytes + LENGTH_BYTES;
    *start = LENGTH_BYTES + (size_t)length;
    *header = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &error);
    if (!*header) /* to the parser, memory that it does not get may look like a wrong token */
        *header = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &error);
    if (*header && json_is_object(*header) && *text == '{') return 0;
    if (!*header && (!error.text[0] || json_error_code(&error) == json_error_out_of_memory))
        return fail_memory(name, (double)length);
    if (!*header && json_error_code(&error) == json_error_duplicate_key)
        return fail(CONR_EFORMAT, "%s: has the same name twice; write the file again", name);
    /* jansson's own message may quote a line break of the file */
    return fail_header(name, *header ? 0 : error.position);
}

int tensors_parse(const char *name, const unsigned char *bytes, size_t n, tensors *out) {
    int rc = 0;
    json_t *header = NULL, *value;
    const char *key;
    size_t start = 0;
    *out = (tensors){.memory = calloc(1, sizeof *out->memory)};
    if (!out->memory) TRY(fail_memory(name, sizeof *out->memory));
    arena *a = &out->memory->small;
    TRY(read_header(name, bytes, n, &header, &start));
    out->path = arena_text(a, name, strlen(name));
    out->tensor = arena_alloc(a, json_object_size(header) * sizeof *out->tensor);
    if (!out->path || !out->tensor) TRY(CONR_ENOMEM);
    json_object_foreach(header, key, value) {
        if (!strcmp(key, metadata_key))
            TRY(read_notes(out, value));
        else
            TRY(read_tensor(out, key, value, bytes + start, n - start));
    }
    TRY(check_layout(out, bytes + start, n - start));
    TRY(check_sum(out, (const char *)bytes + LENGTH_BYTES, start - LENGTH_BYTES));
done:
    json_decref(header);
    if (rc < 0) tensors_close(out);
    return rc;
}

int tensors_open(const char *path, tensors *out) {
    int rc = 0;
    file_reader file;
    unsigned char head[LENGTH_BYTES + 1], *bytes = NULL;
    *out = (tensors){0};
    TRY(file_reader_open(path, &file));
    size_t n = file.size, first = n < sizeof head ? n : sizeof head;
    uint64_t length;
    /* a large file of another kind is not read as a whole to find that out */
    TRY(file_reader_read(&file, path, 0, first, head));
    TRY(check_claim(path, head, n, &length));
    if (length && head[LENGTH_BYTES] != '{') TRY(fail_header(path, 0));
    bytes = memory_new(path, n, 1);
    if (!bytes) TRY(CONR_ENOMEM);
    TRY(file_reader_read(&file, path, 0, n, bytes));
    TRY(tensors_parse(path, bytes, n, out));
    out->memory->bytes = bytes;
    bytes = NULL;
done:
    file_reader_close(&file);
    free(bytes);
    return rc;
}

void tensors_close(tensors *t) {
    if (t->memory) {
        arena_free(&t->memory->small);
        free(t->memory->bytes);
        free(t->memory);
    }
    *t = (tensors){0};
}

const tensor *tensors_find(const tensors *t, const char *name) {
    for (int i = 0; i < t->n; i++)
        if (!strcmp(t->tensor[i].name, name)) return &t->tensor[i];
    return NULL;
}

const char *tensors_note(const tensors *t, const char *key) {
    for (int i = 0; i < t->n_notes; i++)
        if (!strcmp(t->note[i].key, key)) return t->note[i].value;
    return NULL;
}

/* ---- conversions ----------------------------------------------------------------------------- */

uint16_t tensor_half(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    bits &= 0x7fffffff;
    if (bits > 0x7f800000) return sign | 0x7e00;  /* NaN */
    if (bits >= 0x477ff000) return sign | 0x7c00; /* 65520 and more round to infinity */
    if (bits < 0x38800000) { /* below 2^-14: multiples of 2^-24, which adding 1/2 aligns */
        float small = x < 0 ? -x : x;
        float sum = small + 0.5f;
        memcpy(&bits, &sum, sizeof bits);
        return (uint16_t)(sign | (bits - 0x3f000000));
    }
    bits += 0xfff + (bits >> 13 & 1); /* ties to even */
    return (uint16_t)(sign | ((bits - 0x38000000) >> 13));
}

/* bfloat16 is the upper half of a float. */
static void floats_of_bf16(const unsigned char *in, size_t count, float *out) {
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = (uint32_t)in[2 * i] << 16 | (uint32_t)in[2 * i + 1] << 24;
        memcpy(&out[i], &bits, sizeof bits);
    }
}

/* Counters (num_batches_tracked) are I64; a float would silently change those above 2^24. */
static bool is_exact(int64_t value) {
    float f = (float)value;
    return f >= -0x1p63f && f < 0x1p63f && (int64_t)f == value;
}

int tensors_floats(const tensors *file, const tensor *t, float *out) {
    if (t->type == TENSOR_BF16) {
        floats_of_bf16(t->data, t->count, out);
        return 0;
    }
    npy_floats(types[t->type].kind, types[t->type].size, t->data, t->count, out);
    for (size_t i = 0; t->type == TENSOR_I64 && i < t->count; i++) {
        int64_t value;
        memcpy(&value, (const char *)t->data + i * sizeof value, sizeof value);
        if (!is_exact(value))
            return fail(CONR_ENUMBER, "%s: tensor '%.100s' holds %" PRId64 ", %s", file->path,
                        t->name, value, "which is not exact as a float; save it as F32");
    }
    for (size_t i = 0; t->type == TENSOR_F64 && i < t->count; i++) {
        double value;
        memcpy(&value, (const char *)t->data + i * sizeof value, sizeof value);
        if (isinf(out[i]) && !isinf(value))
            return fail(CONR_ENUMBER, "%s: tensor '%.100s' holds %g, %s", file->path, t->name,
                        value, "which is beyond the range of float; rescale it");
    }
    return 0;
}

static void shape_text(int n_dims, const int64_t *dim, char out[192]) {
    int at = 0;
    out[0] = 0;
    for (int i = 0; i < n_dims; i++)
        at += snprintf(out + at, 192 - (size_t)at, "%s%" PRId64, i ? "," : "", dim[i]);
}

static bool has_shape(const tensor *t, int n_dims, const int64_t *dim) {
    if (t->n_dims != n_dims) return false;
    for (int i = 0; i < n_dims; i++)
        if (t->dim[i] != dim[i]) return false;
    return true;
}

int tensors_take(const tensors *file, const char *name, int n_dims, const int64_t *dim,
                 float *out) {
    const tensor *t = tensors_find(file, name);
    ASSERT(n_dims >= 0 && n_dims <= TENSOR_DIMS);
    if (!t)
        return fail(CONR_EFORMAT, "%s: has no tensor '%s'; was it made for another network?",
                    file->path, name);
    if (!has_shape(t, n_dims, dim)) {
        char have[192], want[192];
        shape_text(t->n_dims, t->dim, have);
        shape_text(n_dims, dim, want);
        return fail(
            CONR_EFORMAT,
            "%s: tensor '%s' has shape [%s], expected [%s]; was it made for another network?",
            file->path, name, have, want);
    }
    return tensors_floats(file, t, out);
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Adds value to object under this name.  Owns value, which is NULL if memory was short or, with
 * odd, if it was not UTF-8. */
static int add(const char *path, json_t *object, const char *name, json_t *value, bool odd) {
    int rc = 0;
    TRY(check_name(path, name));
    if (json_object_get(object, name))
        TRY(fail(CONR_EINVAL, "%s: '%.100s' is written twice; rename one", path, name));
    if (!odd) json_decref(json_text(name, &odd));
    if (odd)
        TRY(fail(CONR_EINVAL, "%s: '%.100s' or its value is not UTF-8; rename it", path, name));
    if (!value || json_object_set(object, name, value) < 0) TRY(fail_memory(path, 1000));
done:
    json_decref(value);
    return rc;
}

/* [begin, end): the bytes of the tensor, counted from the end of the header. */
static json_t *describe(const tensor *t, size_t begin, size_t end) {
    json_t *shape = json_array();
    for (int i = 0; i < t->n_dims; i++) shape = json_push(shape, json_integer(t->dim[i]));
    return json_pack("{s:s, s:o, s:[I,I]}", "dtype", tensor_type_name(t->type), "shape", shape,
                     "data_offsets", (json_int_t)begin, (json_int_t)end);
}

/* Large elements first: so every tensor is aligned without a gap, which the format forbids. */
static int make_header(const char *path, const tensor *t, int n, const tensor_note *note,
                       int n_notes, json_t **out) {
    int rc = 0;
    size_t at = 0;
    json_t *notes = json_object();
    *out = json_object();
    if (!notes || !*out) TRY(fail_memory(path, 1));
    for (int i = 0; i < n_notes; i++) {
        bool odd;
        json_t *value = json_text(note[i].value, &odd);
        TRY(add(path, notes, note[i].key, value, odd));
    }
    TRY(add(path, notes, sum_key, json_string(no_sum), false));
    TRY(add(path, *out, metadata_key, json_incref(notes), false));
    for (size_t size = 8; size; size /= 2)
        for (int i = 0; i < n; i++) {
            if (tensor_size(t[i].type) != size) continue;
            size_t count;
            ASSERT(t[i].n_dims >= 0 && t[i].n_dims <= TENSOR_DIMS);
            ASSERT(npy_count(t[i].dim, t[i].n_dims, size, &count) && count == t[i].count);
            TRY(add(path, *out, t[i].name, describe(&t[i], at, at + tensor_bytes(&t[i])), false));
            at += tensor_bytes(&t[i]);
        }
done:
    json_decref(notes);
    return rc;
}

/* Writes the checksum into a header of n bytes. */
static void sign(char *text, size_t n, const tensor *t, int count) {
    char digits[SUM_DIGITS + 1], start[sizeof sum_key + 4];
    snprintf(start, sizeof start, "\"%s\":\"",
             sum_key); /* no text contains it: quotes are escaped */
    char *at = memmem(text, n, start, strlen(start));
    ASSERT(at);
    at += strlen(start);
    uint64_t sum = sum_header(text, n, at);
    for (size_t size = 8; size; size /= 2)
        for (int i = 0; i < count; i++)
            if (tensor_size(t[i].type) == size) sum = sum_tensor(&t[i], sum);
    snprintf(digits, sizeof digits, "%016" PRIx64, sum);
    memcpy(at, digits, SUM_DIGITS);
}

/* Writes the tensors whose elements have `size` bytes, in the given order. */
static void write_numbers(FILE *stream, const tensor *t, int n, size_t size) {
    for (int i = 0; i < n; i++)
        if (tensor_size(t[i].type) == size && t[i].count)
            fwrite(t[i].data, size, t[i].count, stream);
}

int tensors_write(const char *path, const tensor *tensor, int n, const tensor_note *note,
                  int n_notes) {
    int rc = 0;
    json_t *header = NULL;
    char *text = NULL, *longer;
    file_new f = {0};
    TRY(make_header(path, tensor, n, note, n_notes, &header));
    text = json_write(header, JSON_COMPACT);
    if (!text) TRY(fail_memory(path, 1));
    size_t length = strlen(text);
    uint64_t padded = (length + 7) / 8 * 8; /* the data is aligned to 8 bytes */
    if (padded > HEADER_LIMIT)
        TRY(fail(CONR_EINVAL, "%s: a header of %zu bytes is too long; write fewer tensors", path,
                 length));
    longer = realloc(text, padded);
    if (!longer) TRY(fail_memory(path, (double)padded));
    text = longer;
    memset(text + length, ' ', padded - length);
    sign(text, padded, tensor, n);
    TRY(file_new_open(&f, path));
    fwrite(&padded, sizeof padded, 1, f.stream);
    fwrite(text, 1, padded, f.stream);
    for (size_t size = 8; size; size /= 2) write_numbers(f.stream, tensor, n, size);
    TRY(file_new_commit(&f));
done:
    file_new_drop(&f);
    free(text);
    json_decref(header);
    return rc;
}
