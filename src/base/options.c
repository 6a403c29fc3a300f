/* options.c: settings as text: found by key, checked, set, printed, explained.
 *
 * Numbers are those of C without hexadecimal, NaN and infinity.  options_yaml.c reads and writes
 * files of settings. */
#include "base/options_text.h"

#include "base/status.h"

#include <locale.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    KEY_LIMIT = 64, /* bytes of a key: more than any has */
    SHOWN = 64      /* bytes of foreign text that a message shows */
};

static void *field_of(const option *o, void *settings) { return (char *)settings + o->at; }

/* ---- texts ----------------------------------------------------------------------------------- */

typedef struct shown {
    char text[SHOWN + 4];
} shown;

/* Makes foreign text fit for a one-line message: no control characters, not too long. */
static shown show(const char *text) {
    shown s = {{0}};
    size_t n = strlen(text), kept = n < SHOWN ? n : SHOWN;
    for (int i = 0; i < 3 && kept < n && (text[kept] & 0xc0) == 0x80; i++)
        kept--; /* do not split a UTF-8 character */
    for (size_t i = 0; i < kept; i++)
        s.text[i] = (unsigned char)text[i] < ' ' || text[i] == 127 ? '?' : text[i];
    if (kept < n) strcpy(s.text + kept, "...");
    return s;
}

int32_t text_code(const char **text) {
    static const int32_t least[] = {0, 0x80, 0x800, 0x10000};
    const unsigned char *c = (const unsigned char *)*text;
    int more = *c < 0x80 ? 0 : *c >> 5 == 6 ? 1 : *c >> 4 == 14 ? 2 : *c >> 3 == 30 ? 3 : -1;
    if (more < 0) return -1;
    int32_t code = more ? *c & (0x3f >> more) : *c;
    for (int i = 1; i <= more; i++) {
        if (c[i] >> 6 != 2) return -1;
        code = code << 6 | (c[i] & 0x3f);
    }
    *text += 1 + more;
    return code < least[more] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000) ? -1 : code;
}

static bool is_utf8(const char *text) {
    while (*text)
        if (text_code(&text) < 0) return false;
    return true;
}

static bool is_choice(const char *choices, const char *word) {
    size_t n = strlen(word);
    for (const char *c = choices;; c++) {
        size_t length = strcspn(c, "|");
        if (length == n && !memcmp(c, word, n)) return true;
        c += length;
        if (!*c) return false;
    }
}

static bool is_one_of(const char *text, const char *const *words) {
    for (; *words; words++)
        if (!strcasecmp(text, *words)) return true;
    return false;
}

static const char *const yes_words[] = {"true", "yes", "on", "1", NULL};
static const char *const no_words[] = {"false", "no", "off", "0", NULL};

bool text_is_bool(const char *text) {
    return is_one_of(text, yes_words) || is_one_of(text, no_words);
}

/* ---- numbers, whatever the locale ------------------------------------------------------------ */

/* Between these two calls, strtod and printf of this thread use the decimal point. */
static locale_t enter_c_locale(void) {
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    ASSERT(c);
    return uselocale(c);
}

static void leave_c_locale(locale_t before) { freelocale(uselocale(before)); }

/* [sign] digits [. digits] [e [sign] digits], at least one digit before the e; whole: only
 * [sign] digits.  strtod would also accept " 1", "0x1p3", "nan" and "inf". */
static bool is_number(const char *text, bool whole) {
    static const char digits[] = "0123456789";
    text += *text == '-' || *text == '+';
    size_t n = strspn(text, digits);
    text += n;
    if (whole) return n && !*text;
    if (*text == '.') {
        size_t fraction = strspn(++text, digits);
        n += fraction;
        text += fraction;
    }
    if (n && (*text == 'e' || *text == 'E')) {
        text++;
        text += *text == '-' || *text == '+';
        n = strspn(text, digits);
        text += n;
    }
    return n && !*text;
}

static double number_of(const char *text) {
    locale_t before = enter_c_locale();
    double value = strtod(text, NULL);
    leave_c_locale(before);
    return value;
}

/* The shortest text that reads as the same double.  YAML 1.1 recognizes a float by its point, so
 * 1e-05 is written as 1.0e-05; many readers would take the former for text. */
