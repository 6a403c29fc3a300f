/* file_test.c: mapping and replacing files, and system errors of every kind. */
#include "base/file.h"

#include "base/test_help.h"

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* A folder of its own for each test, so that nothing else is in it. */
static const char *fresh_folder(const char *name) {
    const char *path = temporary_path(name);
    assert_int_equal(mkdir(path, 0777), 0);
    return path;
}

static const char *within(const char *folder, const char *name) {
    static char path[2][4096];
    static int turn;
    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static int count_entries(const char *folder) {
    int n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
    closedir(d);
    return n;
}

static int write_text(const char *path, const char *text) {
    int rc = 0;
    file_new f = {0};
    TRY(file_new_open(&f, path));
    fputs(text, f.stream);
    TRY(file_new_commit(&f));
done:
    file_new_drop(&f);
    return rc;
}

static void assert_holds(const char *path, const char *text) {
    file_map m;
    assert_ok(file_map_open(path, &m));
    assert_int_equal(m.size, strlen(text));
    if (m.size) assert_memory_equal(m.data, text, m.size);
    file_map_close(&m);
}

static mode_t mode_of(const char *path) {
    struct stat s;
    assert_int_equal(stat(path, &s), 0);
    return s.st_mode & 0777;
}

static void maps_a_file_and_an_empty_one(void **state) {
    (void)state;
    file_map m;
    assert_ok(file_map_open(temporary_file("seven", "abc\0def", 7), &m));
    assert_int_equal(m.size, 7);
    assert_memory_equal(m.data, "abc\0def", 7);
    file_map_close(&m);
    assert_ok(file_map_open(temporary_file("empty", "", 0), &m));
    assert_null(m.data);
    assert_int_equal(m.size, 0);
    file_map_close(&m);
    file_map_close(&m);
}

static void refuses_what_is_no_file(void **state) {
    (void)state;
    file_map m;
    assert_fails(CONR_EFILE, "No such file", file_map_open(temporary_path("missing"), &m));
    assert_fails(CONR_EFILE, "missing: cannot be read",
                 file_map_open(temporary_path("missing"), &m));
    assert_fails(CONR_EFILE, "No such file", file_map_open("", &m));
    assert_fails(CONR_EFILE, "is a folder", file_map_open("/tmp", &m));
    assert_fails(CONR_EFILE, "a pipe or a device", file_map_open("/dev/zero", &m));
    const char *pipe = temporary_path("pipe");
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_fails(CONR_EFILE, "a pipe or a device", file_map_open(pipe, &m)); /* and does not wait */
    assert_null(m.data);
}

/* root may read everything, so the test gives that up for a moment if it runs as root. */
static void refuses_what_it_may_not_read(void **state) {
    (void)state;
    file_map m;
    file_new f;
    const char *path = temporary_file("secret", "abc", 3);
    assert_int_equal(chmod(path, 0), 0);
    uid_t me = geteuid();
    if (me == 0) assert_int_equal(seteuid(65534), 0);
    int written = file_new_open(&f, "/usr/file_of_root"), read = file_map_open(path, &m);
    if (me == 0) assert_int_equal(seteuid(me), 0);
    assert_int_equal(written, CONR_EFILE);
    assert_fails(CONR_EFILE, "Permission denied; check its permissions", read);
}

static void writes_and_replaces(void **state) {
    (void)state;
    const char *folder = fresh_folder("replace");
    const char *path = within(folder, "a.txt");
    file_new f;
    assert_ok(file_new_open(&f, path));
    fputs("old", f.stream);
    assert_int_equal(fflush(f.stream), 0);
    assert_int_equal(access(path, F_OK), -1); /* nothing under the name before the commit */
    assert_ok(file_new_commit(&f));
    assert_holds(path, "old");
    assert_ok(file_new_open(&f, path));
    fputs("newer", f.stream);
    assert_int_equal(fflush(f.stream), 0);
    assert_holds(path, "old");
    assert_ok(file_new_commit(&f));
    file_new_drop(&f); /* does nothing after the commit */
    assert_holds(path, "newer");
    assert_int_equal(count_entries(folder), 1);
}

static void dropping_leaves_the_old_file(void **state) {
    (void)state;
    const char *folder = fresh_folder("drop");
    const char *path = within(folder, "a.txt");
    assert_ok(write_text(path, "old"));
    file_new f;
    assert_ok(file_new_open(&f, path));
    fputs("half", f.stream);
    assert_int_equal(count_entries(folder), 2);
    file_new_drop(&f);
    file_new_drop(&f);
    assert_holds(path, "old");
    assert_int_equal(count_entries(folder), 1);
}

static void two_writers_do_not_meet(void **state) {
    (void)state;
    const char *folder = fresh_folder("two");
    const char *path = within(folder, "a.txt");
    file_new a, b;
    assert_ok(file_new_open(&a, path));
    assert_ok(file_new_open(&b, path));
    assert_string_not_equal(a.temporary, b.temporary);
    fputs("first", a.stream);
    fputs("second", b.stream);
    assert_ok(file_new_commit(&b));
    assert_holds(path, "second");
    assert_ok(file_new_commit(&a));
    assert_holds(path, "first");
    assert_int_equal(count_entries(folder), 1);
}

static void keeps_modes_and_links(void **state) {
    (void)state;
    const char *folder = fresh_folder("modes");
    const char *path = within(folder, "a.txt");
    mode_t mask = umask(027);
    assert_ok(write_text(path, "x"));
    umask(mask);
    assert_int_equal(mode_of(path), 0640);
    assert_int_equal(chmod(path, 0600), 0);
    assert_ok(write_text(path, "y"));
    assert_int_equal(mode_of(path), 0600);
    const char *link = within(folder, "link");
    assert_int_equal(symlink("a.txt", link), 0);
    assert_ok(write_text(link, "z"));
    struct stat s;
    assert_int_equal(lstat(link, &s), 0);
    assert_true(S_ISLNK(s.st_mode));
    assert_holds(path, "z");
    assert_int_equal(count_entries(folder), 2);
}

static void writes_names_short_and_long(void **state) {
    (void)state;
    const char *folder = fresh_folder("names");
    char name[256] = {0}, here[4096];
    memset(name, 'n', 255);
    assert_ok(write_text(within(folder, name), "long"));
    assert_holds(within(folder, name), "long");
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(folder), 0);
    int rc = write_text("bare", "no slash");
    assert_int_equal(chdir(here), 0);
    assert_ok(rc);
    assert_holds(within(folder, "bare"), "no slash");
}

