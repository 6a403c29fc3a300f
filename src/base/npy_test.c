/* npy_test.c: files written by NumPy, files written by conr, and malformed files. */
#include "base/npy.h"

#include "base/file.h"
#include "base/test_help.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Written by NumPy 2.4.6, numpy.lib.format.write_array(f, a, version=None | (2,0) | (3,0)), a being
 *   float_matrix        array([[1.5,-2,3e-40],[4,5,16777216]], '<f4')
 *   double_big_fortran  asfortranarray(array([[1,2,3],[4,5,6.25]], '>f8'))
 *   int_big_fortran_3d  asfortranarray(arange(-6,6,dtype='>i2').reshape(2,3,2))
 *   halves              array([1.5,-2,65504,2**-14,2**-24,-1023*2**-24,0,-0.0], '<f2')
 *   scalar              array(-7, '<i8')
 *   empty               zeros((0,4), '<f4')
 *   labels_version_2    array([3,-1,2000000000], '<i4')
 *   bytes_version_3     array([[0,255]], 'u1')
 *   truths              array([True,False,True])
 *   unsigned_big        array([1,2**64-1], '>u8')
 * A C string ends with a 0 that is not part of the file: hence BYTES. */
static const char float_matrix[] =
    "\223NUMPY\001\000v\000{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }          "
    "                                                \n\000\000\300?\000\000\000\300GD\003\000"
    "\000\000\200@\000\000\240@\000\000\200K";

static const char double_big_fortran[] =
    "\223NUMPY\001\000v\000{'descr': '>f8', 'fortran_order': True, 'shape': (2, 3), }           "
    "                                                \n?\360\000\000\000\000\000\000@\020\000"
    "\000\000\000\000\000@\000\000\000\000\000\000\000@\024\000\000\000\000\000\000@\010\000\000"
    "\000\000\000\000@\031\000\000\000\000\000\000";

static const char int_big_fortran_3d[] =
    "\223NUMPY\001\000v\000{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3, 2), }        "
    "                                                \n\377\372\000\000\377\374\000\002\377\376"
    "\000\004\377\373\000\001\377\375\000\003\377\377\000\005";

static const char halves[] =
    "\223NUMPY\001\000v\000{'descr': '<f2', 'fortran_order': False, 'shape': (8,), }            "
    "                                                \n\000>\000\300\377{\000\004\001\000\377"
    "\203\000\000\000\200";

static const char scalar[] =
    "\223NUMPY\001\000v\000{'descr': '<i8', 'fortran_order': False, 'shape': (), }              "
    "                                                \n\371\377\377\377\377\377\377\377";

static const char empty[] =
    "\223NUMPY\001\000v\000{'descr': '<f4', 'fortran_order': False, 'shape': (0, 4), }          "
    "                                                \n";

static const char labels_version_2[] =
    "\223NUMPY\002\000t\000\000\000{'descr': '<i4', 'fortran_order': False, 'shape': (3,), }    "
    "                                                      \n\003\000\000\000\377\377\377\377"
    "\000\2245w";

static const char bytes_version_3[] =
    "\223NUMPY\003\000t\000\000\000{'descr': '|u1', 'fortran_order': False, 'shape': (1, 2), }  "
    "                                                      \n\000\377";

static const char truths[] =
    "\223NUMPY\001\000v\000{'descr': '|b1', 'fortran_order': False, 'shape': (3,), }            "
    "                                                \n\001\000\001";

static const char unsigned_big[] =
    "\223NUMPY\001\000v\000{'descr': '>u8', 'fortran_order': False, 'shape': (2,), }            "
    "                                                \n\000\000\000\000\000\000\000\001\377\377"
    "\377\377\377\377\377\377";

#define BYTES(text) (const unsigned char *)(text), sizeof(text) - 1

static void assert_array(const npy *a, char kind, int size, int n_dims, const int64_t *dim) {
    size_t count = 1;
    assert_int_equal(a->kind, kind);
    assert_int_equal(a->size, size);
    assert_int_equal(a->n_dims, n_dims);
    for (int i = 0; i < n_dims; i++) {
        assert_int_equal(a->dim[i], dim[i]);
        count *= (size_t)dim[i];
    }
    assert_int_equal(a->count, count);
    assert_non_null(a->data);
}

