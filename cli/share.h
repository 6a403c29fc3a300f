/* share.h: files that come with the program: recipes and the sample. */
#ifndef CLI_SHARE_H
#define CLI_SHARE_H

/* The path of "recipes/demo.yaml" or "samples/fashion-mnist", wherever the program was installed, or
 * in the checkout it was built in; owned by the caller.  NULL: there is none. */
char *share_path(const char *name);

/* The path of a recipe that is given by its name, as `cifar10`; owned by the caller.  NULL: it is
 * none of ours. */
char *share_recipe(const char *name);

#endif
