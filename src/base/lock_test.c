/* lock_test.c: one holder at a time, in one process or two; a killed one holds nothing. */
#include "base/lock.h"
#include "base/test_help.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *new_folder(const char *name) {
    static char path[4096];
    snprintf(path, sizeof path, "%s", temporary_path(name));
    assert_int_equal(mkdir(path, 0777), 0);
    return path;
}

static bool is_there(const char *folder, const char *name) {
    char path[4200];
    struct stat at;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return stat(path, &at) == 0;
}

static void one_holder(void **state) {
    (void)state;
    folder_lock a, b;
    char who[64];
    const char *folder = new_folder("one");
    snprintf(who, sizeof who, "process %ld", (long)getpid());
    assert_ok(folder_lock_take(folder, &a));
    assert_true(a.held);
    assert_fails(CONR_EFILE, who, folder_lock_take(folder, &b));
    folder_lock_drop(&b);
    assert_true(is_there(folder, ".lock"));
    folder_lock_drop(&a);
    folder_lock_drop(&a);
    assert_false(is_there(folder, ".lock"));
    assert_ok(folder_lock_take(folder, &b));
    assert_true(b.held);
    folder_lock_drop(&b);
    assert_fails(CONR_EFILE, "cannot be written", folder_lock_take("/nowhere/at/all", &a));
}

/* Another process that holds the lock until it is killed. */
static void killed_holder(void **state) {
    (void)state;
    folder_lock a;
    int ready[2];
    char byte, who[64];
    const char *folder = new_folder("killed");
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        if (folder_lock_take(folder, &a) < 0 || write(ready[1], "x", 1) != 1) _exit(1);
        for (;;) pause();
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    snprintf(who, sizeof who, "process %ld on ", (long)child);
    assert_fails(CONR_EFILE, who, folder_lock_take(folder, &a));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_true(is_there(folder, ".lock")); /* the file stays, the lock does not */
    assert_ok(folder_lock_take(folder, &a));
    assert_true(a.held);
    folder_lock_drop(&a);
    close(ready[0]);
    close(ready[1]);
}

/* Many processes, one at a time: none sees another inside, although the file comes and goes. */
static void many_holders(void **state) {
    (void)state;
    enum { PROCESSES = 3, TURNS = 60 };
    const char *folder = new_folder("many");
    char inside[4200];
    int sum = 0;
    snprintf(inside, sizeof inside, "%s/inside", folder);
    for (int i = 0; i < PROCESSES; i++) {
        if (fork()) continue;
        folder_lock a;
        for (int turn = 0; turn < TURNS;) {
            if (folder_lock_take(folder, &a) < 0) continue;
            if (mkdir(inside, 0777)) _exit(1);
            if (rmdir(inside)) _exit(1);
            folder_lock_drop(&a);
            turn++;
        }
        _exit(0);
    }
    for (int i = 0, status; i < PROCESSES; i++) {
        assert_true(wait(&status) > 0);
        sum += status != 0;
    }
    assert_int_equal(sum, 0);
}

static void beside_a_mark(void **state) {
    (void)state;
    folder_lock a, b;
    char file[4200], mark[4200];
    const char *folder = new_folder("beside");
    snprintf(file, sizeof file, "%s/x.bin", folder);
    snprintf(mark, sizeof mark, "%s/mark", folder);
    assert_ok(folder_lock_beside(file, "mark", &a));
    assert_false(a.held);
    fclose(fopen(mark, "w"));
    assert_ok(folder_lock_beside(file, "mark", &a));
    assert_true(a.held);
    assert_fails(CONR_EFILE, "is writing into it", folder_lock_beside(file, "mark", &b));
    folder_lock_drop(&a);
    assert_ok(folder_lock_beside("x.bin", "no such mark", &a));
    assert_false(a.held);
}

/* What writes one file leaves the folder of a running training alone. */
static void files_beside_a_run(void **state) {
    (void)state;
    folder_lock a;
    char file[4200], mark[4200], text[8] = "";
    const float x = 1;
    const char *folder = new_folder("run");
    snprintf(file, sizeof file, "%s/x.bin", folder);
    snprintf(mark, sizeof mark, "%s/options.yaml", folder);
    fclose(fopen(mark, "w"));
    assert_ok(folder_lock_take(folder, &a));
    assert_fails(CONR_EFILE, "is writing into it", conr_write_bytes(file, "abc", 3));
    assert_fails(CONR_EFILE, "is writing into it", conr_write_floats(file, &x, 1, 0));
    assert_int_not_equal(access(file, F_OK), 0);
    folder_lock_drop(&a);
    assert_ok(conr_write_bytes(file, "abc", 3));
    FILE *f = fopen(file, "r");
    assert_int_equal(fread(text, 1, sizeof text, f), 3);
    fclose(f);
    assert_string_equal(text, "abc");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_holder),         cmocka_unit_test(killed_holder),
        cmocka_unit_test(many_holders),       cmocka_unit_test(beside_a_mark),
        cmocka_unit_test(files_beside_a_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