static void number_text(double value, char out[32]) {
    locale_t before = enter_c_locale();
    if (value == floor(value) && fabs(value) < 1e15) {
        snprintf(out, 32, "%.0f", value);
    } else {
        for (int digits = 1; digits <= 17; digits++) {
            snprintf(out, 32, "%.*g", digits, value);
            if (strtod(out, NULL) == value) break;
        }
        char *e = strchr(out, 'e');
        if (e && !strchr(out, '.')) {
            memmove(e + 2, e, strlen(e) + 1);
            memcpy(e, ".0", 2);
        }
    }
    leave_c_locale(before);
}

/* ---- one setting ----------------------------------------------------------------------------- */

/* The allowed values of a setting: "16 to 4096", "at least 0", "a|b|c", cut if too long. */
static void range_text(const option *o, char out[OPTION_TEXT_SIZE]) {
    char low[32], high[32];
    bool below = o->low > -INFINITY, above = o->high < INFINITY;
    switch (o->kind) {
    case OPTION_BOOL: strcpy(out, "true|false"); return;
    case OPTION_WORD: snprintf(out, OPTION_TEXT_SIZE, "%s", o->choices); return;
    case OPTION_TEXT: strcpy(out, "text"); return;
    default: break;
    }
    number_text(below ? o->low : 0, low);
    number_text(above ? o->high : 0, high);
    if (below && above)
        snprintf(out, OPTION_TEXT_SIZE, "%s to %s", low, high);
    else if (below || above)
        snprintf(out, OPTION_TEXT_SIZE, "at %s %s", below ? "least" : "most", below ? low : high);
    else
        strcpy(out, "any number");
}

static int refuse(const char *where, const option *o, const char *value, const char *why) {
    char range[OPTION_TEXT_SIZE];
    range_text(o, range);
    return fail(CONR_EINVAL, "%s%s=%s: %s; give %s", where, o->key, show(value).text, why, range);
}

static int set_number(const char *where, const option *o, void *settings, const char *text) {
    bool whole = o->kind == OPTION_INT;
    if (!is_number(text, whole))
        return refuse(where, o, text, whole ? "not a whole number" : "not a number");
    double value = number_of(text);
    if (!isfinite(value)) return refuse(where, o, text, "too large for a number");
    if (value < o->low || value > o->high) return refuse(where, o, text, "out of range");
    if (whole)
        *(int *)field_of(o, settings) = (int)value;
    else
        *(double *)field_of(o, settings) = value;
    return 0;
}

static int set_text(const char *where, const option *o, void *settings, const char *text) {
    if (o->kind == OPTION_WORD && !is_choice(o->choices, text))
        return refuse(where, o, text, "not one of its choices");
    if (strlen(text) >= OPTION_TEXT_SIZE) return refuse(where, o, text, "longer than 255 bytes");
    if (!is_utf8(text)) return refuse(where, o, text, "not UTF-8");
    char whole[OPTION_TEXT_SIZE] = {0}; /* clears what follows: equal settings have equal bytes */
    strcpy(whole, text);
    memcpy(field_of(o, settings), whole, sizeof whole);
    return 0;
}

int option_set(const char *where, const option *o, void *settings, const char *text) {
    switch (o->kind) {
    case OPTION_INT:
    case OPTION_FLOAT: return set_number(where, o, settings, text);
    case OPTION_BOOL:
        if (!text_is_bool(text)) return refuse(where, o, text, "neither true nor false");
        *(bool *)field_of(o, settings) = is_one_of(text, yes_words);
        return 0;
    default: return set_text(where, o, settings, text);
    }
}

void option_get(const option *o, const void *settings, char out[OPTION_TEXT_SIZE]) {
    const void *field = field_of(o, (void *)settings);
    switch (o->kind) {
    case OPTION_INT: snprintf(out, OPTION_TEXT_SIZE, "%d", *(const int *)field); break;
    case OPTION_FLOAT: number_text(*(const double *)field, out); break;
    case OPTION_BOOL: strcpy(out, *(const bool *)field ? "true" : "false"); break;
    default: memcpy(out, field, OPTION_TEXT_SIZE);
    }
}

