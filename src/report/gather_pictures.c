/* gather_pictures.c: thumbnails of the images that the page shows one by one, and the sheets of
 * thumbnails that the map draws from. */
#include "report/gather_parts.h"

#include "base/memory.h"
#include "base/status.h"
#include "report/order.h"

#include <stdlib.h>

static const size_t SHEET_BYTES = 9 << 20; /* of all sheets, before base64 */

static int at_most(int value, int most) { return value < most ? value : most; }

/* All images that are shown one by one, without duplicates. */
static int list_shown(report *r) {
    size_t room = (size_t)r->n_queries * (1 + 2 * REPORT_NEAR);
    int n = 0;
    for (int k = 0; k < r->K; k++)
        room += (size_t)r->cluster[k].n_central + r->cluster[k].n_boundary;
    int64_t *id = r->shown = memory_new("pictures", room, sizeof *id);
    if (!id) return CONR_ENOMEM;
    for (int k = 0; k < r->K; k++) {
        const report_cluster *c = &r->cluster[k];
        for (int i = 0; i < c->n_central; i++) id[n++] = c->central[i];
        for (int i = 0; i < c->n_boundary; i++) id[n++] = c->boundary[i];
    }
    for (int i = 0; i < r->n_queries; i++) {
        id[n++] = r->query[i].id;
        for (int kind = 0; kind < 2; kind++)
            for (int at = 0; at < REPORT_NEAR; at++)
                if (r->query[i].near[kind][at] >= 0) id[n++] = r->query[i].near[kind][at];
    }
    qsort(id, (size_t)n, sizeof *id, by_id);
    for (int i = 0; i < n; i++)
        if (r->n_shown == 0 || id[r->n_shown - 1] != id[i]) id[r->n_shown++] = id[i];
    return 0;
}

/* The thumbnails of the map, as large as SHEET_BYTES allows. */
static int gather_sheets(conr *c, report *r, const pictures *p) {
    int rc = 0, threads = c->host->threads;
    int side = r->n_points <= 2000 ? 64 : r->n_points <= 6000 ? 48 : r->n_points <= 12000 ? 32 : 28;
    thumbs_source from = pictures_thumbs(p);
    thumbs t = {0};
    r->n_sheets = thumbs_sheets(r->n_points);
    r->sheet = calloc((size_t)r->n_sheets + 1, sizeof *r->sheet);
    if (!r->sheet) TRY(fail_memory("pictures", 1000));
    for (side = at_most(side, p->native);; side = side * 3 / 4) {
        size_t bytes = 0;
        TRY(thumbs_make(&from, r->point, r->n_points, side, threads, &t));
        TRY(thumbs_encode_sheets(&t, side > 40 ? 70 : 78, threads, r->sheet));
        thumbs_free(&t);
        for (int i = 0; i < r->n_sheets; i++) bytes += r->sheet[i].n;
        r->sheet_side = side;
        if (bytes <= SHEET_BYTES || side < 12) break;
        for (int i = 0; i < r->n_sheets; i++) webp_free(&r->sheet[i]);
    }
done:
    thumbs_free(&t);
    return rc;
}

int gather_pictures(conr *c, report *r, const pictures *p) {
    int rc = 0;
    thumbs_source from = pictures_thumbs(p);
    thumbs t = {0};
    r->side = at_most(r->K <= 20 ? 96 : r->K <= 60 ? 64 : 48, p->native);
    TRY(list_shown(r));
    TRY(device_report(c->dev, "pictures", 0, r->n_shown));
    TRY(thumbs_make(&from, r->shown, r->n_shown, r->side, c->host->threads, &t));
    r->picture = calloc((size_t)r->n_shown + 1, sizeof *r->picture);
    if (!r->picture) TRY(fail_memory("pictures", 16.0 * r->n_shown));
    TRY(thumbs_encode(&t, 80, c->host->threads, r->picture));
    TRY(gather_sheets(c, r, p));
done:
    thumbs_free(&t);
    return rc;
}
