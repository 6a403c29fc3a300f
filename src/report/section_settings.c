/* section_settings.c: what the scores mean, and all settings of the run. */
#include "report/section.h"

#include "report/html.h"

#include <string.h>

void section_write_settings(FILE *f, const report *r) {
    conr_settings s = {r->f->o};
    conr_setting_info i;
    char value[OPTION_TEXT_SIZE];
    fputs(
        "<section id=\"settings\" aria-labelledby=\"h-settings\">\n<h2 id=\"h-settings\">Settings"
        "</h2>\n<dl class=\"words\"><dt>NMI, ACC, ARI</dt><dd>How well clusters agree with labels; "
        "1 "
        "is perfect. NMI: the information that both share. ACC: the share of images that are right "
        "if each cluster stands for one class. ARI: how often both agree on whether two images "
        "belong together, corrected for chance.</dd><dt>Silhouette</dt><dd>How much closer images "
        "are to their own cluster than to the next one, from -1 to 1; higher is "
        "clearer.</dd><dt>Boundary ratio</dt><dd>0 at the center of a cluster, 1 halfway to the "
        "next "
        "one.</dd></dl>\n<details><summary>All settings of this run</summary>\n<div "
        "class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Table of settings\"><table "
        "class=\"plain said\"><thead><tr><th scope=\"col\">Setting</th><th scope=\"col\">Value</th>"
        "<th scope=\"col\">Meaning</th></tr></thead><tbody>\n",
        f);
    for (int k = 0; conr_setting(k, &i); k++) {
        if (conr_settings_get(&s, i.key, value, sizeof value) < 0) continue;
        html_print(f, "<tr><th scope=\"row\">%s</th><td>", i.key);
        html_print(f, strcmp(value, i.initial) ? "<strong>%s</strong>" : "%s", value);
        html_print(f, "</td><td>%s</td></tr>\n", i.help);
    }
    fputs(
        "</tbody></table></div>\n<p class=\"note\">Bold: differs from the default. options.yaml in "
        "the folder of the run is a recipe that repeats it.</p></details>\n</section>\n",
        f);
}