static void reads_what_numpy_writes(void **state) {
    (void)state;
    npy a;
    assert_ok(npy_parse("float", BYTES(float_matrix), &a));
    assert_array(&a, 'f', 4, 2, (int64_t[]){2, 3});
    assert_memory_equal(a.data, ((float[]){1.5f, -2, 3e-40f, 4, 5, 16777216}), 24);
    assert_int_equal((uintptr_t)a.data % 16, 0);
    npy_free(&a);
    assert_ok(npy_parse("double", BYTES(double_big_fortran), &a));
    assert_array(&a, 'f', 8, 2, (int64_t[]){2, 3});
    assert_memory_equal(a.data, ((double[]){1, 2, 3, 4, 5, 6.25}), 48);
    npy_free(&a);
    assert_ok(npy_parse("3d", BYTES(int_big_fortran_3d), &a));
    assert_array(&a, 'i', 2, 3, (int64_t[]){2, 3, 2});
    for (int i = 0; i < 12; i++) assert_int_equal(((int16_t *)a.data)[i], i - 6);
    npy_free(&a);
    assert_ok(npy_parse("scalar", BYTES(scalar), &a));
    assert_array(&a, 'i', 8, 0, NULL);
    assert_int_equal(*(int64_t *)a.data, -7);
    npy_free(&a);
    assert_ok(npy_parse("empty", BYTES(empty), &a));
    assert_array(&a, 'f', 4, 2, (int64_t[]){0, 4});
    npy_free(&a);
    assert_ok(npy_parse("version 2", BYTES(labels_version_2), &a));
    assert_array(&a, 'i', 4, 1, (int64_t[]){3});
    assert_memory_equal(a.data, ((int32_t[]){3, -1, 2000000000}), 12);
    npy_free(&a);
    assert_ok(npy_parse("version 3", BYTES(bytes_version_3), &a));
    assert_array(&a, 'u', 1, 2, (int64_t[]){1, 2});
    assert_memory_equal(a.data, "\000\377", 2);
    npy_free(&a);
    assert_ok(npy_parse("bool", BYTES(truths), &a));
    assert_array(&a, 'b', 1, 1, (int64_t[]){3});
    assert_memory_equal(a.data, "\001\000\001", 3);
    npy_free(&a);
    npy_free(&a);
    assert_null(a.data);
}

/* Each prefix, in memory of exactly its size, so that the sanitizer sees a read past its end. */
static void assert_all_prefixes_fail(const char *what, const unsigned char *bytes, size_t n) {
    for (size_t length = 0; length < n; length++) {
        npy a;
        unsigned char *copy = malloc(length ? length : 1);
        memcpy(copy, bytes, length);
        assert_fails(CONR_EFORMAT, what, npy_parse(what, copy, length, &a));
        assert_null(a.data);
        free(copy);
    }
}

static void refuses_every_cut_file(void **state) {
    (void)state;
    assert_all_prefixes_fail("float", BYTES(float_matrix));
    assert_all_prefixes_fail("double", BYTES(double_big_fortran));
    assert_all_prefixes_fail("scalar", BYTES(scalar));
    assert_all_prefixes_fail("empty", BYTES(empty));
    assert_all_prefixes_fail("version 2", BYTES(labels_version_2));
    assert_all_prefixes_fail("version 3", BYTES(bytes_version_3));
}

static void survives_every_changed_byte(void **state) {
    (void)state;
    unsigned char copy[sizeof double_big_fortran];
    for (size_t at = 0; at < sizeof copy - 1; at++)
        for (int value = 0; value < 256; value++) {
            npy a;
            memcpy(copy, double_big_fortran, sizeof copy);
            copy[at] = (unsigned char)value;
            int rc = npy_parse("changed", copy, sizeof copy - 1, &a);
            assert_true(rc == 0 || rc == CONR_EFORMAT);
            assert_true((rc == 0) == (a.data != NULL));
            npy_free(&a);
        }
}

