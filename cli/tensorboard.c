/* tensorboard.c: see tensorboard.h.
 *
 * The file is a sequence of records: length (8 bytes), its checksum, the message, its checksum, all
 * little-endian.  A checksum is CRC-32C, rotated by 15 bits plus a constant.  A message is a protocol
 * buffer, Event: wall_time (1, double), step (2, integer), and file_version (3, text) in the first
 * one or summary (5) in the others, which holds a value (1) of tag (1, text) and simple_value (2,
 * float). */
#include "tensorboard.h"

#include "cli.h"
#include "run.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_BYTES = 512 }; /* of a message; tags are keys of the log, cut at MOST_TAG */
enum { MOST_TAG = 128 };

static uint32_t crc32c(const unsigned char *bytes, size_t n) {
    uint32_t sum = 0xffffffffu;
    for (size_t i = 0; i < n; i++) {
        sum ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) sum = sum >> 1 ^ (sum & 1 ? 0x82f63b78u : 0);
    }
    return ~sum;
}

static void put_bytes(unsigned char *to, uint64_t value, int n) {
    for (int i = 0; i < n; i++) to[i] = (unsigned char)(value >> 8 * i);
}

static void put_checksum(unsigned char to[4], const unsigned char *bytes, size_t n) {
    uint32_t sum = crc32c(bytes, n);
    put_bytes(to, (uint32_t)((sum >> 15 | sum << 17) + 0xa282ead8u), 4);
}

static void write_record(FILE *f, const unsigned char *bytes, size_t n) {
    unsigned char head[12], tail[4];
    put_bytes(head, n, 8);
    put_checksum(head + 8, head, 8);
    put_checksum(tail, bytes, n);
    fwrite(head, 1, sizeof head, f);
    fwrite(bytes, 1, n, f);
    fwrite(tail, 1, sizeof tail, f);
}

/* A message under construction. */
typedef struct message {
    unsigned char bytes[MOST_BYTES];
    size_t n;
} message;

static void put_varint(message *m, uint64_t value) {
    for (; value >= 128; value >>= 7) m->bytes[m->n++] = (unsigned char)(value | 128);
    m->bytes[m->n++] = (unsigned char)value;
}

static void put_double(message *m, int field, double value) {
    uint64_t bits;
    memcpy(&bits, &value, 8);
    put_varint(m, (uint64_t)field << 3 | 1);
    put_bytes(m->bytes + m->n, bits, 8);
    m->n += 8;
}

static void put_float(message *m, int field, float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    put_varint(m, (uint64_t)field << 3 | 5);
    put_bytes(m->bytes + m->n, bits, 4);
    m->n += 4;
}

static void put_text(message *m, int field, const void *text, size_t n) {
    put_varint(m, (uint64_t)field << 3 | 2);
    put_varint(m, n);
    memcpy(m->bytes + m->n, text, n);
    m->n += n;
}

static void write_version(FILE *f, double time) {
    static const char version[] = "brain.Event:2";
    message m = {.n = 0};
    put_double(&m, 1, time);
    put_text(&m, 3, version, sizeof version - 1);
    write_record(f, m.bytes, m.n);
}

static void write_scalar(FILE *f, double time, int64_t step, const char *tag, double value) {
    message event = {.n = 0}, summary = {.n = 0}, scalar = {.n = 0};
    put_text(&scalar, 1, tag, strlen(tag));
    put_float(&scalar, 2, (float)value);
    put_text(&summary, 1, scalar.bytes, scalar.n);
    put_double(&event, 1, time);
    put_varint(&event, 2 << 3);
    put_varint(&event, (uint64_t)step);
    put_text(&event, 5, summary.bytes, summary.n);
    write_record(f, event.bytes, event.n);
}

/* The numbers of one line of the log.  *time: moves on with the seconds of the log. */
static long write_line(FILE *f, const json_t *line, double start, double *time) {
    const json_t *step = json_object_get(line, "step"), *value;
    const char *key, *group = json_object_get(line, "objective") ? "clusters" : "train";
    long n = 0;
    if (!json_is_integer(step) || json_integer_value(step) < 0) return 0;
    if ((value = json_object_get(line, "seconds"))) *time = start + json_number_value(value);
    json_object_foreach((json_t *)line, key, value) {
        char tag[MOST_TAG];
        if (!json_is_number(value) || !strcmp(key, "step") || !strcmp(key, "seconds")) continue;
        snprintf(tag, sizeof tag, "%s/%s", group, key);
        write_scalar(f, *time, json_integer_value(step), tag, json_number_value(value));
        n++;
    }
    return n;
}

/* The last "seconds" of the log: from there and from when it was written follows when it began. */
static double last_seconds(FILE *log) {
    char *line = NULL;
    size_t room = 0;
    double out = 0;
    while (getline(&line, &room, log) > 0) {
        const char *at = strstr(line, "\"seconds\":");
        if (at) out = strtod(at + 10, NULL);
    }
    free(line);
    rewind(log);
    return out;
}

static int write_all(FILE *log, const char *path, FILE *f, double start, long *n) {
    char *line = NULL;
    size_t room = 0;
    double time = start;
    int rc = EXIT_OK;
    write_version(f, start);
    for (long number = 1; rc == EXIT_OK && getline(&line, &room, log) > 0; number++) {
        if (!strchr(line, '\n')) break; /* the run is just writing it */
        json_t *object = json_loads(line, 0, NULL);
        if (!json_is_object(object))
            rc = failed("%s: line %ld is damaged; restore the file from a copy", path, number);
        else
            *n += write_line(f, object, start, &time);
        json_decref(object);
    }
    free(line);
    return rc;
}

int tensorboard_write(const char *run, const char *out, long *n) {
    char *path = path_in(run, "log.jsonl"), *to = NULL, *beside = NULL;
    FILE *log = fopen(path, "r"), *f = NULL;
    struct stat about;
    int rc = EXIT_OK;
    *n = 0;
    if (!log || fstat(fileno(log), &about)) {
        rc = failed("%s: cannot be read: %s; give the folder of a training", path, strerror(errno));
        goto done;
    }
    run_make_parents(out);
    if (mkdir(out, 0777) && errno != EEXIST) {
        rc = failed("%s: %s; give a folder that can be created", out, strerror(errno));
        goto done;
    }
    to = path_in(out, "events.out.tfevents.conr");
    beside = path_in(out, "conr.new"); /* a name that TensorBoard does not read */
    if (!(f = fopen(beside, "wb"))) {
        rc = failed("%s: %s; give another --out", beside, strerror(errno));
        goto done;
    }
    rc = write_all(log, path, f, (double)about.st_mtime - last_seconds(log), n);
    if (rc == EXIT_OK && !*n) rc = failed("%s: holds no numbers; train first", path);
    bool bad = fflush(f) || ferror(f);
    if (fclose(f)) bad = true;
    if (rc == EXIT_OK && (bad || rename(beside, to)))
        rc = failed("%s: %s; free some space or give another --out", to, strerror(errno));
    if (rc != EXIT_OK) remove(beside);
done:
    if (log) fclose(log);
    free(path);
    free(to);
    free(beside);
    return rc;
}
