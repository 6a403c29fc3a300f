/* damage_test.c: files of a run that were damaged or lost are noticed; an older checkpoint takes the
 * place of a damaged one, and the end is the same. */
#include "base/rng.h"
#include "base/tensors.h"
#include "run/run_test_help.h"
#include "settings/settings.h"

#include <stdlib.h>
#include <unistd.h>

enum { CHECKPOINT, NEW, PREVIOUS };
static const char *const names[] = {"checkpoint.safetensors", "checkpoint.new.safetensors",
                                    "checkpoint.previous.safetensors"};

static void copy(const char *from, const char *to) {
    file_map m;
    assert_ok(file_map_open(from, &m));
    FILE *f = fopen(to, "wb");
    assert_true(f && fwrite(m.data, 1, m.size, f) == m.size && fclose(f) == 0);
    file_map_close(&m);
}

static void flip(const char *path, long at, int bit) {
    FILE *f = fopen(path, "r+b");
    assert_true(f && fseek(f, at, SEEK_SET) == 0);
    int byte = fgetc(f);
    assert_true(byte != EOF && fseek(f, at, SEEK_SET) == 0);
    fputc(byte ^ 1 << bit, f);
    assert_int_equal(fclose(f), 0);
}

static long size_of(const char *path) {
    struct stat at;
    assert_int_equal(stat(path, &at), 0);
    return (long)at.st_size;
}

/* A run that never stops, and one that was stopped between two checkpoints, in a folder to copy. */
static char whole[4096], stopped[4096];

static int make_runs(void **state) {
    (void)state;
    conr_settings *s = test_settings("byol");
    snprintf(whole, sizeof whole, "%s", folder("whole"));
    snprintf(stopped, sizeof stopped, "%s", folder("stopped"));
    assert_ok(train(s, (conr_train_options){.out = whole, .no_report = 1}, 1, 0, NULL));
    assert_int_equal(train(s, (conr_train_options){.out = stopped}, 1, 10, NULL), CONR_ESTOPPED);
    conr_settings_free(s);
    return 0;
}

static const char *fresh_copy(void) {
    static int number;
    static const char *const files[] = {"options.yaml", "log.jsonl", "checkpoint.safetensors",
                                        "checkpoint.previous.safetensors"};
    char name[32];
    snprintf(name, sizeof name, "copy-%d", number++);
    const char *run = folder(name);
    assert_int_equal(mkdir(run, 0777), 0);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        copy(file_in(stopped, files[i]), file_in(run, files[i]));
    return run;
}

static int resume(const char *run, caller *a) {
    conr_settings *s = test_settings("byol");
    int rc = train_on(test_images_file(), s,
                      (conr_train_options){.out = run, .resume = 1, .no_report = 1}, 1, a, NULL);
    conr_settings_free(s);
    return rc;
}

/* One bit of the checkpoint: noticed, and the one before it leads to the same end. */
static void flipped_bits(void **state) {
    (void)state;
    int flips = getenv("CONR_TEST_LONG") ? 400 : 25, wrong = 0, unnoticed = 0;
    const char *run = fresh_copy();
    long size = size_of(file_in(run, names[CHECKPOINT]));
    rng r = rng_at(1, 0, 0, RNG_TEST);
    for (int i = 0; i < flips; i++) {
        /* the header now and then, else the numbers */
        long at = (long)rng_below(&r, i % 5 ? (uint32_t)size : 1000);
        int bit = (int)rng_below(&r, 8);
        caller a = {0};
        run = fresh_copy();
        flip(file_in(run, names[CHECKPOINT]), at, bit);
        int rc = resume(run, &a);
        if (rc < 0 || !same_run(whole, run)) {
            print_error("bit %d of byte %ld: %s\n", bit, at, rc < 0 ? conr_error() : "other bits");
            wrong++;
        }
        unnoticed += !strstr(a.message, names[CHECKPOINT]);
    }
    print_message("%d flips, %d unnoticed\n", flips, unnoticed);
    assert_int_equal(wrong, 0);
    /* those that make the checksum a note of another name, and change nothing else */
    assert_true(unnoticed <= flips / 50);
}

