/* tensorboard.h: the log of a run as an event file of TensorBoard. */
#ifndef CLI_TENSORBOARD_H
#define CLI_TENSORBOARD_H

/* Writes the numbers of RUN/log.jsonl as scalars into the folder `out`, which is created; replaces
 * the file of an earlier call.  *n: how many.  0, or EXIT_FAILED after a message. */
int tensorboard_write(const char *run, const char *out, long *n);

#endif
