/* scarce_json.c: preloaded by tests/json.sh.  jansson's allocation number SCARCE_JSON (from 0) fails,
 * and the file SCARCE_MARK then appears. */
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

static long left = -1;

static void *scarce(size_t n) {
    if (left < 0 || left-- > 0) return malloc(n);
    const char *mark = getenv("SCARCE_MARK");
    if (mark) close(open(mark, O_WRONLY | O_CREAT, 0666));
    return NULL;
}

__attribute__((constructor)) static void begin(void) {
    const char *n = getenv("SCARCE_JSON");
    if (!n) return;
    left = atol(n);
    json_set_alloc_funcs(scarce, free);
}
