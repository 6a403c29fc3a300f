/* options_yaml.c: files of settings, in YAML.
 *
 * The grammar is left to libyaml; this file accepts one mapping of plain or quoted scalars and
 * refuses the rest (lists, nested mappings, anchors, tags, several documents), since no setting
 * needs it. */
#include "base/options_text.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/status.h"

#include <string.h>
#include <strings.h>
#include <yaml.h>

enum { YAML_LIMIT = 1 << 20 }; /* bytes of a file: a longer one holds no settings */

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct reader {
    const char *name;
    const char *text;
    size_t length;
    const option *list;
    int count;
    void *settings; /* a copy, which is copied back at the end */
    int *line_of;   /* [count], the line that set each option, or 0 */
    yaml_parser_t parser;
    yaml_event_t event;
    char where[1024]; /* "NAME:LINE: " of the event */
} reader;

static void note_place(reader *r, size_t line) {
    snprintf(r->where, sizeof r->where, "%.900s:%zu: ", r->name, line);
}

static int fail_syntax(reader *r) {
    const yaml_parser_t *p = &r->parser;
    size_t line = p->problem_mark.line + 1;
    if (p->error == YAML_MEMORY_ERROR) return fail_memory(r->name, YAML_LIMIT);
    if (p->error == YAML_READER_ERROR) { /* it knows the byte but not the line */
        line = 1;
        for (size_t i = 0; i < p->problem_offset && i < r->length; i++) line += r->text[i] == '\n';
    }
    note_place(r, line);
    return fail(CONR_EFORMAT, "%snot YAML, %s; write lines of the form key: value", r->where,
                p->problem ? p->problem : "for an unknown reason");
}

static int next_event(reader *r) {
    yaml_event_delete(&r->event);
    if (!yaml_parser_parse(&r->parser, &r->event)) return fail_syntax(r);
    note_place(r, r->event.start_mark.line + 1);
    return 0;
}

static int fail_structure(const reader *r, const char *why) {
    return fail(CONR_EFORMAT, "%s%s; write lines of the form key: value", r->where, why);
}

/* The text of the event, which owns it; refuses one with a NUL inside. */
static int read_scalar(const reader *r, const char *key, const char **out) {
    const yaml_event_t *e = &r->event;
    if (e->type == YAML_ALIAS_EVENT) return fail_structure(r, "an alias (*name)");
    if (e->type != YAML_SCALAR_EVENT)
        return fail(CONR_EFORMAT, "%s%s%sa list or mapping where one value belongs; %s", r->where,
                    key, *key ? ": " : "", "write lines of the form key: value");
    if (e->data.scalar.anchor || e->data.scalar.tag)
        return fail_structure(r, "an anchor (&name) or a tag (!name)");
    *out = (const char *)e->data.scalar.value;
    if (strlen(*out) != e->data.scalar.length) return fail_structure(r, "a zero byte in a text");
    return 0;
}

static int read_entry(reader *r) {
    int rc = 0;
    const char *text;
    const option *o;
    TRY(read_scalar(r, "", &text));
    TRY(option_find(r->where, r->list, r->count, text, &o));
    int *line = &r->line_of[o - r->list];
    if (*line)
        TRY(fail(CONR_EFORMAT, "%s%s: already set on line %d; keep one of them", r->where, o->key,
                 *line));
    *line = (int)r->event.start_mark.line + 1;
    TRY(next_event(r));
    TRY(read_scalar(r, o->key, &text));
    if (!*text && r->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE)
        TRY(fail(CONR_EFORMAT, "%s%s: no value; give one, or \"\" for empty text", r->where,
                 o->key));
    TRY(option_set(r->where, o, r->settings, text));
done:
    return rc;
}

static int read_document(reader *r) {
    int rc = 0;
    TRY(next_event(r)); /* the start of the stream */
    TRY(next_event(r));
    if (r->event.type == YAML_STREAM_END_EVENT) TRY(fail_structure(r, "no settings in it"));
    TRY(next_event(r));
    if (r->event.type != YAML_MAPPING_START_EVENT) TRY(fail_structure(r, "no settings"));
    TRY(next_event(r));
    while (r->event.type != YAML_MAPPING_END_EVENT) {
        TRY(read_entry(r));
        TRY(next_event(r));
    }
    TRY(next_event(r)); /* the end of the document */
    TRY(next_event(r));
    if (r->event.type != YAML_STREAM_END_EVENT) TRY(fail_structure(r, "a second document"));
done:
    return rc;
}

