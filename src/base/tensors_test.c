/* tensors_test.c: files written by the official safetensors, by conr, and malformed files. */
#include "base/tensors.h"

#include "base/file.h"
#include "base/test_help.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Written by safetensors 0.8.0, safetensors.numpy.save({
 *     "a": array([[1.5,-2],[3,4]], "<f4"), "half": array([1,-0.5,2**-24,inf,65504], "<f2"),
 *     "steps": array(123, "<i8"), "none": zeros((0,3), "<f4"), "flag": array([True,False,True])},
 *     metadata={"size": "32", "note": "two\nlines, \"quoted\" \u00e9"}) */
static const char official[] =
    "h\001\000\000\000\000\000\000{\"__metadata__\":{\"size\":\"32\",\"note\":\"two\\nlines, \\"
    "\"quoted\\\" \303\251\"},\"steps\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
    "\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[8,24]},\"none\":{\"dtype\":\"F32"
    "\",\"shape\":[0,3],\"data_offsets\":[24,24]},\"half\":{\"dtype\":\"F16\",\"shape\":[5],\"da"
    "ta_offsets\":[24,34]},\"flag\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[34,37]}}"
    "      {\000\000\000\000\000\000\000\000\000\300?\000\000\000\300\000\000@@\000\000\200@\000"
    "<\000\270\001\000\000|\377{\001\000\001";

/* A C string ends with a 0 that is not part of the file. */
#define BYTES(text) (const unsigned char *)(text), sizeof(text) - 1

static void reads_what_the_official_library_writes(void **state) {
    (void)state;
    static const char *const names[] = {"steps", "a", "none", "half", "flag"};
    tensors f;
    float x[5];
    assert_ok(tensors_open(temporary_file("o.safetensors", BYTES(official)), &f));
    assert_int_equal(f.n, 5);
    for (int i = 0; i < 5; i++) assert_string_equal(f.tensor[i].name, names[i]);
    const tensor *a = tensors_find(&f, "a");
    assert_int_equal(a->type, TENSOR_F32);
    assert_true(a->n_dims == 2 && a->dim[0] == 2 && a->dim[1] == 2 && a->count == 4);
    assert_ok(tensors_take(&f, "a", 2, (int64_t[]){2, 2}, x));
    assert_memory_equal(x, ((float[]){1.5f, -2, 3, 4}), 16);
    assert_ok(tensors_take(&f, "half", 1, (int64_t[]){5}, x));
    assert_memory_equal(x, ((float[]){1, -0.5f, 0x1p-24f, INFINITY, 65504}), 20);
    assert_ok(tensors_take(&f, "steps", 0, NULL, x));
    assert_true(x[0] == 123);
    assert_ok(tensors_take(&f, "none", 2, (int64_t[]){0, 3}, x));
    assert_ok(tensors_take(&f, "flag", 1, (int64_t[]){3}, x));
    assert_true(x[0] == 1 && x[1] == 0 && x[2] == 1);
    assert_int_equal(f.n_notes, 2);
    assert_string_equal(tensors_note(&f, "size"), "32");
    assert_string_equal(tensors_note(&f, "note"), "two\nlines, \"quoted\" \303\251");
    assert_null(tensors_note(&f, "other"));
    assert_null(tensors_find(&f, "__metadata__"));
    tensors_close(&f);
    tensors_close(&f);
}

static void says_what_does_not_fit(void **state) {
    (void)state;
    tensors f;
    float x[8];
    assert_ok(tensors_parse("o.st", BYTES(official), &f));
    assert_fails(CONR_EFORMAT, "o.st: has no tensor 'b'", tensors_take(&f, "b", 0, NULL, x));
    assert_fails(CONR_EFORMAT, "tensor 'a' has shape [2,2], expected [4]",
                 tensors_take(&f, "a", 1, (int64_t[]){4}, x));
    assert_fails(CONR_EFORMAT, "has shape [2,2], expected [2,3]",
                 tensors_take(&f, "a", 2, (int64_t[]){2, 3}, x));
    assert_fails(CONR_EFORMAT, "has shape [], expected [1]",
                 tensors_take(&f, "steps", 1, (int64_t[]){1}, x));
    tensors_close(&f);
}

/* Each prefix, in memory of exactly its size, so that the sanitizer sees a read past its end. */
static void refuses_every_cut_file(void **state) {
    (void)state;
    for (size_t length = 0; length < sizeof official - 1; length++) {
        tensors f;
        unsigned char *copy = malloc(length ? length : 1);
        memcpy(copy, official, length);
        assert_fails(CONR_EFORMAT, "cut", tensors_parse("cut", copy, length, &f));
        assert_null(f.memory);
        free(copy);
    }
}

