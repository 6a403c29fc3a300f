/* ref.h: the parts of the reference table; device_ref_ops (ref.c) puts them together. */
#ifndef CONR_REF_H
#define CONR_REF_H

#include "device/device.h"

void ref_layers(device_ops *op);       /* convolution, batch norm, pools */
void ref_losses(device_ops *op);       /* pull, contrast, boundary filter */
void ref_prototypes(device_ops *op);   /* prototype scattering, noise */
void ref_views_ops(device_ops *op);    /* views, lanes */
void ref_transformers(device_ops *op); /* dense layers, layer norm, attention */

#endif