/* A version 1.0 file of this header and n_data zero bytes. */
static int parse_made(const char *header, size_t n_data, npy *out) {
    size_t length = strlen(header), n = 10 + length + n_data;
    unsigned char *bytes = calloc(n, 1);
    memcpy(bytes, "\223NUMPY\001\000", 8);
    bytes[8] = (unsigned char)(length & 255);
    bytes[9] = (unsigned char)(length >> 8);
    memcpy(bytes + 10, header, length);
    int rc = npy_parse("made.npy", bytes, n, out);
    free(bytes);
    return rc;
}

#define HEADER(descr, shape) "{'descr': " descr ", 'fortran_order': False, 'shape': " shape ", }\n"

static void reads_headers_of_other_writers(void **state) {
    (void)state;
    static const struct {
        const char *header;
        size_t n_data;
    } good[] = {
        {HEADER("'<f4'", "(2L, 3L)"), 24}, /* NumPy under Python 2 */
        {HEADER("'<f4'", "(2, 3,)"), 24},
        {HEADER("\"<f4\"", "(6,)"), 24},
        {HEADER("'<i1'", "(6,)"), 6},
        {HEADER("'<f8'", "(1, 1, 1, 1, 1, 1, 1, 3)"), 24},
        {HEADER("'<f8'", "(0, 3)"), 0},
        {"{\"shape\":(3,),\"fortran_order\":True,\"descr\":\"|u1\"}", 3}, /* any order, no spaces */
        {"  {\n'shape' : ( 3 , ) , 'fortran_order' : False , 'descr' : '>u2' }\t\n", 6},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        npy a;
        assert_ok(parse_made(good[i].header, good[i].n_data, &a));
        assert_int_equal(a.count * (size_t)a.size, good[i].n_data);
        npy_free(&a);
    }
}

