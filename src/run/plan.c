/* plan.c: see plan.h. */
#include "run/plan.h"

epoch_plan plan_epoch_end(const train_options *o, int done) {
    epoch_plan p = {0};
    bool last = done == last_epoch(o), stage1_ends = done == o->stage1_epochs;
    bool known = o->clusters > 0; /* K; chosen once, from the features at the end of stage 1 */
    if (done == 0 && !labels_in(o, 0)) return p;
    p.evaluate = last || stage1_ends || (known && o->eval_every && done % o->eval_every == 0);
    p.cluster = p.evaluate || labels_in(o, done); /* the next epoch needs fresh pseudo labels */
    p.choose = p.cluster && !known;
    p.keep = (stage1_ends && !last) || (o->keep_every && done % o->keep_every == 0);
    p.save = last || stage1_ends || p.choose || done % o->checkpoint_every == 0;
    return p;
}
