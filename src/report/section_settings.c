/* section_settings.c: what the scores mean, and all settings of the run. */
#include "report/section.h"

#include "report/html.h"

#include <string.h>

static void write_setting(FILE *f, const char *key, const char *value, bool usual,
                          const char *help) {
    html_print(f, "<tr><th scope=\"row\">%s</th><td>", key);
    html_print(f, usual ? "%s" : "<strong>%s</strong>", value);
    html_print(f, "</td><td>%s</td></tr>\n", help);
}

static void write_training(FILE *f, const report *r) {
    conr_settings s = {r->f->o};
    conr_setting_info i;
    char value[OPTION_TEXT_SIZE];
    for (int k = 0; conr_setting(k, &i); k++)
        if (conr_settings_get(&s, i.key, value, sizeof value) == 0)
            write_setting(f, i.key, value, !strcmp(value, i.initial), i.help);
}

static void write_made(FILE *f, const report *r) {
    const option *about;
    char value[OPTION_TEXT_SIZE], initial[OPTION_TEXT_SIZE];
    for (int k = 0; features_at(&r->f->made, k, &about, value, initial); k++)
        write_setting(f, about->key, value, !strcmp(value, initial), about->help);
}

void section_write_settings(FILE *f, const report *r) {
    bool made = r->f->of_features;
    fputs(
        "<section id=\"settings\" aria-labelledby=\"h-settings\">\n<h2 id=\"h-settings\">Settings"
        "</h2>\n<dl class=\"words\"><dt>NMI, ACC, ARI</dt><dd>How well clusters agree with labels; "
        "1 "
        "is perfect. NMI: the information that both share. ACC: the share of images that are right "
        "if each cluster stands for one class. ARI: how often both agree on whether two images "
        "belong together, corrected for chance.</dd><dt>Silhouette</dt><dd>How much closer images "
        "are to their own cluster than to the next one, from -1 to 1; higher is "
        "clearer.</dd>",
        f);
    if (made)
        fputs("<dt>Neighbor agreement</dt><dd>The share of an image's 20 nearest images, by the "
              "features as they were given, that are in its cluster.</dd>",
              f);
    fputs(
        "<dt>Boundary ratio</dt><dd>0 at the center of a cluster, 1 halfway to the "
        "next "
        "one.</dd></dl>\n<details><summary>All settings of this run</summary>\n<div "
        "class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Table of settings\"><table "
        "class=\"plain said\"><thead><tr><th scope=\"col\">Setting</th><th scope=\"col\">Value</th>"
        "<th scope=\"col\">Meaning</th></tr></thead><tbody>\n",
        f);
    if (made)
        write_made(f, r);
    else
        write_training(f, r);
    fputs("</tbody></table></div>\n<p class=\"note\">Bold: differs from the default.", f);
    if (!made) fputs(" options.yaml in the folder of the run is a recipe that repeats it.", f);
    fputs("</p></details>\n</section>\n", f);
}
