/* edits_test.c: every decision, undo and redo, read back from the journal; a kill at every file
 * operation; damaged journals; taking everything back. */
#include "base/test_help.h"

#include "base/file.h"
#include "base/npy.h"
#include "edits/edits.h"
#include "run/done.h"

#include <ftw.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 12, D = 2, K = 3 };

static char run[4096];

static const char *in_run(const char *name) {
    static char path[4][4200];
    static int at;
    char *out = path[at++ % 4];
    snprintf(out, sizeof path[0], "%s/%s", run, name);
    return out;
}

static void put(const char *name, const char *text) {
    FILE *f = fopen(in_run(name), "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static char *get(const char *name) { /* released by free */
    file_bytes b = {0};
    assert_ok(file_read_whole(in_run(name), &b));
    b.data[b.n] = 0;
    return (char *)b.data;
}

/* In memory if possible: these tests sync hundreds of files, and a disk may take long for each. */
static char base[64] = "/dev/shm/conr-edits-XXXXXX";

static int remove_one(const char *path, const struct stat *at, int type, struct FTW *where) {
    (void)at, (void)type, (void)where;
    return remove(path);
}

static void remove_base(void) { nftw(base, remove_one, 16, FTW_DEPTH | FTW_PHYS); }

/* Three clusters of four; within each, two pairs that a split tells apart. */
static void make_run(void) {
    static int which;
    float x[N][D];
    char name[32], labels[2000] = "path,cluster,distance,boundary,label\n";
    snprintf(name, sizeof name, "run%d", which++);
    if (*base)
        snprintf(run, sizeof run, "%s/%s", base, name);
    else
        snprintf(run, sizeof run, "%s", temporary_path(name));
    assert_int_equal(mkdir(run, 0777), 0);
    for (int i = 0; i < N; i++) {
        double angle = i / 4 * 2.0 + i % 4 / 2 * 0.3 + i % 2 * 0.01;
        x[i][0] = (float)cos(angle), x[i][1] = (float)sin(angle);
        sprintf(labels + strlen(labels),
                i == 5 ? "\"a,%d.png\",%d,0.%d,0.5,%d\n" : "%d.png,%d,0.%d,0.5,%d\n", i, i / 4, i,
                i % 3);
    }
    put("labels.csv", labels);
    put("options.yaml", "seed: 1\n");
    assert_ok(npy_write(in_run("embeddings.npy"), 'f', 4, 2, (int64_t[]){N, D}, x));
    assert_ok(done_write(run));
}

static conr *context(void) {
    static conr *c;
    if (!c) assert_ok(conr_open("cpu", 1, &c));
    return c;
}

/* The state as text: clusters, -1 for marked ones, then names. */
static const char *state_of(const conr_edits *e) {
    static char text[4][400];
    static int at;
    char *out = text[at++ % 4];
    conr_edits_info info;
    conr_edits_about(e, &info);
    *out = 0;
    for (int i = 0; i < N; i++) sprintf(out + strlen(out), "%d ", conr_edits_labels(e)[i]);
    for (int k = 0; k < info.next; k++)
        if (conr_edits_name(e, k)) sprintf(out + strlen(out), "%d=%s ", k, conr_edits_name(e, k));
    sprintf(out + strlen(out), "(%d of %d)", info.clusters, info.next);
    return out;
}

#define assert_state(e, text) assert_string_equal(state_of(e), text)

static conr_edits *opened(void) {
    conr_edits *e = NULL;
    assert_ok(conr_edits_open(run, 0, &e));
    return e;
}

static conr_edits *again(conr_edits *e) {
    conr_edits_close(e);
    return opened();
}

static const char untouched[] = "0 0 0 0 1 1 1 1 2 2 2 2 (3 of 3)";

/* One decision after another; the last one leaves what `made` says. */
static int decide_all(conr_edits *e, int j) {
    switch (j) {
    case 0: return conr_edits_rename(e, 1, "dogs, \"and\" cats");
    case 1: return conr_edits_merge(e, (int[]){0, 2}, 2);
    case 2: return conr_edits_split(context(), e, 1, 2, 1);
    case 3: return conr_edits_move(e, (int64_t[]){9, 0, 9}, 2, 1, NULL);
    case 4: return conr_edits_move(e, (int64_t[]){1}, 1, 4, "new");
    case 5: return conr_edits_mark(e, (int64_t[]){2, 3}, 2, CONR_MARK_OUTLIER);
    case 6: return conr_edits_mark(e, (int64_t[]){3}, 1, CONR_MARK_WRONG);
    case 7: return conr_edits_undo(e);
    case 8: return conr_edits_rename(e, 0, "rest");
    default: return 1;
    }
}

static const char *const made[] = {
    "0 0 0 0 1 1 1 1 2 2 2 2 1=dogs, \"and\" cats (3 of 3)",
    "0 0 0 0 1 1 1 1 0 0 0 0 1=dogs, \"and\" cats (2 of 3)",
    "0 0 0 0 1 1 3 3 0 0 0 0 1=dogs, \"and\" cats (3 of 4)",
    "1 0 0 0 1 1 3 3 0 1 0 0 1=dogs, \"and\" cats (3 of 4)",
    "1 4 0 0 1 1 3 3 0 1 0 0 1=dogs, \"and\" cats 4=new (4 of 5)",
    "1 4 -1 -1 1 1 3 3 0 1 0 0 1=dogs, \"and\" cats 4=new (4 of 5)",
    "1 4 -1 -1 1 1 3 3 0 1 0 0 1=dogs, \"and\" cats 4=new (4 of 5)",
    "1 4 -1 -1 1 1 3 3 0 1 0 0 1=dogs, \"and\" cats 4=new (4 of 5)",
    "1 4 -1 -1 1 1 3 3 0 1 0 0 0=rest 1=dogs, \"and\" cats 4=new (4 of 5)"};
enum { DECISIONS = sizeof made / sizeof *made };

static void test_decisions(void **state) {
    (void)state;
    make_run();
    conr_edits *e = opened();
    assert_state(e, untouched);
    for (int j = 0; j < DECISIONS; j++) {
        assert_ok(decide_all(e, j));
        assert_state(e, made[j]);
        e = again(e);
        assert_state(e, made[j]);
    }
    conr_edits_info info;
    conr_edits_about(e, &info);
    assert_int_equal(info.done, 7);
    assert_int_equal(info.undone, 0);
    assert_string_equal(info.undo, "rename");
    for (int j = 0; j < 7; j++) assert_ok(conr_edits_undo(e));
    assert_state(e, untouched);
    assert_fails(CONR_EINVAL, "nothing to undo", conr_edits_undo(e));
    e = again(e);
    for (int j = 0; j < 7; j++) assert_ok(conr_edits_redo(e));
    assert_state(e, made[DECISIONS - 1]);
    assert_fails(CONR_EINVAL, "nothing was undone", conr_edits_redo(e));
    conr_edits_close(e);
}

static void test_labels(void **state) {
    (void)state;
    make_run();
    conr_edits *e = opened();
    assert_ok(decide_all(e, 0));
    assert_ok(conr_edits_mark(e, (int64_t[]){0}, 1, CONR_MARK_WRONG));
    char *text = get("labels.csv");
    assert_non_null(strstr(text, "path,cluster,distance,boundary,label,name,mark,untouched\n"));
    assert_non_null(strstr(text, "\n0.png,-1,0.0,0.5,0,,wrong,0\n"));
    assert_non_null(strstr(text, "\n\"a,5.png\",1,0.5,0.5,2,\"dogs, \"\"and\"\" cats\",,1\n"));
    free(text);
    int64_t *label, n;
    assert_ok(conr_read_labels(in_run("labels.csv"), "cluster", &label, &n));
    assert_true(n == N && label[0] == -1 && label[11] == 2);
    conr_free(label);
    conr_edits_close(e);
}

static void test_other_K(void **state) {
    (void)state;
    make_run();
    conr_edits *e = opened();
    assert_ok(conr_edits_rename(e, 2, "last"));
    assert_ok(conr_edits_clusters(context(), e, 6, 1));
    conr_edits_info info;
    conr_edits_about(e, &info);
    assert_int_equal(info.clusters, 6);
    int with = conr_edits_labels(e)[8] == 2 ? 8 : 10; /* one half keeps number and name */
    assert_int_equal(conr_edits_labels(e)[with], 2);
    assert_string_equal(conr_edits_name(e, 2), "last");
    char was[400];
    snprintf(was, sizeof was, "%s", state_of(e));
    e = again(e);
    assert_state(e, was);
    assert_ok(conr_edits_clusters(context(), e, 2, 1));
    conr_edits_about(e, &info);
    assert_int_equal(info.clusters, 2);
    assert_fails(CONR_EINVAL, "13 for 12 images", conr_edits_clusters(context(), e, 13, 1));
    conr_edits_close(e);
}

static void test_refused(void **state) {
    (void)state;
    make_run();
    conr_edits *e = opened(), *second;
    char longest[EDITS_NAME + 2];
    memset(longest, 'x', sizeof longest), longest[sizeof longest - 1] = 0;
    assert_fails(CONR_EFILE, "is writing into it", conr_edits_open(run, 0, &second));
    assert_ok(conr_edits_open(run, 1, &second));
    assert_fails(CONR_EINVAL, "opened for reading", conr_edits_rename(second, 0, "x"));
    conr_edits_close(second);
    assert_fails(CONR_EINVAL, "no such cluster", conr_edits_rename(e, 3, "x"));
    assert_fails(CONR_EINVAL, "at most 200 bytes", conr_edits_rename(e, 0, longest));
    assert_fails(CONR_EINVAL, "control characters", conr_edits_rename(e, 0, "a\nb"));
    assert_fails(CONR_EINVAL, "not UTF-8", conr_edits_rename(e, 0, "\xff"));
    assert_fails(CONR_EINVAL, "different clusters", conr_edits_merge(e, (int[]){1, 1}, 2));
    assert_fails(CONR_EINVAL, "takes two", conr_edits_merge(e, (int[]){1}, 1));
    assert_fails(CONR_EINVAL, "not some of the run",
                 conr_edits_move(e, (int64_t[]){N}, 1, 0, NULL));
    assert_fails(CONR_EINVAL, "not some of the run", conr_edits_mark(e, (int64_t[]){-1}, 1, 1));
    assert_fails(CONR_EINVAL, "not some of the run", conr_edits_move(e, NULL, 0, 0, NULL));
    assert_fails(CONR_EINVAL, "5 pieces", conr_edits_split(context(), e, 0, 5, 1));
    assert_fails(CONR_EINVAL, "no such cluster", conr_edits_move(e, (int64_t[]){1}, 1, 4, NULL));
    assert_state(e, untouched); /* and nothing was written */
    assert_true(file_is_gone(in_run("edits.json")) && file_is_gone(in_run("untouched.csv")));
    conr_edits_close(e);
}

static void test_reset(void **state) {
    (void)state;
    make_run();
    char *labels = get("labels.csv"), *done = get("DONE"), *now;
    conr_edits *e = opened();
    for (int j = 0; j < 3; j++) assert_ok(decide_all(e, j));
    conr_edits_close(e);
    now = get("untouched.csv");
    assert_string_equal(now, labels);
    free(now);
    put("edits.json", "damaged"); /* which is no reason not to be removed */
    assert_ok(conr_edits_reset(run));
    assert_true(file_is_gone(in_run("edits.json")) && file_is_gone(in_run("untouched.csv")));
    now = get("labels.csv");
    assert_string_equal(now, labels);
    free(now);
    now = get("DONE");
    assert_string_equal(now, done);
    free(now), free(labels), free(done);
    assert_ok(conr_edits_reset(run)); /* nothing to do */
    e = opened();
    assert_ok(decide_all(e, 0));
    conr_edits_close(e);
    assert_ok(done_write(run)); /* the run went on: its clusters are others */
    assert_true(file_is_gone(in_run("edits.json")) && file_is_gone(in_run("untouched.csv")));
    assert_false(file_is_gone(in_run("edits.previous.json")));
    assert_ok(conr_check_file(in_run("labels.csv")));
}

static void test_damage(void **state) {
    (void)state;
    make_run();
    conr_edits *e = opened();
    for (int j = 0; j < 6; j++) assert_ok(decide_all(e, j));
    conr_edits_close(e);
    char *good = get("edits.json"), kept[400];
    size_t n = strlen(good);
    snprintf(kept, sizeof kept, "%s", made[5]);
    for (size_t bit = 0; bit < 8 * n; bit += 3) { /* the same decisions, or one line */
        char *bad = strdup(good);
        bad[bit / 8] ^= (char)(1 << bit % 8);
        FILE *f = fopen(in_run("edits.json"), "w");
        fwrite(bad, 1, n, f);
        fclose(f);
        free(bad);
        if (conr_edits_open(run, 1, &e) < 0) {
            assert_null(strchr(conr_error(), '\n'));
            assert_non_null(strstr(conr_error(), "edits.json: is damaged: "));
            continue;
        }
        assert_state(e, kept);
        conr_edits_close(e);
    }
    static const char *const others[] = {"", "{}", "[1]", "{\"edits\":[],\"at\":1}",
                                         "{\"edits\":[{}],\"at\":1,\"untouched\":\"x\"}"};
    for (size_t j = 0; j < sizeof others / sizeof *others; j++) {
        put("edits.json", others[j]);
        assert_fails(CONR_EFORMAT, "edits.json: is damaged", conr_edits_open(run, 1, &e));
    }
    /* somebody wrote decisions by hand that do not fit: refused, never out of bounds */
    static const char *const wrong[] = {
        "{\"do\":\"move\",\"images\":\"0-99\",\"to\":0}",
        "{\"do\":\"move\",\"images\":\"3-1\",\"to\":0}",
        "{\"do\":\"move\",\"images\":\"1,1\",\"to\":0}",
        "{\"do\":\"move\",\"images\":\"1,\",\"to\":0}",
        "{\"do\":\"move\",\"images\":\"-1\",\"to\":0}",
        "{\"do\":\"move\",\"images\":\"1\",\"to\":9}",
        "{\"do\":\"move\",\"images\":7,\"to\":0}",
        "{\"do\":\"merge\",\"clusters\":[0,-1]}",
        "{\"do\":\"split\",\"cluster\":0,\"into\":[0,9],\"members\":[\"0\",\"1\"]}",
        "{\"do\":\"split\",\"cluster\":0,\"into\":[0],\"members\":[]}",
        "{\"do\":\"mark\",\"images\":\"1\",\"as\":\"odd\"}",
        "{\"do\":\"dance\"}"};
    char text[600];
    const char *of = strstr(good, "\"untouched\"");
    for (size_t j = 0; j < sizeof wrong / sizeof *wrong; j++) {
        snprintf(text, sizeof text, "{%.31s,\"at\":1,\"edits\":[%s]}", of, wrong[j]);
        put("edits.json", text);
        assert_fails(CONR_EFORMAT, "does not fit the run", conr_edits_open(run, 1, &e));
    }
    free(good);
}

/* ---- kills ----------------------------------------------------------------------------------- */

/* In a process of its own: a decision after another, and a byte for each that was made. */
static int be_child(const char *folder) {
    conr_edits *e = NULL;
    snprintf(run, sizeof run, "%s", folder);
    if (conr_edits_open(run, 0, &e) < 0) return 3;
    for (int j = 0; j < DECISIONS; j++) {
        if (decide_all(e, j) < 0) return 4;
        if (write(1, "+", 1) != 1) return 5;
    }
    conr_edits_close(e);
    return 0;
}

/* Runs the child, to be killed at its file operation `at`; *acknowledged: decisions that it had made.
 * The exit status as wait() has it. */
static int run_child(int at, int *acknowledged) {
    char self[4096] = "", shim[4200], number[16], byte;
    int ends[2], status = 0;
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return -1;
    snprintf(shim, sizeof shim, "%.*s/libfault_shim.so", (int)(strrchr(self, '/') - self), self);
    if (access(shim, R_OK) || pipe(ends)) return -1;
    snprintf(number, sizeof number, "%d", at);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 1);
        close(ends[0]), close(ends[1]);
        setenv("LD_PRELOAD", shim, 1);
        setenv("FAULT_KIND", "file", 1), setenv("FAULT_ACT", "kill", 1);
        setenv("FAULT_N", number, 1), setenv("FAULT_UNDER", run, 1);
        execl(self, self, "--child", run, (char *)NULL);
        _exit(6);
    }
    close(ends[1]);
    for (*acknowledged = 0; read(ends[0], &byte, 1) == 1;) ++*acknowledged;
    close(ends[0]);
    waitpid(child, &status, 0);
    return status;
}