static void refuses_headers_that_lie(void **state) {
    (void)state;
    static const struct {
        const char *header, *message;
        size_t n_data;
    } bad[] = {
        {"", "expected '{' at byte 0", 24},
        {"{}", "expected descr, fortran_order and shape at byte 2", 24},
        {"{", "expected quoted text", 24},
        {"[('a', 1)]", "expected '{'", 24},
        {"{'descr': '<f4', 'shape': (6,)}", "expected descr, fortran_order and shape", 24},
        {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (6,)}", "once each",
         24},
        {"{'more': 1, 'descr': '<f4', 'fortran_order': False, 'shape': (6,)}", "once each", 24},
        {"{'descr': '<f4' 'fortran_order': False, 'shape': (6,)}", "expected ','", 24},
        {"{'descr' '<f4', 'fortran_order': False, 'shape': (6,)}", "expected ':'", 24},
        {"{'descr': '<f4', 'fortran_order': Maybe, 'shape': (6,)}", "True or False", 24},
        {"{'descr': '<f4', 'fortran_order': 0, 'shape': (6,)}", "True or False", 24},
        {HEADER("'<f4'", "(6,)") "x", "expected the end", 24},
        {HEADER("'<f4'", "(6,)") "{}", "expected the end", 24},
        {HEADER("<f4", "(6,)"), "expected quoted text", 24},
        {HEADER("'<f\\x34'", "(6,)"), "plain text", 24},
        {HEADER("'<f\n4'", "(6,)"), "plain text", 24},
        {HEADER("'<f\3774'", "(6,)"), "plain text", 24},
        {HEADER("''", "(6,)"), "a type such as", 24},
        {HEADER("'f4'", "(6,)"), "a type such as", 24},
        {HEADER("'=f4'", "(6,)"), "a type such as", 24},
        {HEADER("'<'", "(6,)"), "unknown kind", 24},
        {HEADER("'<f'", "(6,)"), "an unsupported size", 24},
        {HEADER("'<f16'", "(6,)"), "(dtype '<f16')", 96},
        {HEADER("'<f3'", "(6,)"), "an unsupported size", 18},
        {HEADER("'<f-'", "(6,)"), "an unsupported size", 18},
        {HEADER("'|f4'", "(6,)"), "an unsupported size", 24},
        {HEADER("'|b2'", "(6,)"), "an unsupported size", 12},
        {HEADER("'|O'", "(6,)"), "holds Python objects (dtype '|O')", 24},
        {HEADER("'|S4'", "(6,)"), "holds text", 24},
        {HEADER("'<U1'", "(6,)"), "holds text", 24},
        {HEADER("'<c8'", "(3,)"), "holds complex numbers", 24},
        {HEADER("'<M8[ns]'", "(3,)"), "holds dates", 24},
        {HEADER("'|V4'", "(6,)"), "holds raw bytes", 24},
        {HEADER("[('a', '<f4'), ('b', '<i4')]", "(3,)"), "structured dtype", 24},
        {HEADER("'<f4'", "6"), "a shape such as", 24},
        {HEADER("'<f4'", "(6)"), "a comma", 24},
        {HEADER("'<f4'", "(2 3)"), "a comma", 24},
        {HEADER("'<f4'", "(,)"), "a size, 0 or more,", 24},
        {HEADER("'<f4'", "(6"), "a size, 0 or more,", 24},
        {HEADER("'<f4'", "(-6,)"), "a size, 0 or more,", 24},
        {HEADER("'<f4'", "(6.0,)"), "a comma", 24},
        {HEADER("'<f4'", "(1, 1, 1, 1, 1, 1, 1, 2, 3)"), "more than 8 dimensions", 24},
        {HEADER("'<f4'", "(9223372036854775808,)"), "below 2^63", 24},
        {HEADER("'<f4'", "(99999999999999999999999999,)"), "below 2^63", 24},
        {HEADER("'<f4'", "(9223372036854775807,)"), "larger than any memory", 24},
        {HEADER("'<f4'", "(4294967296, 4294967296)"), "larger than any memory", 24},
        {HEADER("'<f4'", "(0, 4294967296, 4294967296)"), "larger than any memory", 0},
        {HEADER("'<f4'", "(2305843009213693951,)"), "has 24 bytes of data, expected 92233720", 24},
        {HEADER("'<f4'", "(7,)"), "has 24 bytes of data, expected 28; was it cut", 24},
        {HEADER("'<f4'", "(5,)"), "expected 20; save one array to one file", 24},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        npy a;
        assert_fails(CONR_EFORMAT, bad[i].message, parse_made(bad[i].header, bad[i].n_data, &a));
        assert_null(a.data);
    }
}

static void refuses_other_files(void **state) {
    (void)state;
    npy a;
    assert_fails(CONR_EFORMAT, "is empty, not a .npy file", npy_parse("none", NULL, 0, &a));
    assert_fails(CONR_EFORMAT, "is not a .npy file;",
                 npy_parse("zip", BYTES("PK\003\004 and more"), &a));
    assert_fails(CONR_EFORMAT, "version 4.0",
                 npy_parse("new", BYTES("\223NUMPY\004\000v\000{"), &a));
    assert_fails(CONR_EFORMAT, "version 1.1",
                 npy_parse("new", BYTES("\223NUMPY\001\001v\000{"), &a));
    assert_fails(CONR_EFORMAT, "ends within its header",
                 npy_parse("long", BYTES("\223NUMPY\002\000\377\377\377\377{}"), &a));
    assert_fails(CONR_EFILE, "No such file", npy_read(temporary_path("missing.npy"), &a));
    assert_fails(CONR_EFILE, "is a folder", npy_read("/tmp", &a));
    assert_fails(CONR_EFORMAT, "is empty", npy_read(temporary_file("empty.npy", "", 0), &a));
    npy_free(&a);
}

static const char *file_of(const char *name, const unsigned char *bytes, size_t n) {
    return temporary_file(name, bytes, n);
}

