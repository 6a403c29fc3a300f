/* section.h: the sections of a report, from top to bottom, and what they share.  Sections only
 * write what has been gathered; they compute nothing but places on the page. */
#ifndef CONR_SECTION_H
#define CONR_SECTION_H

#include "report/report.h"

#include <stdio.h>

void section_write_summary(FILE *f, const report *r);
void section_write_clusters(FILE *f, const report *r);
int section_write_map(FILE *f, const report *r);
void section_write_neighbors(FILE *f, const report *r);
/* Clusters of features without labels have nothing to draw. */
bool section_has_curves(const report *r);
void section_write_curves(FILE *f, const report *r);
void section_write_settings(FILE *f, const report *r);

/* The picture of an image as <img>, or its name if there is no picture.  frame: a class of
 * page.css, or "". */
void section_picture(FILE *f, const report *r, int64_t id, const char *frame);
/* The color of cluster or class i; as text "#rrggbb" (static memory, good for the last four
 * calls). */
void section_rgb(int i, unsigned char rgb[3]);
const char *section_color(int i);
/* "images", or "rows" of features that came without; one: of a single one. */
const char *section_things(const report *r, bool one);
/* The name of a file without its folders; for an image of an array its number: "#17". */
const char *section_name(const char *path);
void section_percent(FILE *f, double share);

#endif