static void lost_and_cut_off(void **state) {
    (void)state;
    caller a = {0};
    const char *run = fresh_copy();
    /* the last is gone: from the one before */
    assert_int_equal(unlink(file_in(run, names[CHECKPOINT])), 0);
    assert_ok(resume(run, NULL));
    assert_same_run(whole, run);
    /* the last is cut off: the same, with a warning */
    run = fresh_copy();
    assert_int_equal(truncate(file_in(run, names[CHECKPOINT]), 5000), 0);
    assert_ok(resume(run, &a));
    assert_non_null(strstr(a.message, names[CHECKPOINT]));
    assert_same_run(whole, run);
    /* both are damaged: an error that names the last */
    run = fresh_copy();
    flip(file_in(run, names[CHECKPOINT]), size_of(file_in(run, names[CHECKPOINT])) - 100, 3);
    flip(file_in(run, names[PREVIOUS]), size_of(file_in(run, names[PREVIOUS])) - 100, 3);
    assert_fails(CONR_EFORMAT, names[CHECKPOINT], resume(run, NULL));
    /* but an edited options.yaml is not a reason to go back */
    run = fresh_copy();
    conr_settings *s = test_settings("byol");
    assert_ok(conr_settings_set(s, "width", "8"));
    assert_ok(settings_write(&s->o, file_in(run, "options.yaml")));
    assert_fails(CONR_EFORMAT, "this network has", resume(run, NULL));
    conr_settings_free(s);
}

/* A checkpoint from before K was chosen: options.yaml knows K already, and must not change what
 * comes in between. */
