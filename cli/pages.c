/* pages.c: completion for bash and zsh, and the manual page, generated from the rows of the verbs,
 * so that they always match the program.  `conr completion` and `conr man` serve the installation
 * and are not listed in the help. */
#include "cli_parse.h"

#include "conr.h"

#include <stdio.h>
#include <string.h>

/* Flags whose value is one of a few words; other values are files or free text. */
static const char *const choices[][2] = {{"device", "auto cpu cuda ref"},
                                         {"metric", "cosine euclidean conaff"},
                                         {"format", "onnx safetensors tensorboard"},
                                         {"split", "train val test unlabeled"},
                                         {"labels", "fine coarse"},
                                         {"clusters", "auto"},
                                         {"stage", "2"}};
enum { N_CHOICES = sizeof choices / sizeof *choices };

static const char *words_of(const flag *f) {
    for (int i = 0; f->value && i < N_CHOICES; i++)
        if (!strcmp(f->name, choices[i][0])) return choices[i][1];
    return NULL;
}

/* Operands that are words instead of files. */
static const char *operand_words(const verb *v) {
    return !strcmp(v->name, "bench") ? "ops train neighbors kmeans feed" : NULL;
}

/* ---- bash ------------------------------------------------------------------------------------ */

static void print_settings(const char *between) {
    conr_setting_info s;
    for (int i = 0; conr_setting(i, &s); i++) printf("%s%s=", i ? between : "", s.key);
}

static void bash_flags(const flag *list) {
    for (; list && list->name; list++) printf(" --%s", list->name);
}

static void print_bash(void) {
    puts("# bash completion of conr, printed by conr completion bash\n"
         "_conr() {\n"
         "    local now=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} flags= "
         "operands=\n"
         "    local verb=${COMP_WORDS[1]}\n"
         "    COMPREPLY=()\n"
         "    if ((COMP_CWORD == 1)) || { ((COMP_CWORD == 2)) && [[ $verb == help ]]; }; then");
    printf("        COMPREPLY=($(compgen -W \"");
    for (int i = 0; verb_at(i); i++) printf("%s ", verb_at(i)->name);
    puts("help --help --version\" -- \"$now\"))\n"
         "        return\n"
         "    fi\n"
         "    case $before in");
    for (int i = 0; i < N_CHOICES; i++)
        printf("    --%s) COMPREPLY=($(compgen -W \"%s\" -- \"$now\")); return ;;\n", choices[i][0],
               choices[i][1]);
    printf("    --set) compopt -o nospace; COMPREPLY=($(compgen -W \"");
    print_settings(" ");
    puts("\" -- \"$now\")); return ;;\n"
         "    esac\n"
         "    case $verb in");
    for (int i = 0; verb_at(i); i++) {
        const char *words = operand_words(verb_at(i));
        printf("    %s) flags=\"", verb_at(i)->name);
        bash_flags(verb_at(i)->flags);
        printf("\"%s%s%s ;;\n", words ? " operands=\"" : "", words ? words : "", words ? "\"" : "");
    }
    printf("    *) return ;;\n"
           "    esac\n"
           "    if [[ $now == -* ]]; then\n"
           "        COMPREPLY=($(compgen -W \"$flags");
    bash_flags(common_flags());
    puts("\" -- \"$now\"))\n"
         "    elif [[ $before != --* ]] && [[ -n $operands ]]; then\n"
         "        COMPREPLY=($(compgen -W \"$operands\" -- \"$now\"))\n"
         "    fi\n"
         "}\n"
         "complete -o bashdefault -o default -F _conr conr");
}

/* ---- zsh ------------------------------------------------------------------------------------- */

/* Text for single quotes; `special` characters get a backslash. */
static void zsh_text(const char *text, const char *special) {
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\''", stdout);
        else
            printf("%s%c", strchr(special, *text) ? "\\" : "", *text);
    }
}

static void zsh_flags(const flag *list) {
    for (; list && list->name; list++) {
        const char *words = words_of(list);
        size_t n = list->value ? strlen(list->value) : 0;
        bool many = n > 3 && !strcmp(list->value + n - 3, "...");
        printf(" \\\n            '%s--%s[", many ? "*" : "", list->name);
        zsh_text(list->help, "[]:\\");
        printf("]");
        if (list->value) {
            printf(":");
            zsh_text(list->value, ":\\");
            if (!strcmp(list->name, "set"))
                printf(":_conr_settings");
            else if (words)
                printf(":(%s)", words);
            else
                printf(":_files");
        }
        printf("'");
    }
}