static void test_kills(void **state) {
    (void)state;
    int kills = 0;
#ifdef __SANITIZE_ADDRESS__
    skip(); /* which no library may be loaded before */
#endif
    for (int at = 1;; at++) {
        int acknowledged, status;
        make_run();
        char *labels = get("labels.csv");
        status = run_child(at, &acknowledged);
        if (status < 0) {
            free(labels);
            skip(); /* no shim was built */
        }
        conr_edits *e;
        assert_ok(conr_edits_open(run, 1, &e)); /* a reader copes with what is left */
        const char *is = state_of(e), *was = acknowledged ? made[acknowledged - 1] : untouched;
        if (strcmp(is, was) && (acknowledged == DECISIONS || strcmp(is, made[acknowledged])))
            fail_msg("killed at %d after %d decisions: %s", at, acknowledged, is);
        conr_edits_close(e);
        e = opened(); /* and a writer brings labels.csv up to date */
        char *now = get("labels.csv"), line[64];
        if (file_is_gone(in_run("edits.json"))) {
            assert_string_equal(now, labels);
        } else {
            snprintf(line, sizeof line, "\n11.png,%d,0.11,", conr_edits_labels(e)[11]);
            assert_non_null(strstr(now, line));
            assert_non_null(strstr(now, ",name,mark,untouched\n"));
        }
        conr_edits_close(e);
        assert_ok(conr_edits_reset(run));
        free(now);
        now = get("labels.csv");
        assert_string_equal(now, labels);
        free(now), free(labels);
        if (WIFEXITED(status)) {
            assert_int_equal(WEXITSTATUS(status), 0);
            break;
        }
        assert_int_equal(WTERMSIG(status), SIGKILL);
        kills++;
    }
    assert_true(kills > 40); /* files are opened, written, synced, renamed, closed */
}