static void before_the_choice(void **state) {
    (void)state;
    conr_settings *s = test_settings("byol");
    static const char *const pairs[][2] = {{"epochs", "5"},
                                           {"stage1_epochs", "3"},
                                           {"clusters", "0"},
                                           {"clusters_high", "6"},
                                           {"eval_every", "1"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        assert_ok(conr_settings_set(s, pairs[i][0], pairs[i][1]));
    conr_train_options o = {.out = folder("chosen"), .no_report = 1};
    char once[4096], run[4096];
    snprintf(once, sizeof once, "%s", o.out);
    assert_ok(train(s, o, 1, 0, NULL));
    o.out = strcpy(run, folder("chosen-late"));
    assert_int_equal(train(s, o, 1, 2, NULL), CONR_ESTOPPED);
    copy(file_in(run, names[CHECKPOINT]), file_in(run, "early"));
    o.resume = 1;
    assert_int_equal(train(s, o, 1, 12, NULL), CONR_ESTOPPED);
    copy(file_in(run, "early"), file_in(run, names[PREVIOUS]));
    assert_int_equal(truncate(file_in(run, names[CHECKPOINT]), 5000), 0);
    assert_ok(train(s, o, 1, 0, NULL));
    assert_same_run(once, run);
    assert_true(same_evaluations(once, run));
    conr_settings_free(s);
}

/* A checkpoint of a version that knew the images by their names only. */
static void older_version(void **state) {
    (void)state;
    const char *run = fresh_copy();
    tensors f;
    tensor_note note[16];
    int n = 0;
    assert_ok(tensors_open(file_in(run, names[CHECKPOINT]), &f));
    for (int i = 0; i < f.n_notes; i++)
        if (!strstr("identity clusters xxh64", f.note[i].key)) note[n++] = f.note[i];
    assert_int_equal(n, f.n_notes - 3);
    assert_ok(tensors_write(file_in(run, "old"), f.tensor, f.n, note, n));
    tensors_close(&f);
    assert_int_equal(rename(file_in(run, "old"), file_in(run, names[CHECKPOINT])), 0);
    conr_settings *s = test_settings("byol");
    conr_train_options o = {.out = run, .resume = 1, .no_report = 1};
    const char *other = temporary_path("other.npy");
    copy(test_images_file(), other);
    assert_fails(CONR_EINVAL, "other images (their paths differ)",
                 train_on(other, s, o, 1, NULL, NULL));
    assert_ok(train(s, o, 1, 0, NULL));
    assert_same_run(whole, run);
    /* and once it has been resumed, by their contents */
    assert_ok(train_on(temporary_path("other.npy"), s, o, 1, NULL, NULL));
    conr_settings_free(s);
}

/* A log that was lost, or lost its end, is continued as text, and says so. */
static void lost_log(void **state) {
    (void)state;
    for (int left = -1; left <= 300; left += 100) {
        const char *run = fresh_copy(), *path = file_in(run, "log.jsonl");
        caller a = {0};
        assert_true(size_of(path) > 310);
        assert_int_equal(left < 0 ? unlink(path) : truncate(path, left), 0);
        assert_ok(resume(run, &a));
        assert_same_run(whole, run);
        assert_non_null(strstr(a.message, "log.jsonl"));
        file_map m;
        int noted = 0;
        assert_ok(file_map_open(file_in(run, "log.jsonl"), &m));
        for (size_t i = 0; i < m.size; i++) { /* every line is an object */
            assert_true(m.data[i] >= ' ' || m.data[i] == '\n');
            if (i == 0 || m.data[i - 1] == '\n') assert_int_equal(m.data[i], '{');
        }
        noted = memmem(m.data, m.size, "\"warning\":\"warning: log.jsonl", 27) != NULL;
        file_map_close(&m);
        assert_true(noted);
    }
}

/* A model with one bit changed is refused. */
static void flipped_model(void **state) {
    (void)state;
    static const char key[] = "\"xxh64\":";
    const char *path = temporary_path("model.safetensors"), *good = file_in(whole, results[0]);
    int flips = getenv("CONR_TEST_LONG") ? 2000 : 200;
    long size = size_of(good);
    rng r = rng_at(2, 0, 0, RNG_TEST);
    conr *c;
    file_map m;
    assert_ok(file_map_open(good, &m));
    const unsigned char *note = memmem(m.data, m.size, key, sizeof key - 1);
    assert_non_null(note);
    long name = note - m.data;
    assert_ok(conr_open("cpu", 1, &c));
    for (int i = 0; i < flips; i++) {
        conr_model *model = NULL;
        long at = (long)rng_below(&r, i % 5 ? (uint32_t)size : 3000);
        if (at >= name && at < name + (long)sizeof key) continue; /* a file without a checksum */
        copy(good, path);
        assert_ok(conr_model_open(c, path, &model));
        conr_model_close(model);
        flip(path, at, (int)rng_below(&r, 8));
        if (conr_model_open(c, path, &model) == 0) fail_msg("byte %ld: not noticed", at);
    }
    file_map_close(&m);
    conr_close(c);
}

/* The same for the arrays of a run; without DONE, which lists their checksums, they are read. */
static void flipped_arrays(void **state) {
    (void)state;
    static const char *const files[] = {"centroids.npy", "embeddings.npy"};
    rng r = rng_at(3, 0, 0, RNG_TEST);
    conr_report_options o = conr_report_defaults();
    conr_report_result result;
    conr *c;
    assert_ok(conr_open("cpu", 1, &c));
    o.out = temporary_path("report.html");
    for (int i = 0; i < 10; i++) {
        const char *path = file_in(whole, files[i % 2]);
        conr_model *m = NULL;
        long at = 128 + 4 * (long)rng_below(&r, ((uint32_t)size_of(path) - 128) / 4);
        flip(path, at, 0); /* the last bit of a number: still a number */
        int rc = i % 2 ? conr_report(c, whole, &o, &result) : conr_model_open(c, whole, &m);
        check_fails(rc, CONR_EFORMAT, "is damaged", files[i % 2], __FILE__, __LINE__);
        copy(file_in(whole, "DONE"), file_in(whole, "kept"));
        assert_int_equal(unlink(file_in(whole, "DONE")), 0);
        if (i < 1) assert_ok(conr_model_open(c, whole, &m));
        conr_model_close(m);
        assert_ok(resume(whole, NULL)); /* writes them again */
        assert_true(same_file(file_in(whole, "DONE"), file_in(whole, "kept")));
    }
    conr_close(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flipped_bits),      cmocka_unit_test(lost_and_cut_off),
        cmocka_unit_test(before_the_choice), cmocka_unit_test(older_version),
        cmocka_unit_test(lost_log),          cmocka_unit_test(flipped_model),
        cmocka_unit_test(flipped_arrays),
    };
    return cmocka_run_group_tests(tests, make_runs, NULL);
}