static void survives_every_changed_byte(void **state) {
    (void)state;
    static const unsigned char values[] = {0, 1, '"', ',', '-', '0', '9', '[', '\\', '{', 128, 255};
    unsigned char copy[sizeof official];
    for (size_t at = 0; at < sizeof copy - 1; at++)
        for (size_t i = 0; i < sizeof values; i++) {
            tensors f;
            memcpy(copy, official, sizeof copy);
            copy[at] = values[i];
            int rc = tensors_parse("changed", copy, sizeof copy - 1, &f);
            assert_true(rc == 0 || rc == CONR_EFORMAT);
            tensors_close(&f);
        }
}

/* A file of this header and n_data zero bytes.  claim: the header's length, or -1 for the truth. */
static int parse_made(const char *header, int64_t claim, size_t n_data, tensors *out) {
    size_t length = strlen(header), n = 8 + length + n_data;
    int64_t claimed = claim < 0 ? (int64_t)length : claim;
    unsigned char *bytes = calloc(n, 1);
    memcpy(bytes, &claimed, 8);
    memcpy(bytes + 8, header, length);
    int rc = tensors_parse("made.st", bytes, n, out);
    free(bytes);
    return rc;
}

static void refuses_header_lengths_that_lie(void **state) {
    (void)state;
    tensors f;
    assert_fails(CONR_EFORMAT, "empty", tensors_parse("none", NULL, 0, &f));
    assert_fails(CONR_EFORMAT, "only a few bytes", tensors_parse("few", BYTES("1234567"), &f));
    assert_fails(CONR_EFORMAT, "not a JSON object", parse_made("{}", 0, 0, &f));
    assert_fails(CONR_EFORMAT, "not a JSON object", parse_made("{}", 1, 0, &f));
    assert_fails(CONR_EFORMAT, "header of 3 bytes", parse_made("{}", 3, 0, &f));
    assert_fails(CONR_EFORMAT, "header of 9223372036854775807 bytes",
                 parse_made("{}", INT64_MAX, 0, &f));
    assert_fails(CONR_EFORMAT, "header of 9223372036854775808 bytes",
                 tensors_parse("lie", BYTES("\0\0\0\0\0\0\0\200{}"), &f));
    assert_fails(CONR_EFORMAT, "header of 18446744073709551615 bytes",
                 tensors_parse("lie", BYTES("\377\377\377\377\377\377\377\377{}"), &f));
    /* also when the file is that long */
    assert_fails(CONR_EFORMAT, "header of 100000008 bytes",
                 parse_made("{}", 100000008, 100000008, &f));
    assert_ok(parse_made("{}", -1, 0, &f));
    tensors_close(&f);
    assert_ok(parse_made("{}      ", -1, 0, &f));
    assert_int_equal(f.n, 0);
    tensors_close(&f);
}

#define ONE(dtype, shape, offsets)                                                                 \
    "{\"x\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"
#define TWO(first, second)                                                                         \
    "{\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":" first "},"                         \
    "\"y\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":" second "}}"

