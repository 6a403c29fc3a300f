/* done.h: DONE, the last file of a finished run. */
#ifndef CONR_DONE_H
#define CONR_DONE_H

/* Writes it, with the checksums of the files in the folder that are read back. */
int done_write(const char *folder);

#endif
