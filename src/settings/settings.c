/* settings.c: the public calls about settings; presets; contradictions. */
#include "settings/settings.h"

#include "base/file.h"
#include "base/status.h"
#include "settings/features.h"

#include <stdlib.h>
#include <string.h>

static const option list[] = {OPTIONS_LIST(TRAIN_OPTIONS, train_options)};

/* What each preset sets.  Settings given after it override it. */
static const char *const presets[][2] = {
    {"paper", "batch=256"},
    {"paper", "lr=0.05"},
    {"paper", "bn_group=0"},
    {"paper", "shuffle_bn=false"},
    {"paper", "restarts=10"},
    {"paper", "loss_mean=kept"},
    {"paper", "stage2_loss_scale=1"},
    {"released", "batch=512"}, /* four GPUs with 128 images each */
    {"released", "lr=0.1"},
    {"released", "bn_group=128"},
    {"released", "shuffle_bn=true"},
    {"released", "restarts=40"},
    {"released", "loss_mean=batch"},
    {"released", "stage2_loss_scale=0.25"}, /* its gather divides once too often */
};

static int apply_preset(train_options *o) {
    int rc = 0;
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++)
        if (!strcmp(presets[i][0], o->preset))
            TRY(options_set_pair(OPTIONS_OF(list), o, presets[i][1]));
done:
    return rc;
}

int conr_settings_new(conr_settings **out) {
    *out = calloc(1, sizeof **out);
    if (!*out) return fail_memory("settings", sizeof **out);
    options_default(OPTIONS_OF(list), &(*out)->o);
    return 0;
}

void conr_settings_free(conr_settings *s) { free(s); }

/* Says so if a file of settings that was refused belongs to a run made from features. */
static int explain(int code, const char *path) {
    char why[2048];
    features_options o;
    snprintf(why, sizeof why, "%s", conr_error());
    if (code == CONR_EINVAL && features_read(&o, path) == 1)
        return fail(code,
                    "%s: is of a run made from features, not of a training; repeat conr cluster, "
                    "or give a recipe",
                    path);
    return fail(code, "%s", why);
}

int settings_read(train_options *o, const char *path) {
    int rc = 0;
    train_options probe = *o, next = *o;
    probe.preset[0] = 0; /* stays empty unless the file names one */
    if ((rc = options_read_yaml(OPTIONS_OF(list), &probe, path)) < 0) return explain(rc, path);
    if (probe.preset[0]) { /* the preset is applied first, whatever line it is on */
        memcpy(next.preset, probe.preset, sizeof next.preset);
        TRY(apply_preset(&next));
    }
    TRY(options_read_yaml(OPTIONS_OF(list), &next, path));
    *o = next;
done:
    return rc;
}

int conr_settings_read(conr_settings *s, const char *path) {
    int rc = settings_read(&s->o, path);
    return rc < 0 ? rc : conr_check_file(path);
}

int conr_settings_set(conr_settings *s, const char *key, const char *value) {
    int rc = 0;
    TRY(options_set(OPTIONS_OF(list), &s->o, key, value));
    if (!strcmp(key, "preset")) TRY(apply_preset(&s->o));
done:
    return rc;
}

int conr_settings_get(const conr_settings *s, const char *key, char *out, int size) {
    char text[OPTION_TEXT_SIZE];
    int rc = 0;
    TRY(options_get_text(OPTIONS_OF(list), &s->o, key, text));
    if ((int)strlen(text) >= size)
        TRY(fail(CONR_EINVAL, "%s: its value does not fit into %d bytes; give %d", key, size,
                 OPTION_TEXT_SIZE));
    memcpy(out, text, strlen(text) + 1);
done:
    return rc;
}