static void refuses_headers_that_lie(void **state) {
    (void)state;
    static const struct {
        const char *header, *message;
    } bad[] = {
        {"[]", "not a JSON object"},
        {" {}", "not a JSON object"},
        {"null", "not a JSON object"},
        {"{}x", "not a JSON object"},
        {"{\"\377\":1}", "not a JSON object"},
        {"{\"a\\u0000b\":1}", "not a JSON object"},
        {"{\"x\\n\\ty\":1}", "control character"},
        {"{\"x\177\":1}", "control character"},
        {"{\"x\":1}", "tensor 'x' has no dtype"},
        {"{\"x\":{}}", "tensor 'x' has no dtype"},
        {"{\"x\":{\"dtype\":\"F32\"}}", "tensor 'x' has no shape"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[4]}}", "tensor 'x' has no data_offsets"},
        {ONE("4", "[4]", "[0,16]"), "has no dtype"},
        {ONE("\"F31\"", "[4]", "[0,16]"), "an unsupported dtype"},
        {ONE("\"f32\"", "[4]", "[0,16]"), "an unsupported dtype"},
        {ONE("\"U64\"", "[2]", "[0,16]"), "an unsupported dtype"},
        {ONE("\"F32\"", "4", "[0,16]"), "has no shape"},
        {ONE("\"F32\"", "[4.0]", "[0,16]"), "not a whole number"},
        {ONE("\"F32\"", "[\"4\"]", "[0,16]"), "not a whole number"},
        {ONE("\"F32\"", "[-4]", "[0,16]"), "not a whole number"},
        {ONE("\"F32\"", "[-2,-2]", "[0,16]"), "not a whole number"},
        {ONE("\"F32\"", "[1,1,1,1,1,1,1,1,4]", "[0,16]"), "more than 8 dimensions"},
        {ONE("\"F32\"", "[9223372036854775807]", "[0,16]"), "larger than any memory"},
        {ONE("\"F32\"", "[9223372036854775808]", "[0,16]"), "not a JSON object"},
        {ONE("\"F32\"", "[4294967296,4294967296,4]", "[0,16]"), "larger than any memory"},
        {ONE("\"F32\"", "[0,4294967296,4294967296]", "[0,0]"), "larger than any memory"},
        {ONE("\"F32\"", "[4]", "[]"), "has no data_offsets"},
        {ONE("\"F32\"", "[4]", "[0,8,16]"), "has no data_offsets"},
        {ONE("\"F32\"", "[4]", "{\"0\":16}"), "has no data_offsets"},
        {ONE("\"F32\"", "[4]", "[0,16.0]"), "has no data_offsets"},
        {ONE("\"F32\"", "[4]", "[-16,0]"), "outside the file"},
        {ONE("\"F32\"", "[4]", "[16,0]"), "outside the file"},
        {ONE("\"F32\"", "[4]", "[1,17]"), "outside the file"},
        {ONE("\"F32\"", "[4]", "[9223372036854775791,9223372036854775807]"), "outside the file"},
        {ONE("\"F32\"", "[3]", "[0,16]"), "do not match its shape and dtype"},
        {ONE("\"F64\"", "[4]", "[0,16]"), "do not match its shape and dtype"},
        {ONE("\"F32\"", "[3]", "[0,12]"), "4 bytes that belong to no tensor"},
        {ONE("\"F32\"", "[3]", "[4,16]"), "'x' has a gap before it"},
        {"{}", "16 bytes that belong to no tensor"},
        {TWO("[0,8]", "[0,8]"), "'y' overlaps"},
        {TWO("[8,16]", "[4,12]"), "'y' has a gap before it"},
        {TWO("[0,8]", "[4,12]"), "'y' overlaps the one before it"},
        {"{\"x\":{\"dtype\":\"U8\",\"shape\":[6],\"data_offsets\":[0,6]},"
         "\"y\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[8,16]}}",
         "'y' has a gap before it"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},"
         "\"x\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}",
         "the same name twice"},
        {"{\"x\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}",
         "the same name twice"},
        {"{\"__metadata__\":[]}", "__metadata__ is not an object"},
        {"{\"__metadata__\":{\"k\":1}}", "metadata 'k' is not text"},
        {"{\"__metadata__\":{\"k\":\"a\",\"k\":\"b\"}}", "the same name twice"},
        {"{\"__metadata__\":{\"k\\u001b\":\"a\"}}", "control character"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tensors f;
        assert_fails(CONR_EFORMAT, bad[i].message, parse_made(bad[i].header, -1, 16, &f));
        assert_null(f.memory);
    }
}

static void accepts_any_order_and_empty_tensors(void **state) {
    (void)state;
    tensors f;
    assert_ok(parse_made(TWO("[8,16]", "[0,8]"), -1, 16, &f));
    assert_string_equal(f.tensor[0].name, "y");
    assert_string_equal(f.tensor[1].name, "x");
    tensors_close(&f);
    assert_ok(parse_made("{\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                         "\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[4,4]},"
                         "\"\":{\"dtype\":\"F32\",\"shape\":[5,0],\"data_offsets\":[0,0]}}",
                         -1, 4, &f));
    assert_string_equal(f.tensor[0].name, "");
    assert_string_equal(f.tensor[1].name, "b");
    assert_string_equal(f.tensor[2].name, "a");
    tensors_close(&f);
}

static void refuses_deep_nesting(void **state) {
    (void)state;
    enum { DEPTH = 1 << 20 };
    tensors f;
    char *header = malloc(DEPTH + 8);
    strcpy(header, "{\"x\":");
    memset(header + 5, '[', DEPTH);
    header[DEPTH + 5] = 0;
    assert_fails(CONR_EFORMAT, "not a JSON object", parse_made(header, -1, 0, &f));
    for (int i = 0; i + 5 <= DEPTH; i += 5) memcpy(header + i, "{\"x\":", 5);
    assert_fails(CONR_EFORMAT, "not a JSON object", parse_made(header, -1, 0, &f));
    free(header);
}