static void reads_features_of_any_number(void **state) {
    (void)state;
    float *x = NULL;
    int64_t n, d;
    assert_ok(npy_read_features(file_of("a.npy", BYTES(float_matrix)), &x, &n, &d));
    assert_true(n == 2 && d == 3);
    assert_memory_equal(x, ((float[]){1.5f, -2, 3e-40f, 4, 5, 16777216}), 24);
    free(x);
    assert_ok(npy_read_features(file_of("a.npy", BYTES(double_big_fortran)), &x, &n, &d));
    assert_true(n == 2 && d == 3);
    assert_memory_equal(x, ((float[]){1, 2, 3, 4, 5, 6.25f}), 24);
    free(x);
    assert_ok(npy_read_features(file_of("a.npy", BYTES(bytes_version_3)), &x, &n, &d));
    assert_true(n == 1 && d == 2 && x[0] == 0 && x[1] == 255);
    free(x);
    assert_ok(npy_read_features(file_of("a.npy", BYTES(labels_version_2)), &x, &n, &d));
    assert_true(n == 3 && d == 1 && x[0] == 3 && x[1] == -1 && x[2] == 2e9f);
    free(x);
    assert_ok(npy_read_features(file_of("a.npy", BYTES(unsigned_big)), &x, &n, &d));
    assert_true(n == 2 && d == 1 && x[0] == 1 && x[1] == 0x1p64f);
    free(x);
    assert_ok(npy_read_features(file_of("a.npy", BYTES(halves)), &x, &n, &d));
    assert_true(n == 8 && d == 1);
    assert_memory_equal(
        x, ((float[]){1.5f, -2, 65504, 0x1p-14f, 0x1p-24f, -1023 * 0x1p-24f, 0, -0.0f}), 32);
    free(x);
}

static void names_the_row_that_is_not_finite(void **state) {
    (void)state;
    float *x = NULL, values[4][3] = {{0}};
    int64_t n, d, shape[] = {4, 3};
    const char *path = temporary_path("nan.npy");
    values[2][1] = NAN;
    values[3][0] = NAN;
    assert_ok(npy_write(path, 'f', 4, 2, shape, values));
    assert_fails(CONR_ENUMBER, "nan.npy: row 2 has NaN at column 1",
                 npy_read_features(path, &x, &n, &d));
    values[0][2] = -INFINITY;
    assert_ok(npy_write(path, 'f', 4, 2, shape, values));
    assert_fails(CONR_ENUMBER, "row 0 has an infinite value at column 2",
                 npy_read_features(path, &x, &n, &d));
    double wide[] = {1, 1e39};
    assert_ok(npy_write(path, 'f', 8, 1, (int64_t[]){2}, wide));
    assert_fails(CONR_ENUMBER, "row 1 has an infinite value at column 0",
                 npy_read_features(path, &x, &n, &d));
    uint16_t half_nan[] = {0x7c01, 0}, half_infinite[] = {0, 0xfc00};
    assert_ok(npy_write(path, 'f', 2, 1, (int64_t[]){2}, half_nan));
    assert_fails(CONR_ENUMBER, "row 0 has NaN at column 0", npy_read_features(path, &x, &n, &d));
    assert_ok(npy_write(path, 'f', 2, 1, (int64_t[]){2}, half_infinite));
    assert_fails(CONR_ENUMBER, "row 1 has an infinite value at column 0",
                 npy_read_features(path, &x, &n, &d));
    assert_null(x);
}

static void refuses_what_is_no_features(void **state) {
    (void)state;
    float *x = NULL;
    int64_t n, d;
    assert_fails(CONR_EINVAL, "holds bool",
                 npy_read_features(file_of("b.npy", BYTES(truths)), &x, &n, &d));
    assert_fails(CONR_EINVAL, "has 0 dimensions",
                 npy_read_features(file_of("b.npy", BYTES(scalar)), &x, &n, &d));
    assert_fails(CONR_EINVAL, "has 3 dimensions",
                 npy_read_features(file_of("b.npy", BYTES(int_big_fortran_3d)), &x, &n, &d));
    assert_fails(CONR_EINVAL, "b.npy: 0 rows of 4 values",
                 npy_read_features(file_of("b.npy", BYTES(empty)), &x, &n, &d));
    assert_null(x);
}