static void refuses_where_nothing_can_be_written(void **state) {
    (void)state;
    struct stat s;
    assert_fails(CONR_EFILE, "No such file", write_text(temporary_path("none/a.txt"), "x"));
    assert_fails(CONR_EFILE, "is a folder", write_text(fresh_folder("folder"), "x"));
    assert_fails(CONR_EFILE, "not the name of a file", write_text(temporary_path("folder/"), "x"));
    assert_fails(CONR_EFILE, "'': is not the name of a file", write_text("", "x"));
    const char *pipe = temporary_path("pipe_to_write"); /* stands for /dev/null, if run as root */
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_fails(CONR_EFILE, "a pipe or a device", write_text(pipe, "x"));
    assert_int_equal(stat(pipe, &s), 0);
    assert_true(S_ISFIFO(s.st_mode)); /* a careless rename would have replaced it */
}

/* The descriptor of an open file is redirected to /dev/full, where every write fails. */
static void a_full_disk_keeps_the_old_file(void **state) {
    (void)state;
    const char *folder = fresh_folder("full");
    const char *path = within(folder, "a.txt");
    assert_ok(write_text(path, "old"));
    static const size_t sizes[] = {1, 1 << 20}; /* found by the flush; found by fwrite itself */
    static const char *messages[] = {"No space left on device; free some space", "disk full"};
    static char bytes[1 << 20];
    for (int i = 0; i < 2; i++) {
        file_new f;
        assert_ok(file_new_open(&f, path));
        assert_non_null(freopen("/dev/full", "wb", f.stream));
        size_t written = fwrite(bytes, 1, sizes[i], f.stream);
        assert_true(i == 0 || written < sizes[i] || ferror(f.stream));
        assert_fails(CONR_EFILE, messages[i], file_new_commit(&f));
        assert_non_null(strstr(conr_error(), "a.txt"));
        file_new_drop(&f);
        assert_holds(path, "old");
        assert_int_equal(count_entries(folder), 1);
    }
}

static void a_size_limit_keeps_the_old_file(void **state) {
    (void)state;
    const char *folder = fresh_folder("limit");
    const char *path = within(folder, "a.txt");
    assert_ok(write_text(path, "old"));
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 2;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    int rc = write_text(path, "too long for the limit");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    assert_fails(CONR_EFILE, "File too large; raise the limit", rc);
    assert_holds(path, "old");
    assert_int_equal(count_entries(folder), 1);
}

static void a_lost_folder_is_one_error(void **state) {
    (void)state;
    const char *folder = fresh_folder("lost");
    file_new f;
    assert_ok(file_new_open(&f, within(folder, "a.txt")));
    assert_int_equal(unlink(f.temporary), 0);
    assert_int_equal(rmdir(folder), 0);
    assert_fails(CONR_EFILE, "cannot be replaced", file_new_commit(&f));
}

/* Only names that file_new makes, and only if their process has ended. */
static void cleans_after_the_dead(void **state) {
    (void)state;
    static const char *const names[] = {".a.txt.999999999-0.tmp",  ".a.b.999999999-12.tmp",
                                        ".a.txt.999999999-0x.tmp", ".a.txt.-0.tmp",
                                        ".999999999-0.tmp",        "a.txt.999999999-0.tmp",
                                        ".a.txt.999999999-0.tmp2", "a.txt"};
    const char *folder = fresh_folder("leftovers");
    file_new f;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        fclose(fopen(within(folder, names[i]), "w"));
    assert_ok(file_new_open(&f, within(folder, "mine.txt"))); /* this process lives */
    assert_int_equal(count_entries(folder), 9);
    file_new_clean(folder);
    assert_int_equal(count_entries(folder), 7);
    assert_int_equal(access(within(folder, names[0]), F_OK), -1);
    assert_int_equal(access(within(folder, names[1]), F_OK), -1);
    assert_ok(file_new_commit(&f));
    file_new_clean("/nowhere/at/all");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(maps_a_file_and_an_empty_one),
        cmocka_unit_test(refuses_what_is_no_file),
        cmocka_unit_test(refuses_what_it_may_not_read),
        cmocka_unit_test(writes_and_replaces),
        cmocka_unit_test(dropping_leaves_the_old_file),
        cmocka_unit_test(two_writers_do_not_meet),
        cmocka_unit_test(keeps_modes_and_links),
        cmocka_unit_test(writes_names_short_and_long),
        cmocka_unit_test(refuses_where_nothing_can_be_written),
        cmocka_unit_test(a_full_disk_keeps_the_old_file),
        cmocka_unit_test(a_size_limit_keeps_the_old_file),
        cmocka_unit_test(a_lost_folder_is_one_error),
        cmocka_unit_test(cleans_after_the_dead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
