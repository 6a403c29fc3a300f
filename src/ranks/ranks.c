/* ranks.c: what the environment says about the launch. */
#include "ranks/ranks.h"

#include <stdlib.h>

static bool is_set(const char *name) {
    const char *text = getenv(name);
    return text && *text && *text != '0';
}

bool ranks_one_talks(void) { return is_set("CONR_ONE_RANK"); }

int ranks_launched(void) {
    /* Open MPI; MPICH and its relatives (hydra, PALS); srun, with any MPI or none */
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PALS_SIZE",
                                        "SLURM_STEP_NUM_TASKS"};
    if (is_set("CONR_ALONE")) return 1; /* independent trainings under one launcher */
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = getenv(names[i]);
        if (text && atoi(text) > 0) return atoi(text);
    }
    return 1;
}