static void reads_labels(void **state) {
    (void)state;
    int64_t *y = NULL, n;
    assert_ok(npy_read_labels(file_of("y.npy", BYTES(labels_version_2)), &y, &n));
    assert_true(n == 3 && y[0] == 3 && y[1] == -1 && y[2] == 2000000000);
    free(y);
    y = NULL;
    assert_fails(CONR_EINVAL, "label 1 (from 0) is 18446744073709551615",
                 npy_read_labels(file_of("y.npy", BYTES(unsigned_big)), &y, &n));
    assert_fails(CONR_EINVAL, "holds floats",
                 npy_read_labels(file_of("y.npy", BYTES(float_matrix)), &y, &n));
    assert_fails(CONR_EINVAL, "holds bool",
                 npy_read_labels(file_of("y.npy", BYTES(truths)), &y, &n));
    assert_fails(CONR_EINVAL, "has 2 dimensions",
                 npy_read_labels(file_of("y.npy", BYTES(bytes_version_3)), &y, &n));
    const char *path = temporary_path("no_labels.npy");
    assert_ok(npy_write(path, 'i', 4, 1, (int64_t[]){0}, NULL));
    assert_fails(CONR_EINVAL, "is empty", npy_read_labels(path, &y, &n));
    assert_null(y);
}

static void assert_file_is(const char *path, const unsigned char *bytes, size_t n) {
    file_map m;
    assert_ok(file_map_open(path, &m));
    assert_int_equal(m.size, n);
    assert_memory_equal(m.data, bytes, n);
    file_map_close(&m);
}

static void writes_the_bytes_of_numpy(void **state) {
    (void)state;
    const char *path = temporary_path("w.npy");
    float values[] = {1.5f, -2, 3e-40f, 4, 5, 16777216};
    assert_ok(npy_write(path, 'f', 4, 2, (int64_t[]){2, 3}, values));
    assert_file_is(path, BYTES(float_matrix));
    assert_ok(npy_write(path, 'i', 8, 0, NULL, (int64_t[]){-7}));
    assert_file_is(path, BYTES(scalar));
    assert_ok(npy_write(path, 'f', 4, 2, (int64_t[]){0, 4}, NULL));
    assert_file_is(path, BYTES(empty));
    assert_ok(npy_write(path, 'b', 1, 1, (int64_t[]){3}, "\001\000\001"));
    assert_file_is(path, BYTES(truths));
}

static void writes_and_reads_every_type(void **state) {
    (void)state;
    static const struct {
        char kind;
        int size;
    } types[] = {{'f', 2}, {'f', 4}, {'f', 8}, {'i', 1}, {'i', 2}, {'i', 4},
                 {'i', 8}, {'u', 1}, {'u', 2}, {'u', 4}, {'u', 8}, {'b', 1}};
    static const int64_t shape[] = {1, 1, 2, 1, 3, 1, 1, 2}; /* the most dimensions */
    unsigned char bytes[96];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)(37 * i);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        npy a;
        const char *path = temporary_path("types.npy");
        assert_ok(npy_write(path, types[i].kind, types[i].size, 8, shape, bytes));
        assert_ok(npy_read(path, &a));
        assert_array(&a, types[i].kind, types[i].size, 8, shape);
        assert_memory_equal(a.data, bytes, 12 * (size_t)types[i].size);
        npy_free(&a);
    }
    assert_fails(CONR_EFILE, "No such file",
                 npy_write(temporary_path("none/x.npy"), 'f', 4, 2, (int64_t[]){2, 3}, bytes));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_numpy_writes),
        cmocka_unit_test(refuses_every_cut_file),
        cmocka_unit_test(survives_every_changed_byte),
        cmocka_unit_test(reads_headers_of_other_writers),
        cmocka_unit_test(refuses_headers_that_lie),
        cmocka_unit_test(refuses_other_files),
        cmocka_unit_test(reads_features_of_any_number),
        cmocka_unit_test(names_the_row_that_is_not_finite),
        cmocka_unit_test(refuses_what_is_no_features),
        cmocka_unit_test(reads_labels),
        cmocka_unit_test(writes_the_bytes_of_numpy),
        cmocka_unit_test(writes_and_reads_every_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
