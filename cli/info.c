/* info.c: conr info: what a source of images is. */
#include "cli.h"

#include "conr.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const flag flags[] = {
    {"split", "NAME", NULL, "only this part: train, val, test, unlabeled"},
    {"labels", "WORD", "fine", "fine or coarse, of CIFAR-100"},
    {"classes", "A,B,...", NULL, "only these class folders"},
    {0},
};

enum { CLASSES_SHOWN = 30 }; /* of a text; --json has them all */

/* A name as a terminal can take it: control bytes become '?'. */
static void print_name(const char *name) {
    for (; *name; name++) putchar(iscntrl((unsigned char)*name) ? '?' : *name);
}

/* JSON is UTF-8: bytes that are not become '?'. */
static json_t *json_name(const char *name) {
    json_t *text = json_string(name);
    if (text) return text;
    size_t n = strlen(name);
    char *plain = malloc(n + 1);
    if (!plain) return json_null();
    for (size_t i = 0; i <= n; i++) plain[i] = (unsigned char)name[i] < 128 ? name[i] : '?';
    text = json_string(plain);
    free(plain);
    return text;
}

static int on_count(int64_t done, int64_t total, void *user) {
    time_t *last = user, now = time(NULL);
    if (*last != now) fprintf(stderr, "\rheaders %lld/%lld ", (long long)done, (long long)total);
    *last = now;
    return 0;
}

static void print_range(const char *what, const int range[2]) {
    if (range[0] == range[1])
        printf("%d %s", range[0], what);
    else
        printf("%d to %d %s", range[0], range[1], what);
}

static int print_text(const char *src, const conr_images *m, const conr_images_info *i) {
    print_name(src);
    printf(": %s\n  images   %lld", i->kind, (long long)i->n);
    if (i->skipped) printf(", and %lld that cannot be read", (long long)i->skipped);
    printf("\n  size     ");
    print_range("wide", i->width);
    printf(", ");
    print_range("high", i->height);
    printf(", %s\n  classes  ", i->channels == 1 ? "gray" : "color");
    if (!i->classes) printf("none known");
    for (int k = 0; k < i->classes && k < CLASSES_SHOWN; k++) {
        int64_t count;
        const char *name = conr_images_class(m, k, &count);
        if (k == 0) printf("%d: ", i->classes);
        if (k > 0) printf(", ");
        print_name(name);
        printf(" %lld", (long long)count);
    }
    if (i->classes > CLASSES_SHOWN) printf(", ...");
    if (i->classes && i->labeled < i->n) printf("; %lld unlabeled", (long long)(i->n - i->labeled));
    putchar('\n');
    return finish_output();
}

static int print_as_json(const char *src, const conr_images *m, const conr_images_info *i) {
    json_t *classes = json_array();
    for (int k = 0; k < i->classes; k++) {
        int64_t count;
        const char *name = conr_images_class(m, k, &count);
        json_array_append_new(
            classes, json_pack("{so sI}", "name", json_name(name), "count", (json_int_t)count));
    }
    json_t *first = i->first_skipped ? json_name(i->first_skipped) : json_null();
    return print_json(json_pack(
        "{so ss sI sI sI so s[ii] s[ii] si so}", "source", json_name(src), "kind", i->kind,
        "images", (json_int_t)i->n, "labeled", (json_int_t)i->labeled, "skipped",
        (json_int_t)i->skipped, "first_skipped", first, "width", i->width[0], i->width[1], "height",
        i->height[0], i->height[1], "channels", i->channels, "classes", classes));
}

static int describe(conr *c, const arguments *a) {
    const char *src = operand(a, 0), *labels = flag_text(a, "labels");
    bool show = isatty(STDERR_FILENO) && !flag_on(a, "quiet");
    conr_images_options o = conr_images_defaults();
    conr_images_info info;
    conr_images *m;
    time_t last = time(NULL);
    if (strcmp(labels, "fine") && strcmp(labels, "coarse"))
        return usage_error("--labels %s: no such labels; use fine or coarse", labels);
    o.split = flag_text(a, "split");
    o.classes = flag_text(a, "classes");
    o.coarse = !strcmp(labels, "coarse");
    int opened = conr_images_open(c, src, &o, show ? on_count : NULL, &last, &m);
    if (show) fprintf(stderr, "\r%40s\r", "");
    if (opened < 0) return library_error();
    conr_images_about(m, &info);
    if (info.skipped)
        fprintf(stderr, "conr: warning: %lld of %lld images are skipped, the first: %s\n",
                (long long)info.skipped, (long long)(info.n + info.skipped), info.first_skipped);
    int rc = flag_on(a, "json") ? print_as_json(src, m, &info) : print_text(src, m, &info);
    conr_images_close(m);
    return rc;
}

static int run(const arguments *a) {
    int threads, rc;
    conr *c;
    if ((rc = flag_int(a, "threads", 0, 1024, &threads))) return rc;
    if (conr_open(flag_text(a, "device"), threads, &c) < 0) return library_error();
    rc = describe(c, a);
    conr_close(c);
    return rc;
}

const verb verb_info = {
    .name = "info",
    .operands = "SRC",
    .summary = "say what a source of images is, how many, which classes",
    .text =
        "  SRC is a folder of JPEG, PNG or WebP images, flat or one subfolder a class, with or\n"
        "  without train/ and val/ or test/ above them; the folder of CIFAR-10, CIFAR-100 or\n"
        "  STL-10 binary files, or of Tiny-ImageNet; IDX files, gzipped or not; a .npy array of\n"
        "  uint8; or a text file of paths, each with an optional tab and label.\n"
        "\nExample: conr info photos/ --json\n",
    .low = 1,
    .high = 1,
    .flags = flags,
    .run = run,
};
