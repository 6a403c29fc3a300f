/* serve.c: conr open over HTTP, for this machine's browser alone.
 *
 * A request is answered only if its address begins with the token, which nobody else knows, and its
 * Host is this server: a page elsewhere whose name was made to lead here (DNS rebinding) has another
 * one.  What changes something is a POST of JSON from a page of our own, by its Origin.  Images have
 * numbers; no path from a request is ever opened. */
#include "serve.h"

#include "open_assets.h"

#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- answers --------------------------------------------------------------------------------- */

int answer_json(answer *a, json_t *value) {
    char *text = json_write(value, JSON_COMPACT | JSON_REAL_PRECISION(6));
    json_decref(value);
    if (!text) return answer_error(a, 500, "out of memory");
    *a = (answer){.status = 200, .type = "application/json", .bytes = text, .n = strlen(text)};
    return 0;
}

int answer_error(answer *a, unsigned status, const char *format, ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    json_t *o = json_pack("{so}", "error", json_name(text));
    char *made = json_write(o, JSON_COMPACT);
    json_decref(o);
    *a = (answer){.status = status, .type = "application/json", .bytes = made};
    if (!made) a->bytes = strdup("{}");
    a->n = a->bytes ? strlen(a->bytes) : 0;
    return 0;
}

static enum MHD_Result send_answer(struct MHD_Connection *c, answer *a) {
    struct MHD_Response *r = MHD_create_response_from_buffer(a->n, a->bytes, MHD_RESPMEM_MUST_FREE);
    char name[128];
    if (!r) {
        free(a->bytes);
        return MHD_NO;
    }
    MHD_add_response_header(r, "Content-Type", a->type);
    MHD_add_response_header(r, "Cache-Control", a->cached ? "private, max-age=86400" : "no-store");
    MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(r, "Referrer-Policy", "no-referrer");
    MHD_add_response_header(r, "Cross-Origin-Resource-Policy", "same-origin");
    MHD_add_response_header(r, "Cross-Origin-Opener-Policy", "same-origin");
    MHD_add_response_header(r, "X-Frame-Options", "DENY");
    MHD_add_response_header(r, "Content-Security-Policy",
                            "default-src 'none'; img-src 'self' data:; style-src 'self'; "
                            "script-src 'self'; connect-src 'self'; frame-ancestors 'none'; "
                            "base-uri 'none'; form-action 'none'");
    if (a->download) {
        snprintf(name, sizeof name, "attachment; filename=\"%s\"", a->download);
        MHD_add_response_header(r, "Content-Disposition", name);
    }
    enum MHD_Result rc = MHD_queue_response(c, a->status, r);
    MHD_destroy_response(r);
    return rc;
}

/* ---- who may ask ----------------------------------------------------------------------------- */

static const char *header(struct MHD_Connection *c, const char *name) {
    return MHD_lookup_connection_value(c, MHD_HEADER_KIND, name);
}

static bool is_host(const server *s, const char *host) {
    for (int i = 0; host && i < s->n_hosts; i++)
        if (!strcasecmp(host, s->host[i])) return true;
    return false;
}

/* Takes as long for a token that is almost right. */
static bool has_token(const server *s, const char *url) {
    unsigned differ = 0;
    if (url[0] != '/' || strlen(url) < TOKEN + 2) return false;
    for (int i = 0; i < TOKEN; i++) differ |= (unsigned char)(url[1 + i] ^ s->token[i]);
    return !differ && url[TOKEN + 1] == '/';
}

/* 0, or the status to refuse with. */
static unsigned refused(const server *s, struct MHD_Connection *c, const char *url,
                        const char *method, const char **why) {
    const char *origin = header(c, "Origin"), *site = header(c, "Sec-Fetch-Site");
    const char *type = header(c, "Content-Type");
    bool post = !strcmp(method, "POST");
    *why = "this address is not served here";
    if (!is_host(s, header(c, "Host"))) return 421;
    *why = "the address lacks its token; use the one that conr open printed";
    if (!has_token(s, url)) return 403;
    *why = "only GET and POST";
    if (!post && strcmp(method, "GET") && strcmp(method, "HEAD")) return 405;
    *why = "other pages may not ask";
    if (site && strcmp(site, "same-origin") && strcmp(site, "none")) return 403;
    if (origin && (strncmp(origin, "http://", 7) || !is_host(s, origin + 7))) return 403;
    if (post && !origin) return 403;
    *why = "the body must be JSON";
    if (post && (!type || strncmp(type, "application/json", 16))) return 415;
    return 0;
}

/* ---- requests -------------------------------------------------------------------------------- */

/* A request whose body is arriving. */
typedef struct request {
    char *body;
    size_t n, room;
    unsigned status; /* 0: fine so far */
    const char *why;
} request;