static void refuses_other_files(void **state) {
    (void)state;
    tensors f;
    assert_fails(CONR_EFILE, "No such file", tensors_open(temporary_path("none.st"), &f));
    assert_fails(CONR_EFILE, "is a folder", tensors_open("/tmp", &f));
    assert_fails(CONR_EFORMAT, "empty", tensors_open(temporary_file("0.st", "", 0), &f));
    tensors_close(&f);
}

/* numbers: [count] of this type, not aligned on purpose; expected: the floats. */
static void check_floats(tensor_type type, const void *numbers, size_t count,
                         const float *expected) {
    unsigned char bytes[256];
    float got[16];
    tensor t = {.name = "t", .type = type, .count = count, .data = bytes + 1};
    memcpy(bytes + 1, numbers, count * tensor_size(type));
    assert_ok(tensors_floats(&(tensors){.path = "p"}, &t, got));
    assert_memory_equal(got, expected, count * sizeof *got);
}

static void changes_all_types_to_float(void **state) {
    (void)state;
    static const uint16_t half[] = {0x0000, 0x8000, 0x0001, 0x83ff, 0x0400, 0x3c00,
                                    0xc000, 0x7bff, 0x7c00, 0xfc00, 0x3555};
    check_floats(TENSOR_F16, half, 11,
                 (float[]){0, -0.0f, 0x1p-24f, -1023 * 0x1p-24f, 0x1p-14f, 1, -2, 65504, INFINITY,
                           -INFINITY, 0x1.554p-2f});
    static const uint16_t bf16[] = {0x0000, 0x8000, 0x0001, 0x807f, 0x0080, 0x3f80,
                                    0xc000, 0x7f7f, 0x7f80, 0xff80, 0x3eab};
    check_floats(TENSOR_BF16, bf16, 11,
                 (float[]){0, -0.0f, 0x1p-133f, -127 * 0x1p-133f, 0x1p-126f, 1, -2, 0x1.fep127f,
                           INFINITY, -INFINITY, 0x1.56p-2f});
    check_floats(TENSOR_F64, (double[]){0.1, -1e-50, INFINITY, 3.4028234e38}, 4,
                 (float[]){0.1f, -0.0f, INFINITY, 3.4028234e38f});
    check_floats(TENSOR_F32, (float[]){0.1f, -0x1p-149f}, 2, (float[]){0.1f, -0x1p-149f});
    check_floats(TENSOR_I64, (int64_t[]){16777216, -16777216, INT64_MIN, 0x7fffff8000000000}, 4,
                 (float[]){0x1p24f, -0x1p24f, -0x1p63f, 0x1.fffffep62f});
    check_floats(TENSOR_I32, (int32_t[]){INT32_MIN, 16777217}, 2, (float[]){-0x1p31f, 0x1p24f});
    check_floats(TENSOR_I16, (int16_t[]){-32768, 32767}, 2, (float[]){-32768, 32767});
    check_floats(TENSOR_I8, (int8_t[]){-128, 127}, 2, (float[]){-128, 127});
    check_floats(TENSOR_U8, (uint8_t[]){0, 255}, 2, (float[]){0, 255});
    check_floats(TENSOR_BOOL, (uint8_t[]){0, 1}, 2, (float[]){0, 1});
}

/* All 65536 halves, by the definition: (1 + f/1024) * 2^(e-15), or f * 2^-24. */
static void changes_every_half(void **state) {
    (void)state;
    for (unsigned bits = 0; bits < 65536; bits++) {
        uint16_t half = (uint16_t)bits;
        unsigned e = bits >> 10 & 31, f = bits & 1023;
        float x, sign = bits >> 15 ? -1 : 1;
        tensor t = {.name = "t", .type = TENSOR_F16, .count = 1, .data = &half};
        assert_ok(tensors_floats(&(tensors){.path = "p"}, &t, &x));
        if (e == 31 && f)
            assert_true(isnan(x));
        else if (e == 31)
            assert_true(x == sign * INFINITY);
        else
            assert_true(x == sign * ldexpf((e ? 1024.0f : 0) + (float)f, (e ? (int)e : 1) - 25));
        assert_int_equal(!!signbit(x), bits >> 15);
    }
}