/* ---- parts ----------------------------------------------------------------------------------- */

static void test_parts(void **state) {
    (void)state;
    make_run();
    conr_edits *e = opened();
    const float *x;
    float centroids[K * D] = {1, 0, 0, 1, -1, 0}, *part;
    int32_t *owner;
    int P;
    int64_t d;
    assert_ok(conr_edits_features(e, &x, &d));
    assert_int_equal(d, D);
    assert_ok(conr_edits_merge(e, (int[]){0, 2}, 2));
    assert_ok(edits_parts(e, centroids, x, d, &part, &owner, &P));
    assert_int_equal(P, 3); /* both parts of the merged one */
    assert_true(owner[0] == 0 && owner[1] == 1 && owner[2] == 0);
    assert_memory_equal(part, centroids, sizeof centroids);
    free(part), free(owner);
    assert_ok(conr_edits_split(context(), e, 1, 2, 1));
    assert_ok(edits_parts(e, centroids, x, d, &part, &owner, &P));
    assert_int_equal(P, 4);
    assert_true(owner[0] == 0 && owner[1] == 0 && owner[2] == 1 && owner[3] == 3);
    float mean = (x[4 * D] + x[5 * D]) / 2;
    assert_true(part[2 * D] == mean || part[3 * D] == mean);
    free(part), free(owner);
    assert_ok(conr_edits_move(e, (int64_t[]){6, 7, 4, 5}, 4, 0, NULL)); /* all: as if merged */
    assert_ok(edits_parts(e, centroids, x, d, &part, &owner, &P));
    for (int p = 0; p < P; p++) assert_int_equal(owner[p], 0);
    free(part), free(owner);
    conr_edits_close(e);
}

