/* npy.h: NumPy's .npy files, read and written.
 *
 * Versions 1 to 3 of the format.  Arrays of either byte order, in C or Fortran order, are read into
 * native, row-major arrays. */
#ifndef CONR_NPY_H
#define CONR_NPY_H

#include "base/file.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NPY_DIMS = 8 };

typedef struct npy {
    char kind;  /* 'f' float, 'i' signed, 'u' unsigned, 'b' bool */
    int size;   /* bytes of an element: f 2 4 8; i, u 1 2 4 8; b 1 */
    int n_dims; /* 0 for a scalar */
    int64_t dim[NPY_DIMS];
    size_t count; /* product of dim */
    void *data;   /* [count], aligned; owned, freed by npy_free */
} npy;

/* Whether a file begins as one; fails if it cannot be read. */
int npy_is(const char *path, bool *out);

int npy_read(const char *path, npy *out);
/* Everything but the elements, for arrays that are read in pieces: out->data stays NULL.  *data:
 * where they begin in the file; 0 if they are in another order than C's or another byte order. */
int npy_head(const file_reader *file, const char *path, npy *out, size_t *data);
/* The same from memory: the n bytes of a file that messages call `name`. */
int npy_parse(const char *name, const unsigned char *bytes, size_t n, npy *out);
void npy_free(npy *a); /* may follow a failed read, and may be called twice */

/* Reads any float or integer matrix as float [n,d] (a vector is [n,1]).  Refuses an empty matrix,
 * and NaN and infinity, naming the first row with one.  The caller releases *out by free(). */
int npy_read_features(const char *path, float **out, int64_t *n, int64_t *d);

/* The same for rows total*part/parts .. total*(part+1)/parts-1 only, at least one: *n of *total. */
int npy_read_features_part(const char *path, int part, int parts, float **out, int64_t *n,
                           int64_t *d, int64_t *total);

/* Reads a vector of integers, not empty, as int64.  The caller releases *out by free(). */
int npy_read_labels(const char *path, int64_t **out, int64_t *n);

/* Writes version 1.0; the file appears complete or not at all.  kind and size as in npy. */
int npy_write(const char *path, char kind, int size, int n_dims, const int64_t *dim,
              const void *data);

/* Shared with other formats.
 * npy_count: the product of n_dims sizes, each >= 0; false if the bytes of such an array (with 0
 * counted as 1) exceed PTRDIFF_MAX, so that no later product overflows either.
 * npy_floats: elements of a kind and size as above, little-endian, of any alignment, rounded to
 * float.  in: [count], out: [count], not overlapping. */
bool npy_count(const int64_t *dim, int n_dims, size_t size, size_t *count);
void npy_floats(char kind, int size, const void *in, size_t count, float *out);

#endif
