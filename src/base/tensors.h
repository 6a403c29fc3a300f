/* tensors.h: safetensors files, read and written.
 *
 * A file is 8 bytes of header length, a JSON header (name -> dtype, shape, data_offsets, plus
 * "__metadata__", text to text), then the elements.  Every length is checked against the file
 * before it is used, and what tensors_write wrote also against the checksum it left in the
 * metadata.  The file is read as a whole. */
#ifndef CONR_TENSORS_H
#define CONR_TENSORS_H

#include <stddef.h>
#include <stdint.h>

enum { TENSOR_DIMS = 8 };

typedef enum tensor_type {
    TENSOR_F64,
    TENSOR_F32,
    TENSOR_F16,
    TENSOR_BF16,
    TENSOR_I64,
    TENSOR_I32,
    TENSOR_I16,
    TENSOR_I8,
    TENSOR_U8,
    TENSOR_BOOL
} tensor_type;

typedef struct tensor {
    const char *name;
    tensor_type type;
    int n_dims; /* 0 for a scalar */
    int64_t dim[TENSOR_DIMS];
    size_t count;     /* product of dim */
    const void *data; /* [count], little-endian, not necessarily aligned */
} tensor;

typedef struct tensor_note {
    const char *key, *value;
} tensor_note;

/* An open file.  Owns everything its fields point to. */
typedef struct tensors {
    const char *path;
    tensor *tensor; /* [n], in the order of their data in the file */
    int n;
    tensor_note *note; /* [n_notes], the metadata */
    int n_notes;
    struct tensors_memory *memory;
} tensors;

int tensors_open(const char *path, tensors *out);
/* The same from memory: the n bytes of a file that messages call `name`.  They must outlive *out,
 * which points into them. */
int tensors_parse(const char *name, const unsigned char *bytes, size_t n, tensors *out);
void tensors_close(tensors *t); /* may follow a failed open, and may be called twice */

/* NULL if there is none. */
const tensor *tensors_find(const tensors *t, const char *name);
const char *tensors_note(const tensors *t, const char *key);

/* Bytes of an element of this type, and the name of the type in the file ("F32"). */
size_t tensor_size(tensor_type type);
const char *tensor_type_name(tensor_type type);

/* The nearest half-precision number, ties to even; infinity beyond its range. */
uint16_t tensor_half(float x);

/* All elements as float; out: [t->count], owned by the caller.  F64, F32, F16, BF16, BOOL and
 * integers up to 32 bits are rounded; I64 must be exact as float.  NaN and infinity pass, but an
 * F64 beyond the range of float fails. */
int tensors_floats(const tensors *file, const tensor *t, float *out);

/* As above, but fails unless the tensor exists and has exactly this shape. */
int tensors_take(const tensors *file, const char *name, int n_dims, const int64_t *dim, float *out);

/* The file appears complete or not at all: a crash leaves an old one intact.  Tensors of larger
 * elements come first, otherwise in the given order, so that all are aligned.  Names are UTF-8
 * without control characters, each used once. */
int tensors_write(const char *path, const tensor *tensor, int n, const tensor_note *note,
                  int n_notes);

#endif
