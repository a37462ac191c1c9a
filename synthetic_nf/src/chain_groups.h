/* Control groups of a run: made at its start, and removed by a watcher that outlives whoever is killed. */
#ifndef SLOMO_CHAIN_GROUPS_H
#define SLOMO_CHAIN_GROUPS_H

#include "chain_plan.h"

/* Start the watcher, then make the groups in their order; ends the process (code 3) where one cannot be made. */
void chain_groups_make(const struct chain_plan *plan);

/* Remove them, all members having ended. */
void chain_groups_remove(const struct chain_plan *plan);

/* The child that is to run a stage lets go of what tells the watcher that the manager lives. */
void chain_groups_let_go(void);

#endif
