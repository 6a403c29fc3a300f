/* main.c: finds the verb and runs it. */
#include "cli_parse.h"

#include "conr.h"

#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const verb *const verbs[] = {&verb_cluster, &verb_open,       &verb_train,     &verb_sweep,
                                    &verb_recipes, &verb_report,     &verb_embed,     &verb_assign,
                                    &verb_export,  &verb_info,       &verb_neighbors, &verb_kmeans,
                                    &verb_eval,    &verb_duplicates, &verb_bench};
enum { N_VERBS = sizeof verbs / sizeof *verbs };

static const verb *find(const char *name) {
    for (int i = 0; i < N_VERBS; i++)
        if (!strcmp(verbs[i]->name, name)) return verbs[i];
    return !strcmp(name, "completion") ? &verb_completion : !strcmp(name, "man") ? &verb_man : NULL;
}

const verb *verb_at(int i) { return i < N_VERBS ? verbs[i] : NULL; }

static int help(void) {
    printf("conr " CONR_VERSION ": cluster images without labels\n\n"
           "  conr VERB ...      run a verb\n"
           "  conr help VERB     explain a verb, with an example\n"
           "  conr --version\n\nVerbs:\n");
    for (int i = 0; i < N_VERBS; i++) printf("  %-10s %s\n", verbs[i]->name, verbs[i]->summary);
    return finish_output();
}

/* The formats that are built in, or those that are not. */
static void print_formats(const char *words, bool wanted) {
    const char *name;
    int there, n = 0;
    for (int i = 0; (name = conr_format(i, &there)); i++)
        if ((there != 0) == wanted) printf("%s%s", n++ ? ", " : words, name);
    if (n) printf("\n");
}

static int unknown(const char *name) {
    return usage_error("%s: no such verb; see conr --help", name);
}

/* If a standard stream was closed (2>&-), the next file to be opened would take its place and get
 * its messages. */
static void open_streams(void) {
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0) _exit(EXIT_FAILED);
}

int main(int argc, char **argv) {
    open_streams();
    setlocale(LC_CTYPE, "");  /* for file names; numbers keep the format of C */
    signal(SIGXFSZ, SIG_IGN); /* a file-size limit makes writes fail, not the process */
    if (argc < 2) return help(), usage_error("no verb given; see conr --help");
    const char *name = argv[1];
    if (!strcmp(name, "--version")) {
        printf("conr %s\n", conr_version());
        print_formats("reads ", true);
        print_formats("not built in: ", false);
        return finish_output();
    }
    bool asks_help = !strcmp(name, "help") || !strcmp(name, "--help") || !strcmp(name, "-h");
    if (asks_help && argc == 2) return help();
    if (asks_help) {
        const verb *v = find(argv[2]);
        return v ? verb_help(v) : unknown(argv[2]);
    }
    const verb *v = find(name);
    int count, rank = conr_rank(&count);
    if (rank < 0) return library_error();
    if (rank > 0) be_silent();
    if (v && count > 1 && !v->many)
        return failed("%s: runs as one process, but %d were started; run it without mpirun", name,
                      count);
    return v ? verb_run(v, argc - 2, argv + 2) : unknown(name);
}
