/* export.h: a model in formats that other programs read. */
#ifndef CONR_EXPORT_H
#define CONR_EXPORT_H

#include "model/model.h"

/* An ONNX file of everything from pixels in [0,1] to unit rows. */
int export_onnx(const conr_model *m, const char *path);

#endif