int conr_setting(int i, conr_setting_info *out) {
    static _Thread_local char initial[OPTION_TEXT_SIZE], allowed[OPTION_TEXT_SIZE];
    static _Thread_local train_options defaults;
    if (i < 0 || i >= (int)(sizeof list / sizeof *list)) return 0;
    const option *x = &list[i];
    options_default(OPTIONS_OF(list), &defaults);
    options_get_text(OPTIONS_OF(list), &defaults, x->key, initial);
    switch (x->kind) {
    case OPTION_BOOL: snprintf(allowed, sizeof allowed, "true|false"); break;
    case OPTION_TEXT: snprintf(allowed, sizeof allowed, "text"); break;
    case OPTION_WORD: snprintf(allowed, sizeof allowed, "%s", x->choices); break;
    case OPTION_INT:
    case OPTION_FLOAT: snprintf(allowed, sizeof allowed, "%.10g to %.10g", x->low, x->high); break;
    }
    *out = (conr_setting_info){x->key, initial, allowed, x->help};
    return 1;
}

bool prototypes_in(const train_options *o, int64_t epoch) {
    return !strcmp(o->framework, "propos") && o->clusters > 0 && epoch >= o->prototype_epoch &&
           (stage_of(o, epoch) == 1 || o->prototypes_stage2);
}

bool confident_stage2(const train_options *o) { return !strcmp(o->stage2, "confident"); }

void settings_text(const train_options *o, char *out, size_t size) {
    FILE *f = fmemopen(out, size, "w");
    if (f) options_write_yaml(OPTIONS_OF(list), o, f);
    bool fits = f && !fflush(f) && !ferror(f) && (size_t)ftell(f) < size;
    if (f) fclose(f);
    if (!fits) *out = 0;
    for (; *out; out++)
        if (*out & 0x80) *out = '?';
}

int settings_write(const train_options *o, const char *path) {
    int rc = 0;
    file_new f = {0};
    TRY(file_new_open(&f, path));
    options_write_yaml(OPTIONS_OF(list), o, f.stream);
    TRY(file_new_commit(&f));
done:
    file_new_drop(&f);
    return rc;
}

int settings_check(const train_options *o) {
    if (o->stage1_epochs > o->epochs)
        return fail(CONR_EINVAL, "stage1_epochs %d: more than the %d epochs; make it smaller",
                    o->stage1_epochs, o->epochs);
    if (o->replan_epoch &&
        (o->replan_epoch > o->stage1_epochs || o->replan_from <= o->replan_epoch))
        return fail(
            CONR_EINVAL,
            "replan_epoch %d: must be in stage 1 and below replan_from (%d); leave both out",
            o->replan_epoch, o->replan_from);
    if (o->until > o->epochs)
        return fail(CONR_EINVAL,
                    "until %d: there are only %d epochs; make it smaller, or set epochs", o->until,
                    o->epochs);
    if (o->batch % o->accumulate)
        return fail(CONR_EINVAL, "accumulate %d: does not divide the batch of %d; use a divisor",
                    o->accumulate, o->batch);
    int part = o->batch / o->accumulate;
    if (o->bn_group && o->bn_group < part && part % o->bn_group)
        return fail(CONR_EINVAL,
                    "bn_group %d: does not divide the %d images that pass through the network "
                    "together (batch / accumulate); use a divisor",
                    o->bn_group, part);
    if (o->bn_group == 1 || part < 2)
        return fail(CONR_EINVAL, "bn_group: one image has no variance; use at least 2");
    if (o->shuffle_bn && o->accumulate > 1)
        return fail(CONR_EINVAL,
                    "shuffle_bn: cannot shuffle a batch that is split; set accumulate to 1");
    if (!strcmp(o->framework, "moco") && o->queue < 2 * o->batch)
        return fail(CONR_EINVAL, "queue %d: less than the %d keys of one step; make it larger",
                    o->queue, 2 * o->batch);
    if (confident_stage2(o) && strcmp(o->framework, "byol") && strcmp(o->framework, "propos"))
        return fail(CONR_EINVAL,
                    "stage2 confident: framework %s lacks a target network or a predictor; set "
                    "framework to byol or propos, or stage2 to conr",
                    o->framework);
    if (o->clusters == 0 && o->clusters_low >= o->clusters_high)
        return fail(CONR_EINVAL, "clusters_low %d: not below clusters_high %d; change one of them",
                    o->clusters_low, o->clusters_high);
    if (o->ratio_low > o->ratio_high)
        return fail(CONR_EINVAL, "ratio_low: above ratio_high; change one of them");
    return 0;
}

int conr_settings_check(const conr_settings *s) { return settings_check(&s->o); }