static void default_text(const option *o, char out[OPTION_TEXT_SIZE]) {
    switch (o->kind) {
    case OPTION_INT:
    case OPTION_FLOAT: number_text(o->number, out); break;
    case OPTION_BOOL: strcpy(out, o->number != 0 ? "true" : "false"); break;
    default: snprintf(out, OPTION_TEXT_SIZE, "%s", o->text);
    }
}

void options_default(const option *list, int count, void *settings) {
    for (int i = 0; i < count; i++) {
        char text[OPTION_TEXT_SIZE];
        default_text(&list[i], text);
        /* a default outside its own range is an error in the list */
        ASSERT(strlen(list[i].key) < KEY_LIMIT && option_set("", &list[i], settings, text) == 0);
    }
}

/* ---- keys ------------------------------------------------------------------------------------ */

static char key_letter(char c) { return c == '-' ? '_' : c; }

static bool is_key(const char *given, const char *key) {
    while (*given && key_letter(*given) == *key) given++, key++;
    return !*given && !*key;
}

/* The Levenshtein distance of two keys, of which only the first KEY_LIMIT letters count. */
static int distance(const char *a, const char *b) {
    int row[KEY_LIMIT + 1], m = (int)strnlen(b, KEY_LIMIT);
    for (int j = 0; j <= m; j++) row[j] = j;
    for (int i = 0; i < KEY_LIMIT && a[i]; i++) {
        int corner = row[0]++;
        for (int j = 0; j < m; j++) {
            int change = corner + (key_letter(a[i]) != b[j]);
            int shift = 1 + (row[j] < row[j + 1] ? row[j] : row[j + 1]);
            corner = row[j + 1];
            row[j + 1] = change < shift ? change : shift;
        }
    }
    return row[m];
}

int option_find(const char *where, const option *list, int count, const char *key,
                const option **out) {
    const option *nearest = list;
    ASSERT(count > 0);
    for (int i = 0; i < count; i++) {
        if (is_key(key, list[i].key)) {
            *out = &list[i];
            return 0;
        }
        if (distance(key, list[i].key) < distance(key, nearest->key)) nearest = &list[i];
    }
    return fail(CONR_EINVAL, "%s%s: no such setting; did you mean %s?", where, show(key).text,
                nearest->key);
}

int options_set(const option *list, int count, void *settings, const char *key, const char *value) {
    int rc = 0;
    const option *o;
    TRY(option_find("", list, count, key, &o));
    TRY(option_set("", o, settings, value));
done:
    return rc;
}

int options_set_pair(const option *list, int count, void *settings, const char *pair) {
    const char *equals = strchr(pair, '=');
    if (!equals || equals == pair)
        return fail(CONR_EINVAL, "%s: not a setting; give key=value", show(pair).text);
    char key[KEY_LIMIT + 1] = {0}; /* a longer key is unknown, cut or not */
    size_t n = (size_t)(equals - pair);
    memcpy(key, pair, n < KEY_LIMIT ? n : KEY_LIMIT);
    return options_set(list, count, settings, key, equals + 1);
}

int options_get_text(const option *list, int count, const void *settings, const char *key,
                     char out[OPTION_TEXT_SIZE]) {
    int rc = 0;
    const option *o;
    TRY(option_find("", list, count, key, &o));
    option_get(o, settings, out);
done:
    return rc;
}

/* ---- help ------------------------------------------------------------------------------------ */

/* The columns before the help: key, default, range. */
typedef struct help_row {
    char column[3][OPTION_TEXT_SIZE];
} help_row;

static void make_row(const option *o, help_row *out) {
    snprintf(out->column[0], OPTION_TEXT_SIZE, "%s", o->key);
    default_text(o, out->column[1]);
    if (!*out->column[1]) strcpy(out->column[1], "\"\"");
    range_text(o, out->column[2]);
}

void options_help(const option *list, int count, FILE *stream) {
    int width[3] = {0};
    help_row row;
    for (int i = 0; i < count; i++) {
        make_row(&list[i], &row);
        for (int c = 0; c < 3; c++) {
            int n = (int)strlen(row.column[c]);
            if (n > width[c]) width[c] = n;
        }
    }
    for (int i = 0; i < count; i++) {
        make_row(&list[i], &row);
        fprintf(stream, "  %-*s  %-*s  %-*s  %s\n", width[0], row.column[0], width[1],
                row.column[1], width[2], row.column[2], list[i].help);
    }
}
