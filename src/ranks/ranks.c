/* ranks.c: what a launcher tells its processes. */
#include "ranks/ranks.h"

#include <stdlib.h>

static bool wished(const char *name) {
    const char *text = getenv(name);
    return text && *text && *text != '0';
}

bool ranks_one_talks(void) { return wished("CONR_ONE_RANK"); }

int ranks_launched(void) {
    /* Open MPI; MPICH and its kin (hydra); srun, which may be neither */
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PALS_SIZE",
                                        "SLURM_STEP_NUM_TASKS"};
    if (wished("CONR_ALONE")) return 1; /* many trainings under one launcher */
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = getenv(names[i]);
        if (text && atoi(text) > 0) return atoi(text);
    }
    return 1;
}