static size_t field_size(const option *o) {
    switch (o->kind) {
    case OPTION_INT: return sizeof(int);
    case OPTION_FLOAT: return sizeof(double);
    case OPTION_BOOL: return sizeof(bool);
    default: return OPTION_TEXT_SIZE;
    }
}

int options_read_yaml_text(const option *list, int count, void *settings, const char *name,
                           const char *text, size_t length) {
    int rc = 0;
    size_t size = 0;
    arena memory = {0};
    reader r = {.name = name, .text = text, .length = length, .list = list, .count = count};
    if (length > YAML_LIMIT)
        return fail(CONR_EFORMAT, "%s: has %zu bytes, too many for settings; is it the right file?",
                    name, length);
    if (length >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)) { /* a byte order mark, of some editors */
        text += 3, length -= 3;
        r.text = text, r.length = length;
    }
    if (!yaml_parser_initialize(&r.parser)) return fail_memory(name, YAML_LIMIT);
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, length);
    for (int i = 0; i < count; i++) {
        size_t end = list[i].at + field_size(&list[i]);
        if (end > size) size = end;
    }
    r.settings = arena_alloc(&memory, size);
    r.line_of = arena_alloc(&memory, (size_t)count * sizeof *r.line_of);
    if (!r.settings || !r.line_of) TRY(CONR_ENOMEM);
    memcpy(r.settings, settings, size);
    TRY(read_document(&r));
    memcpy(settings, r.settings, size);
done:
    yaml_event_delete(&r.event);
    yaml_parser_delete(&r.parser);
    arena_free(&memory);
    return rc;
}

int options_read_yaml(const option *list, int count, void *settings, const char *path) {
    int rc = 0;
    file_bytes file;
    TRY(file_read_whole(path, &file));
    TRY(options_read_yaml_text(list, count, settings, path, (const char *)file.data, file.n));
done:
    file_bytes_free(&file);
    return rc;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Whether any YAML reader takes it for the same text without quotes around it. */
static bool is_plain(const char *text) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    static const char more[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./-";
    bool taken = text_is_bool(text) || !strcasecmp(text, "y") || !strcasecmp(text, "n") ||
                 !strcasecmp(text, "null");
    return strspn(text, letters) && !text[strspn(text, more)] && !taken;
}

/* Whether YAML forbids it in a text or takes it for a line break. */
static bool needs_escape(int32_t code) {
    return code < ' ' || (code >= 0x7f && code < 0xa0) || code == 0x2028 || code == 0x2029 ||
           code == 0xfeff || code == 0xfffe || code == 0xffff;
}

static void write_quoted(const char *text, FILE *stream) {
    fputc('"', stream);
    while (*text) {
        const char *start = text;
        int32_t code = text_code(&text);
        ASSERT(code >= 0); /* set_text accepts only UTF-8 */
        if (code == '\n')
            fputs("\\n", stream);
        else if (code == '"' || code == '\\')
            fprintf(stream, "\\%c", (char)code);
        else if (needs_escape(code))
            fprintf(stream, "\\u%04X", (unsigned)code);
        else
            fwrite(start, 1, (size_t)(text - start), stream);
    }
    fputc('"', stream);
}

static void write_value(const option *o, const char *text, FILE *stream) {
    bool is_text = o->kind == OPTION_WORD || o->kind == OPTION_TEXT;
    if (is_text && !is_plain(text))
        write_quoted(text, stream);
    else
        fputs(text, stream);
}

void options_write_yaml(const option *list, int count, const void *settings, FILE *stream) {
    for (int i = 0; i < count; i++) {
        char text[OPTION_TEXT_SIZE];
        option_get(&list[i], settings, text);
        fprintf(stream, "%s: ", list[i].key);
        write_value(&list[i], text, stream);
        fputc('\n', stream);
    }
}