static void refuses_numbers_no_float_can_hold(void **state) {
    (void)state;
    static const int64_t odd[] = {16777217, INT64_MAX, -16777217};
    float x;
    tensors f = {.path = "file"};
    for (int i = 0; i < 3; i++) {
        tensor t = {.name = "steps", .type = TENSOR_I64, .count = 1, .data = &odd[i]};
        char text[64];
        snprintf(text, sizeof text, "file: tensor 'steps' holds %lld", (long long)odd[i]);
        assert_fails(CONR_ENUMBER, text, tensors_floats(&f, &t, &x));
    }
    double wide = -1e39;
    tensor t = {.name = "w", .type = TENSOR_F64, .count = 1, .data = &wide};
    assert_fails(CONR_ENUMBER, "'w' holds -1e+39", tensors_floats(&f, &t, &x));
}

static void writes_and_reads(void **state) {
    (void)state;
    uint8_t odd[] = {1, 2, 3};
    float w[] = {1, 2, 3, 4, 5, 6};
    int64_t steps = 7;
    uint16_t half[] = {0x3c00};
    const tensor list[] = {
        {"odd", TENSOR_U8, 1, {3}, 3, odd},        {"w\"\\\303\251", TENSOR_F32, 2, {2, 3}, 6, w},
        {"none", TENSOR_F32, 2, {4, 0}, 0, NULL},  {"steps", TENSOR_I64, 0, {0}, 1, &steps},
        {"half", TENSOR_BF16, 2, {1, 1}, 1, half}, {"odd2", TENSOR_BOOL, 1, {1}, 1, odd},
    };
    const tensor_note notes[] = {{"note", "a\nb\"\\ \342\202\254"}, {"empty", ""}};
    const char *path = temporary_path("w.safetensors");
    tensors f;
    for (int old = 0; old < 2; old++) { /* the second replaces the first */
        assert_ok(tensors_write(path, list, 6, notes, 2));
        assert_ok(tensors_open(path, &f));
        assert_int_equal(f.n, 6);
        for (int i = 0; i < 6; i++) {
            const tensor *t = tensors_find(&f, list[i].name);
            assert_non_null(t);
            assert_int_equal(t->type, list[i].type);
            assert_int_equal(t->n_dims, list[i].n_dims);
            assert_memory_equal(t->dim, list[i].dim, sizeof t->dim);
            assert_int_equal(t->count, list[i].count);
            assert_int_equal((uintptr_t)t->data % tensor_size(t->type), 0);
            if (t->count)
                assert_memory_equal(t->data, list[i].data, t->count * tensor_size(t->type));
        }
        assert_string_equal(tensors_note(&f, "note"), notes[0].value);
        assert_string_equal(tensors_note(&f, "empty"), "");
        tensors_close(&f);
    }
    assert_ok(tensors_write(path, NULL, 0, NULL, 0));
    assert_ok(tensors_open(path, &f));
    assert_int_equal(f.n, 0);
    tensors_close(&f);
}

/* A file of ours with one bit changed is refused, unless the bit is in the name of the checksum. */
static void notices_every_bit(void **state) {
    (void)state;
    static const float f[3] = {1, -2, 3};
    static const uint8_t u[5] = {1, 2, 3, 4, 5};
    const tensor list[] = {
        {.name = "none", .type = TENSOR_U8, .n_dims = 1, .dim = {0}},
        {.name = "bytes", .type = TENSOR_U8, .n_dims = 1, .dim = {5}, .count = 5, .data = u},
        {.name = "empty", .type = TENSOR_F64, .n_dims = 2, .dim = {0, 3}},
        {.name = "floats", .type = TENSOR_F32, .n_dims = 1, .dim = {3}, .count = 3, .data = f},
    };
    const tensor_note note = {"about", "\"xxh64\":\"0000000000000000\""};
    const char *path = temporary_path("summed.safetensors");
    tensors file;
    file_map m;
    assert_ok(tensors_write(path, list, 4, &note, 1));
    assert_ok(tensors_open(path, &file));
    assert_non_null(tensors_note(&file, "xxh64"));
    tensors_close(&file);
    assert_ok(file_map_open(path, &m));
    unsigned char *copy = malloc(m.size);
    assert_non_null(copy);
    memcpy(copy, m.data, m.size);
    const unsigned char *name = memmem(copy, m.size, "\"xxh64\":", 8);
    assert_non_null(name);
    for (size_t bit = 0; bit < 8 * m.size; bit++) {
        size_t at = bit / 8, key = (size_t)(name - copy);
        copy[at] ^= (unsigned char)(1 << bit % 8);
        int rc = tensors_parse("x", copy, m.size, &file);
        if (rc == 0 && !(at > key && at < key + 6)) fail_msg("bit %zu is not noticed", bit);
        tensors_close(&file);
        copy[at] ^= (unsigned char)(1 << bit % 8);
    }
    free(copy);
    file_map_close(&m);
}

