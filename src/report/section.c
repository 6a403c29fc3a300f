/* section.c: what the sections share: colors, pictures, names. */
#include "report/section.h"

#include "report/html.h"
#include "report/order.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Colors that can be told apart on white and on near black; after those, hues a golden angle apart.
 * */
void section_rgb(int i, unsigned char rgb[3]) {
    static const unsigned char first[][3] = {
        {0x2f, 0x7d, 0xd1}, {0xe0, 0x7b, 0x1a}, {0x2c, 0x9a, 0x4b}, {0xd6, 0x45, 0x50},
        {0x8f, 0x62, 0xc8}, {0x9a, 0x6b, 0x4f}, {0xd9, 0x5f, 0xa8}, {0x7d, 0x84, 0x8c},
        {0xa3, 0x9a, 0x1c}, {0x17, 0x9f, 0xae}, {0x5b, 0x6f, 0xe6}, {0xb8, 0x4d, 0x1e}};
    enum { FIRST = sizeof first / sizeof *first };
    if (i < FIRST) {
        memcpy(rgb, first[i], 3);
        return;
    }
    double hue = fmod(i * 137.508, 360) / 60, light = 0.46 + 0.07 * (i % 3 - 1), strong = 0.5;
    double c = (1 - fabs(2 * light - 1)) * strong, x = c * (1 - fabs(fmod(hue, 2) - 1));
    double part[6][3] = {{c, x, 0}, {x, c, 0}, {0, c, x}, {0, x, c}, {x, 0, c}, {c, 0, x}};
    for (int k = 0; k < 3; k++)
        rgb[k] = (unsigned char)lround(255 * (part[(int)hue][k] + light - c / 2));
}

const char *section_color(int i) {
    static _Thread_local char text[4][8];
    static _Thread_local unsigned at;
    unsigned char rgb[3];
    char *out = text[at++ % 4];
    section_rgb(i, rgb);
    snprintf(out, sizeof text[0], "#%02x%02x%02x", rgb[0], rgb[1], rgb[2]);
    return out;
}

const char *section_things(const report *r, bool one) {
    if (r->never_pictures) return one ? "row" : "rows";
    return one ? "image" : "images";
}

const char *section_name(const char *path) {
    const char *slash = strrchr(path, '/'), *number = strrchr(path, '#');
    if (number && number[1] && !number[1 + strspn(number + 1, "0123456789")]) return number;
    return slash && slash[1] ? slash + 1 : path;
}

/* "IMG_1.jpg, Sneaker" */
static void write_about(FILE *f, const report *r, int64_t id) {
    html_text(f, section_name(r->f->image[id]));
    if (r->labeled && r->f->label[id] >= 0)
        html_print(f, ", %s", folder_class(r->f, r->f->label[id]));
}

void section_picture(FILE *f, const report *r, int64_t id, const char *frame) {
    const int64_t *at =
        r->picture ? bsearch(&id, r->shown, (size_t)r->n_shown, sizeof id, by_id) : NULL;
    const webp *p = at ? &r->picture[at - r->shown] : NULL;
    if (!p || !p->n) {
        fprintf(f, "<span class=\"pic none %s\" title=\"", frame);
        html_text(f, r->f->image[id]);
        fputs("\">", f);
        write_about(f, r, id);
        fputs("</span>", f);
        return;
    }
    fprintf(f, "<img class=\"pic %s%s\" width=\"%d\" height=\"%d\" decoding=\"async\" alt=\"",
            frame, r->side <= 40 ? " px" : "", r->side, r->side);
    write_about(f, r, id);
    fputs("\" title=\"", f);
    write_about(f, r, id);
    fputs("\" src=\"data:image/webp;base64,", f);
    html_base64(f, p->bytes, p->n);
    fputs("\">", f);
}

void section_percent(FILE *f, double share) {
    fprintf(f, share > 0 && share < 0.0995 ? "%.1f&#8239;%%" : "%.0f&#8239;%%", 100 * share);
}
