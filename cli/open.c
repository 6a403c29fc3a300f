/* open.c: conr open: the clusters of a run in the browser, to be looked at, named and corrected. */
#include "cli.h"

#include "conr.h"

#ifdef CONR_HTTP
#include "progress.h"
#include "run.h"
#include "serve.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

static const flag flags[] = {
    {"no-browser", NULL, NULL, "only print the address; do not open a browser"},
    {"read-only", NULL, NULL, "look, but change nothing"},
    {"data", "SRC", NULL, "where the images are now, if they have moved"},
    {"port", "N", "0", "the port; 0: any free one"},
    {"address", "IP", "127.0.0.1", "listen there: others than this machine's own let others in"},
    {0},
};

#ifdef CONR_HTTP

static int make_token(char *out) {
    unsigned char bytes[TOKEN / 2];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        return failed("token: no random numbers; wait a moment, and try again");
    for (size_t i = 0; i < sizeof bytes; i++) sprintf(out + 2 * i, "%02x", bytes[i]);
    return EXIT_OK;
}

/* RUN/.open/address says where a run is open, to whoever may read the folder of its owner. */
static char *address_file(const char *run) {
    char *folder = path_in(run, ".open"), *path = path_in(folder, "address");
    mkdir(folder, 0700);
    free(folder);
    return path;
}

static void note_address(const server *s) {
    char *path = address_file(s->run);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd >= 0) {
        if (dprintf(fd, "%s\n", s->url) < 0) unlink(path);
        close(fd);
    }
    free(path);
}

/* Where the one is that has opened the run before. */
static int tell_first(const char *run) {
    char *path = address_file(run), url[200] = "";
    FILE *f = strstr(conr_error(), "is writing into it") ? fopen(path, "r") : NULL;
    free(path);
    if (f && !fgets(url, sizeof url, f)) *url = 0;
    if (f) fclose(f);
    url[strcspn(url, "\n")] = 0;
    if (!*url) return library_error();
    return failed(
        "%s: is open already at %s; use that page, end the other one with Ctrl-C, or look "
        "with --read-only",
        run, url);
}

static void show(const char *url) {
    const char *program = getenv("BROWSER");
    if (!program || !*program || strchr(program, ' ')) program = "xdg-open";
    if (!getenv("DISPLAY") && !getenv("WAYLAND_DISPLAY") && !getenv("BROWSER")) return;
    pid_t child = fork();
    if (child != 0) return; /* if it cannot be started, the address was printed */
    int nowhere = open("/dev/null", O_RDWR);
    if (nowhere >= 0) dup2(nowhere, 0), dup2(nowhere, 1), dup2(nowhere, 2);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execlp(program, program, url, (char *)NULL);
    _exit(127);
}

static int tell(const arguments *a, const server *s, const char *address) {
    if (strncmp(address, "127.", 4))
        fprintf(stderr,
                "conr: warning: %s lets other machines in; whoever has the address can see "
                "the images%s\n",
                address, s->read_only ? "" : " and change the clusters");
    if (flag_on(a, "json"))
        return print_json(json_pack("{ss so sI}", "address", s->url, "run", json_name(s->run), "n",
                                    (json_int_t)s->first.n));
    printf("%s\n", s->url);
    int rc = finish_output();
    if (!flag_on(a, "quiet"))
        fprintf(stderr, "%s: %lld images in %d clusters%s; Ctrl-C ends\n", s->run,
                (long long)s->first.n, s->first.clusters,
                s->read_only ? ", nothing is changed" : "; every decision is kept at once");
    return rc;
}

/* Until Ctrl-C, or the button of the page.  Signals are blocked in all threads and waited for. */
static int wait_for_end(server *s, const sigset_t *set) {
    while (!atomic_load(&s->stopping)) {
        int got = sigtimedwait(set, NULL, &(struct timespec){.tv_nsec = 200000000});
        if (got > 0 && got != SIGPIPE && got != SIGCHLD) return EXIT_INTERRUPTED;
    }
    return EXIT_OK;
}

/* A k-means that is under way ends, too. */
static int stop_work(const conr_progress *p, void *user) {
    const server *s = user;
    (void)p;
    return atomic_load(&s->stopping);
}

static int serve(const arguments *a, server *s) {
    sigset_t set;
    int port, rc;
    const char *address = flag_text(a, "address");
    static const int all[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) sigaddset(&set, all[i]);
    sigprocmask(SIG_BLOCK, &set, NULL); /* before any thread is started */
    if ((rc = flag_int(a, "port", 0, 65535, &port)) || (rc = make_token(s->token))) return rc;
    if (conr_open("cpu", s->threads, &s->c) < 0) return library_error();
    conr_set_progress(s->c, stop_work, s);
    if (conr_edits_open(s->run, s->read_only, &s->edits) < 0) return tell_first(s->run);
    conr_edits_about(s->edits, &s->first);
    if ((rc = serve_run(s, address, port))) return rc;
    if (work_start(s)) return failed("%s: no thread can be started; close other programs", s->run);
    if (!s->read_only) note_address(s);
    if ((rc = tell(a, s, address)) == EXIT_OK) {
        if (!flag_on(a, "no-browser")) show(s->url);
        rc = wait_for_end(s, &set);
    }
    if (!s->read_only) {
        char *path = address_file(s->run);
        unlink(path);
        free(path);
    }
    return rc;
}

static int run(const arguments *a) {
    server s = {.run = operand(a, 0), .data = flag_text(a, "data")};
    int rc = flag_int(a, "threads", 0, 1024, &s.threads);
    if (rc) return rc;
    s.read_only = flag_on(a, "read-only");
    pthread_mutex_init(&s.lock, NULL);
    pthread_mutex_init(&s.look_lock, NULL);
    rc = serve(a, &s);
    serve_end(&s);
    work_end(&s);
    conr_edits_close(s.edits);
    conr_close(s.c);
    return rc;
}

#else

static int run(const arguments *a) {
    return failed("%s: this conr was built without libmicrohttpd, which conr open needs; install "
                  "it (libmicrohttpd-dev) and build again",
                  operand(a, 0));
}

#endif

const verb verb_open = {
    .name = "open",
    .operands = "RUN",
    .summary = "Look at the clusters of a run in the browser, name and correct them",
    .text = "Serves a page to this machine's browser: every image of every cluster, search, more\n"
            "like this, a map; clusters are renamed, merged and split, images moved and marked,\n"
            "copies and outliers found, folders written.  Each decision is in RUN/edits.json at\n"
            "once, can be undone, and is honored by labels.csv, conr assign, conr report and\n"
            "conr cluster RUN --sort-into; conr cluster RUN --reset-edits takes all of them back.\n"
            "Only this machine is served, and only with the address that is printed.\n"
            "\nExample: conr open runs/photos\n",
    .low = 1,
    .high = 1,
    .flags = flags,
    .run = run,
};
