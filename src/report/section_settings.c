/* section_settings.c: the words of the scores, and every setting of the run. */
#include "report/section.h"

#include "report/html.h"

#include <string.h>

void section_write_settings(FILE *f, const report *r) {
    conr_settings s = {r->f->o};
    conr_setting_info i;
    char value[OPTION_TEXT_SIZE];
    fputs(
        "<section id=\"settings\" aria-labelledby=\"h-settings\">\n<h2 id=\"h-settings\">Settings"
        "</h2>\n<dl class=\"words\"><dt>NMI, ACC, ARI</dt><dd>Agreement of clusters with labels: "
        "information they share; images that fall right when each cluster stands for one class; "
        "pairs of images that both keep together or both part, corrected for chance. 1 is "
        "perfect.</dd><dt>Silhouette</dt><dd>How much nearer images are to their own cluster "
        "than to the next one.</dd><dt>Boundary</dt><dd>0 in the middle of a cluster, 1 half way "
        "to the next.</dd></dl>\n<details><summary>Every setting of this run</summary>\n<div "
        "class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Table of settings\"><table "
        "class=\"plain said\"><thead><tr><th scope=\"col\">Setting</th><th scope=\"col\">Value</th>"
        "<th scope=\"col\">What it is</th></tr></thead><tbody>\n",
        f);
    for (int k = 0; conr_setting(k, &i); k++) {
        if (conr_settings_get(&s, i.key, value, sizeof value) < 0) continue;
        html_print(f, "<tr><th scope=\"row\">%s</th><td>", i.key);
        html_print(f, strcmp(value, i.initial) ? "<strong>%s</strong>" : "%s", value);
        html_print(f, "</td><td>%s</td></tr>\n", i.help);
    }
    fputs("</tbody></table></div>\n<p class=\"note\">Bold: other than the default. options.yaml in "
          "the run's folder is a recipe that repeats it.</p></details>\n</section>\n",
          f);
}
