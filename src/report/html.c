/* html.c: see html.h.  The build embeds page.css and page.js in the library. */
#include "report/html.h"

#include "conr.h"
#include "report_assets.h" /* page_css, page_js */

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* The length of the UTF-8 character at text; 0 if it is invalid or a control character. */
static int character(const char *text) {
    const unsigned char *s = (const unsigned char *)text;
    uint32_t code;
    int n;
    if (s[0] < 0x80) return s[0] == '\t' || s[0] == '\n' || (s[0] >= 32 && s[0] != 127);
    if (s[0] >= 0xC2 && s[0] <= 0xDF)
        n = 2, code = s[0] & 31;
    else if ((s[0] & 0xF0) == 0xE0)
        n = 3, code = s[0] & 15;
    else if (s[0] >= 0xF0 && s[0] <= 0xF4)
        n = 4, code = s[0] & 7;
    else
        return 0;
    for (int i = 1; i < n; i++) {
        if ((s[i] & 0xC0) != 0x80) return 0; /* also at the terminating 0 */
        code = code << 6 | (s[i] & 63);
    }
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    bool surrogate = code >= 0xD800 && code <= 0xDFFF, control = code >= 0x80 && code < 0xA0;
    /* characters that change the writing direction */
    bool directional = (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
    return code < least[n] || code > 0x10FFFF || surrogate || control || directional ? 0 : n;
}

void html_text(FILE *f, const char *text) {
    while (*text) {
        int n = character(text);
        const char *word = n == 0          ? "\xEF\xBF\xBD"
                           : *text == '<'  ? "&lt;"
                           : *text == '>'  ? "&gt;"
                           : *text == '&'  ? "&amp;"
                           : *text == '"'  ? "&quot;"
                           : *text == '\'' ? "&#39;"
                                           : NULL;
        if (word)
            fputs(word, f);
        else
            fwrite(text, 1, (size_t)n, f);
        text += n ? n : 1;
    }
}

void html_json(FILE *f, const char *text) {
    fputc('"', f);
    while (*text) {
        int n = character(text);
        if (n == 0)
            fputs("\\ufffd", f);
        else if (n == 1 && strchr("<>&'\"\\\t\n", *text)) /* no "</script>" inside a script */
            fprintf(f, "\\u%04x", (unsigned char)*text);
        else
            fwrite(text, 1, (size_t)n, f);
        text += n ? n : 1;
    }
    fputc('"', f);
}

void html_base64(FILE *f, const void *bytes, size_t n) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *in = bytes;
    for (size_t i = 0; i < n; i += 3) {
        size_t left = n - i;
        uint32_t three = (uint32_t)in[i] << 16 | (left > 1 ? (uint32_t)in[i + 1] << 8 : 0) |
                         (left > 2 ? in[i + 2] : 0);
        char four[4] = {digits[three >> 18], digits[three >> 12 & 63],
                        left > 1 ? digits[three >> 6 & 63] : '=',
                        left > 2 ? digits[three & 63] : '='};
        fwrite(four, 1, 4, f);
    }
}

/* Only what our pages use: %s (escaped), %d, %lld, %%, and %f and %g with a precision. */
void html_print(FILE *f, const char *format, ...) {
    va_list list;
    va_start(list, format);
    while (*format) {
        size_t plain = strcspn(format, "%");
        fwrite(format, 1, plain, f);
        format += plain;
        if (!*format) break;
        char part[16] = "%";
        size_t at = 1 + strcspn(format + 1, "sdfgzl%");
        if (format[at] == 'l') at += format[at + 1] == 'l' ? 2 : 1;
        if (format[at] == 'z') at++;
        snprintf(part, sizeof part, "%.*s", (int)at + 1, format);
        switch (format[at]) {
        case 's': html_text(f, va_arg(list, const char *)); break;
        case 'd':
            if (strstr(part, "ll"))
                fprintf(f, "%lld", va_arg(list, long long));
            else
                fprintf(f, "%d", va_arg(list, int));
            break;
        case '%': fputc('%', f); break;
        default: { /* %f or %g */
            const char *point = strchr(part, '.');
            int digits = point ? atoi(point + 1) : 6;
            double number = va_arg(list, double);
            if (format[at] == 'g')
                fprintf(f, "%.*g", digits, number);
            else
                fprintf(f, "%.*f", digits, number);
        }
        }
        format += at + 1;
    }
    va_end(list);
}

static char *next_text(void) {
    static _Thread_local char text[8][48];
    static _Thread_local unsigned at;
    return text[at++ % 8];
}

const char *html_count(int64_t n) {
    char digits[32], *out = next_text(), *to = out;
    snprintf(digits, sizeof digits, "%lld", (long long)n);
    size_t length = strlen(digits);
    for (size_t i = 0; i < length; i++) {
        *to++ = digits[i];
        if ((length - 1 - i) % 3 == 0 && i + 1 < length && digits[i] != '-') *to++ = ',';
    }
    *to = 0;
    return out;
}

const char *html_time(double seconds) {
    char *out = next_text();
    long s = isfinite(seconds) && seconds > 0 ? lround(seconds) : 0;
    if (s < 60)
        snprintf(out, 48, "%ld s", s);
    else if (s < 3600)
        snprintf(out, 48, "%ld min %ld s", s / 60, s % 60);
    else
        snprintf(out, 48, "%ld h %ld min", s / 3600, s % 3600 / 60);
    return out;
}

void html_head(FILE *f, const char *title, const char *nav) {
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
          /* nothing is loaded from anywhere, even if a name smuggles in an address */
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
          "img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n"
          "<meta name=\"color-scheme\" content=\"light dark\">\n"
          "<link rel=\"icon\" href=\"data:,\">\n",
          f);
    html_print(f, "<title>%s</title>\n<style>\n", title);
    fwrite(page_css, 1, sizeof page_css, f);
    fputs("</style>\n</head>\n<body>\n<a class=\"skip\" href=\"#main\">Skip to the content</a>\n"
          "<header class=\"top\"><div class=\"bar\"><span class=\"brand\">conr</span>\n"
          "<nav aria-label=\"Sections of the report\"><ul>\n",
          f);
    while (*nav) {
        const char *name = nav + strlen(nav) + 1;
        html_print(f, "<li><a href=\"#%s\">%s</a></li>\n", nav, name);
        nav = name + strlen(name) + 1;
    }
    fputs("</ul></nav>\n<button id=\"theme\" type=\"button\" hidden>Dark</button></div></header>\n"
          "<main id=\"main\">\n",
          f);
}

void html_foot(FILE *f) {
    fprintf(f,
            "</main>\n<footer><p>Made by conr %s. This page is a single file: you can mail it and "
            "open it offline.</p></footer>\n<script>\n",
            CONR_VERSION);
    fwrite(page_js, 1, sizeof page_js, f);
    fputs("</script>\n</body>\n</html>\n", f);
}
