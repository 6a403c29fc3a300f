/* device.c: the list of devices, and opening one.  The only place that knows them all. */
#include "device/device.h"

#include "base/status.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A launcher may have bound each process to its own cores; if not, they are divided evenly. */
static int cores(int locals) {
    int mine = omp_get_num_procs();
    if (locals == 1 || mine < sysconf(_SC_NPROCESSORS_ONLN)) return mine;
    return mine > locals ? mine / locals : 1;
}

static int open_as(const char *name, int threads, int local, int locals, device *dev) {
    bool ref = !strcmp(name, "ref");
    *dev = (device){.name = ref ? "ref" : "cpu", .type = ACT_F32, .act_size = sizeof(float)};
    dev->threads = ref ? 1 : threads ? threads : cores(locals);
    dev->local = local;
    if (!strncmp(name, "cuda", 4)) return device_cuda_open(dev, name);
    dev->host_memory = true;
    dev->is_ref = ref;
    dev->memory = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    if (!ref) return device_cpu_open(dev);
    device_ref_ops(&dev->op);
    return 0;
}

int device_open(const char *name, int threads, device **out) {
    return device_open_shared(name, threads, 0, 1, out);
}

int device_open_shared(const char *name, int threads, int local, int locals, device **out) {
    *out = NULL;
    if (threads < 0)
        return fail(CONR_EINVAL, "threads: %d is negative; give 0 for all cores", threads);
    bool automatic = !strcmp(name, "auto");
    if (!automatic && strcmp(name, "ref") && strcmp(name, "cpu") && strncmp(name, "cuda", 4))
        return fail(CONR_EINVAL, "%s: no such device; use auto, cpu, cuda or ref", name);

    device *dev = calloc(1, sizeof *dev);
    if (!dev) return fail_memory("device", sizeof *dev);
    int rc = open_as(automatic ? "cuda" : name, threads, local, locals, dev);
    if (rc < 0 && automatic) rc = open_as("cpu", threads, local, locals, dev);
    if (rc < 0) {
        free(dev);
        return rc;
    }
    *out = dev;
    return 0;
}

void device_close(device *dev) {
    if (!dev) return;
    dev->op.close(dev);
    free(dev);
}

int device_report(device *dev, const char *stage, int64_t done, int64_t total) {
    conr_progress p = {.stage = stage, .done = done, .total = total};
    if (!dev->on_progress || !dev->on_progress(&p, dev->progress_user)) return 0;
    return fail(CONR_ESTOPPED, "%s: stopped on request at %lld of %lld; start it again to finish",
                stage, (long long)done, (long long)total);
}