static void refuses_to_write_what_none_could_read(void **state) {
    (void)state;
    float w = 1;
    const char *path = temporary_path("x.st");
    const tensor twice[] = {{"a", TENSOR_F32, 0, {0}, 1, &w}, {"a", TENSOR_F32, 0, {0}, 1, &w}};
    const tensor reserved = {"__metadata__", TENSOR_F32, 0, {0}, 1, &w};
    const tensor broken = {"\377", TENSOR_F32, 0, {0}, 1, &w};
    const tensor lines = {"a\nb", TENSOR_F32, 0, {0}, 1, &w};
    const tensor_note note = {"key", "\377\376"};
    assert_fails(CONR_EINVAL, "'a' is written twice", tensors_write(path, twice, 2, NULL, 0));
    assert_fails(CONR_EINVAL, "'__metadata__' is written twice",
                 tensors_write(path, &reserved, 1, NULL, 0));
    assert_fails(CONR_EINVAL, "not UTF-8", tensors_write(path, &broken, 1, NULL, 0));
    assert_fails(CONR_EINVAL, "'key' or its value is not UTF-8",
                 tensors_write(path, twice, 1, &note, 1));
    assert_fails(CONR_EFORMAT, "control character", tensors_write(path, &lines, 1, NULL, 0));
    assert_fails(CONR_EFILE, "No such file",
                 tensors_write(temporary_path("none/x.st"), twice, 1, NULL, 0));
    file_map m;
    assert_fails(CONR_EFILE, "No such file", file_map_open(path, &m));
}

/* ---- memory ---------------------------------------------------------------------------------- */

static int json_left; /* allocations of jansson before one fails; negative: none does */

static void *scarce(size_t n) { return json_left >= 0 && json_left-- == 0 ? NULL : malloc(n); }

/* Whichever allocation of the header fails: an error and the old file, or all of the new one. */
static void no_memory_for_the_header(void **state) {
    static const float x[6] = {1, 2, 3, 4, 5, 6};
    const tensor list[] = {{"a.weight", TENSOR_F32, 2, {2, 3}, 6, x},
                           {"b", TENSOR_F32, 1, {6}, 6, x},
                           {"c", TENSOR_F32, 0, {0}, 1, x}};
    const tensor_note notes[] = {{"key", "value"}, {"size", "32"}};
    (void)state;
    int failures = 0;
    json_left = -1;
    for (int at = 0; json_left < 0; at++) { /* until it is not reached any more */
        tensors f;
        const char *path = temporary_file("scarce.safetensors", "old", 3);
        json_left = at;
        json_set_alloc_funcs(scarce, free);
        int rc = tensors_write(path, list, 3, notes, 2);
        json_set_alloc_funcs(malloc, free);
        if (rc < 0) {
            if (rc != CONR_ENOMEM) fail_msg("allocation %d: %s", at, conr_error());
            assert_fails(CONR_EFORMAT, "a few bytes", tensors_open(path, &f));
            failures++;
            continue;
        }
        if (tensors_open(path, &f) < 0) fail_msg("allocation %d: %s", at, conr_error());
        assert_int_equal(f.n, 3);
        assert_int_equal(f.n_notes, 3); /* these two and the checksum */
        tensors_close(&f);
    }
    assert_true(failures > 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_the_official_library_writes),
        cmocka_unit_test(says_what_does_not_fit),
        cmocka_unit_test(refuses_every_cut_file),
        cmocka_unit_test(survives_every_changed_byte),
        cmocka_unit_test(refuses_header_lengths_that_lie),
        cmocka_unit_test(refuses_headers_that_lie),
        cmocka_unit_test(accepts_any_order_and_empty_tensors),
        cmocka_unit_test(refuses_deep_nesting),
        cmocka_unit_test(refuses_other_files),
        cmocka_unit_test(changes_all_types_to_float),
        cmocka_unit_test(changes_every_half),
        cmocka_unit_test(refuses_numbers_no_float_can_hold),
        cmocka_unit_test(writes_and_reads),
        cmocka_unit_test(notices_every_bit),
        cmocka_unit_test(refuses_to_write_what_none_could_read),
        cmocka_unit_test(no_memory_for_the_header),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