static bool take_body(request *r, const char *data, size_t n) {
    if (r->status) return true; /* read to its end, not kept */
    if (n > BODY - r->n) {
        r->status = 413, r->why = "the body is too large";
        return true;
    }
    if (r->n + n + 1 > r->room) {
        size_t room = 2 * (r->n + n + 1);
        char *more = realloc(r->body, room);
        if (!more) return false;
        r->body = more, r->room = room;
    }
    memcpy(r->body + r->n, data, n);
    r->n += n;
    r->body[r->n] = 0;
    return true;
}

static int give_asset(answer *a, const char *type, const unsigned char *from, size_t n) {
    char *copy = malloc(n);
    if (!copy) return answer_error(a, 500, "out of memory");
    memcpy(copy, from, n);
    *a = (answer){.status = 200, .type = type, .bytes = copy, .n = n};
    return 0;
}

static int respond(server *s, struct MHD_Connection *c, const char *path, const char *method,
                   const request *r, answer *a) {
    if (!strcmp(method, "POST")) {
        bool scarce;
        json_t *body = r->body && strlen(r->body) == r->n ? json_read(r->body, &scarce) : NULL;
        int rc = json_is_object(body) ? serve_write(s, path, body, a)
                                      : answer_error(a, 400, "the body is no JSON object");
        json_decref(body);
        return rc;
    }
    if (!*path) return give_asset(a, "text/html; charset=utf-8", page_html, sizeof page_html);
    if (!strcmp(path, "page.css"))
        return give_asset(a, "text/css; charset=utf-8", page_css, sizeof page_css);
    if (!strcmp(path, "page.js"))
        return give_asset(a, "text/javascript; charset=utf-8", page_js, sizeof page_js);
    if (!strcmp(path, "map.js"))
        return give_asset(a, "text/javascript; charset=utf-8", map_js, sizeof map_js);
    if (!strcmp(path, "tabs.js"))
        return give_asset(a, "text/javascript; charset=utf-8", tabs_js, sizeof tabs_js);
    return serve_read(s, c, path, a);
}

static enum MHD_Result on_request(void *user, struct MHD_Connection *c, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *size, void **state) {
    server *s = user;
    request *r = *state;
    answer a = {0};
    (void)version;
    if (!r) { /* the headers have come */
        if (!(r = calloc(1, sizeof *r))) return MHD_NO;
        *state = r;
        r->status = refused(s, c, url, method, &r->why);
        const char *length = header(c, "Content-Length");
        if (!r->status && length && strtoull(length, NULL, 10) > BODY)
            r->status = 413, r->why = "the body is too large";
        if (r->status) { /* without reading its body */
            answer_error(&a, r->status, "%s", r->why);
            return send_answer(c, &a);
        }
        return MHD_YES;
    }
    if (*size) {
        bool ok = take_body(r, data, *size);
        *size = 0;
        return ok ? MHD_YES : MHD_NO;
    }
    if (r->status)
        answer_error(&a, r->status, "%s", r->why);
    else
        respond(s, c, url + TOKEN + 2, method, r, &a);
    return send_answer(c, &a);
}

static void on_end(void *user, struct MHD_Connection *c, void **state,
                   enum MHD_RequestTerminationCode why) {
    request *r = *state;
    (void)user, (void)c, (void)why;
    if (r) free(r->body);
    free(r);
    *state = NULL;
}

/* ---- starting and ending --------------------------------------------------------------------- */

int serve_run(server *s, const char *address, int port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    if (inet_pton(AF_INET, address, &at.sin_addr) != 1)
        return usage_error("--address %s: is no address of the kind 127.0.0.1; give one", address);
    s->daemon = MHD_start_daemon(
        MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION | MHD_USE_POLL, 0, NULL,
        NULL, on_request, s, MHD_OPTION_SOCK_ADDR, (struct sockaddr *)&at,
        MHD_OPTION_NOTIFY_COMPLETED, on_end, NULL, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_SECONDS,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)(64 << 10), MHD_OPTION_END);
    if (!s->daemon)
        return failed("%s:%d: cannot be listened at; give another --port, or none", address, port);
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_BIND_PORT);
    int bound = info && info->port ? info->port : port;
    snprintf(s->host[0], sizeof s->host[0], "%s:%d", address, bound);
    snprintf(s->host[1], sizeof s->host[1], "127.0.0.1:%d", bound);
    snprintf(s->host[2], sizeof s->host[2], "localhost:%d", bound);
    s->n_hosts = 3;
    const char *shown = at.sin_addr.s_addr == htonl(INADDR_ANY) ? "127.0.0.1" : address;
    snprintf(s->url, sizeof s->url, "http://%s:%d/%s/", shown, bound, s->token);
    return EXIT_OK;
}

void serve_end(server *s) {
    atomic_store(&s->stopping, true);
    if (s->daemon) MHD_stop_daemon(s->daemon);
}