static void print_zsh(void) {
    puts("#compdef conr\n"
         "# zsh completion of conr, printed by conr completion zsh\n"
         "_conr_settings() {");
    printf("    compadd -S '' -- ");
    print_settings(" ");
    puts("\n}\n"
         "_conr() {\n"
         "    local -a verbs\n"
         "    verbs=(");
    for (int i = 0; verb_at(i); i++) {
        printf("        '%s:", verb_at(i)->name);
        zsh_text(verb_at(i)->summary, "");
        puts("'");
    }
    puts("        'help:explain a verb'\n"
         "    )\n"
         "    if ((CURRENT == 2)) || { ((CURRENT == 3)) && [[ $words[2] == help ]] }; then\n"
         "        _describe verb verbs\n"
         "        return\n"
         "    fi\n"
         "    local verb=$words[2]\n"
         "    shift words\n"
         "    ((CURRENT--))\n"
         "    case $verb in");
    for (int i = 0; verb_at(i); i++) {
        const char *words = operand_words(verb_at(i));
        printf("    %s)\n        _arguments", verb_at(i)->name);
        zsh_flags(verb_at(i)->flags);
        zsh_flags(common_flags());
        printf(" \\\n            '*:%s:%s%s%s' ;;\n", words ? "what" : "file", words ? "(" : "",
               words ? words : "_files", words ? ")" : "");
    }
    puts("    esac\n"
         "}\n"
         "_conr \"$@\"");
}

/* ---- the manual page ------------------------------------------------------------------------- */

/* Escapes '.' and ''' at the start of a line (commands), '-' (a hyphen) and '\' (an escape). */
static void man_text(const char *text) {
    bool first = true;
    for (; *text; text++) {
        if (first && (*text == '.' || *text == '\'')) fputs("\\&", stdout);
        if (*text == '\\')
            fputs("\\e", stdout);
        else if (*text == '-')
            fputs("\\-", stdout);
        else
            putchar(*text);
        first = *text == '\n';
    }
}

static void man_flags(const flag *list) {
    for (; list && list->name; list++) {
        printf(".TP\n.B \\-\\-");
        man_text(list->name);
        if (list->value) {
            printf(" \\fI");
            man_text(list->value);
            printf("\\fR");
        }
        putchar('\n');
        man_text(list->help);
        if (list->initial && *list->initial) {
            printf(" [");
            man_text(list->initial);
            printf("]");
        }
        putchar('\n');
    }
}

static void man_verb(const verb *v) {
    printf(".SS conr %s ", v->name);
    man_text(v->operands);
    putchar('\n');
    man_text(v->summary);
    printf(".\n");
    if (v->text) {
        printf(".PP\n.nf\n");
        man_text(v->text);
        printf(".fi\n");
    }
    man_flags(v->flags);
}

static void print_man(void) {
    printf(".TH CONR 1 \"\" \"conr %s\" \"User Commands\"\n"
           ".SH NAME\nconr \\- cluster images without labels\n"
           ".SH SYNOPSIS\n.B conr\n.I VERB\n[operands] [flags]\n.br\n.B conr help\n.I VERB\n.br\n"
           ".B conr \\-\\-version\n"
           ".SH DESCRIPTION\n"
           "Learns from images without labels and clusters them (CoNR: contextually affinitive\n"
           "neighborhood refinery, NeurIPS 2023).  Typical use:\n.PP\n.nf\n"
           "conr cluster photos/ \\-\\-clusters auto \\-\\-budget 30m \\-\\-out runs/photos\n"
           "conr assign runs/photos new\\-photos/ \\-\\-out clusters.csv\n.fi\n"
           ".SH VERBS\n",
           conr_version());
    for (int i = 0; verb_at(i); i++) man_verb(verb_at(i));
    printf(".SH COMMON FLAGS\nEvery verb takes these.\n");
    man_flags(common_flags());
    printf(
        ".SH FILES\nA run folder holds:\n"
        ".TP\n.B labels.csv\npath,cluster,distance,boundary[,label] of every image\n"
        ".TP\n.B model.safetensors\nthe trained network; all that conr embed needs\n"
        ".TP\n.B embeddings.npy, centroids.npy\nfeatures of the images, centroids of the clusters\n"
        ".TP\n.B edits.json, untouched.csv\nwhat was decided in conr open; labels.csv as it was\n"
        ".TP\n.B options.yaml, log.jsonl\nall settings; the log\n"
        ".TP\n.B checkpoint.safetensors\nfor conr train \\-\\-resume\n"
        ".TP\n.B DONE\nwritten last\n"
        ".SH EXIT STATUS\n"
        "0: success.  1: failure; one line on standard error says why and what to do.  2: wrong\n"
        "usage.  130: stopped by Ctrl\\-C; a training is saved.\n");
}

/* ---- the verbs ------------------------------------------------------------------------------- */

static int run_completion(const arguments *a) {
    const char *shell = operand(a, 0);
    if (!strcmp(shell, "bash"))
        print_bash();
    else if (!strcmp(shell, "zsh"))
        print_zsh();
    else
        return usage_error("%s: no completion for this shell; give bash or zsh", shell);
    return finish_output();
}

static int run_man(const arguments *a) {
    (void)a;
    print_man();
    return finish_output();
}

const verb verb_completion = {
    .name = "completion",
    .operands = "bash|zsh",
    .summary = "Print the completion script for a shell",
    .text = "make install puts it where shells look for it.  Otherwise:\n"
            "\nExample: source <(conr completion bash)\n",
    .low = 1,
    .high = 1,
    .run = run_completion,
};

const verb verb_man = {
    .name = "man",
    .operands = "",
    .summary = "Print the manual page",
    .text = "Example: conr man | man -l -\n",
    .run = run_man,
};
