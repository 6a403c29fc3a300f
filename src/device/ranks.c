/* ranks.c: what a launcher tells its processes. */
#include "device/ranks.h"

#include <stdlib.h>

int ranks_launched(void) {
    /* Open MPI; MPICH and its kin (hydra); srun, which may be neither */
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PALS_SIZE",
                                        "SLURM_STEP_NUM_TASKS"};
    const char *alone = getenv("CONR_ALONE"); /* many trainings under one launcher */
    if (alone && *alone && *alone != '0') return 1;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = getenv(names[i]);
        if (text && atoi(text) > 0) return atoi(text);
    }
    return 1;
}