static void mean(const float *x, int a, int b, int c,
                 float *out) { /* of two or three; c < 0: two */
    for (int j = 0; j < D; j++)
        out[j] = c < 0 ? (x[a * D + j] + x[b * D + j]) / 2
                       : (x[a * D + j] + x[b * D + j] + x[c * D + j]) / 3;
}

static void assert_part(const float *part, const float *wanted) {
    for (int j = 0; j < D; j++) assert_float_equal(part[j], wanted[j], 1e-6);
}

/* Images that are moved or marked change where new ones go. */
static void test_moved_parts(void **state) {
    (void)state;
    make_run();
    conr_edits *e = opened();
    const float *x;
    float centroids[K * D] = {1, 0, 0, 1, -1, 0}, *part, wanted[D];
    int32_t *owner;
    int P;
    int64_t d;
    assert_ok(conr_edits_features(e, &x, &d));
    assert_ok(conr_edits_move(e, (int64_t[]){0, 1}, 2, 1, NULL)); /* from 0, which has 0 to 3 */
    assert_ok(edits_parts(e, centroids, x, d, &part, &owner, &P));
    assert_int_equal(P, 4);
    assert_true(owner[0] == 0 && owner[1] == 1 && owner[2] == 1 && owner[3] == 2);
    mean(x, 2, 3, -1, wanted);
    assert_part(part, wanted); /* what is left */
    mean(x, 0, 1, -1, wanted);
    assert_part(part + D, wanted);                /* what was moved */
    assert_part(part + 2 * D, centroids + D);     /* the cluster that it was moved to */
    assert_part(part + 3 * D, centroids + 2 * D); /* another */
    free(part), free(owner);
    assert_ok(conr_edits_move(e, (int64_t[]){2}, 1, 1, NULL)); /* they follow the others */
    assert_ok(conr_edits_mark(e, (int64_t[]){8}, 1, CONR_MARK_OUTLIER));
    assert_ok(edits_parts(e, centroids, x, d, &part, &owner, &P));
    assert_int_equal(P, 4);
    assert_part(part, x + 3 * D);
    mean(x, 0, 1, 2, wanted);
    assert_part(part + D, wanted);
    mean(x, 9, 10, 11, wanted);
    assert_part(part + 3 * D, wanted);
    free(part), free(owner);
    for (int j = 0; j < 3; j++) assert_ok(conr_edits_undo(e));
    assert_ok(edits_parts(e, centroids, x, d, &part, &owner, &P));
    assert_int_equal(P, K);
    assert_memory_equal(part, centroids, sizeof centroids);
    free(part), free(owner);
    int64_t every[N];
    for (int i = 0; i < N; i++) every[i] = i;
    assert_ok(conr_edits_mark(e, every, N - 4, CONR_MARK_WRONG)); /* two clusters are no more */
    assert_ok(edits_parts(e, centroids, x, d, &part, &owner, &P));
    assert_true(P == 1 && owner[0] == 2);
    free(part), free(owner);
    assert_ok(conr_edits_mark(e, every, N, CONR_MARK_WRONG));
    assert_fails(CONR_EINVAL, "every image is marked",
                 edits_parts(e, centroids, x, d, &part, &owner, &P));
    conr_edits_close(e);
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "--child")) return be_child(argv[2]);
    if (mkdtemp(base))
        atexit(remove_base);
    else
        *base = 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decisions), cmocka_unit_test(test_labels),
        cmocka_unit_test(test_other_K),   cmocka_unit_test(test_refused),
        cmocka_unit_test(test_reset),     cmocka_unit_test(test_damage),
        cmocka_unit_test(test_parts),     cmocka_unit_test(test_moved_parts),
        cmocka_unit_test(test_kills)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
