/* One stage: a process that takes packets from its rings, works on them, and hands them on. */
#ifndef SLOMO_CHAIN_STAGE_H
#define SLOMO_CHAIN_STAGE_H

#include "chain_memory.h"

/*
 * Run stage `number` until the manager says stop; called in a process of its own, which it ends. With a move it makes
 * itself ready first and takes over from the process that runs the stage.
 */
_Noreturn void chain_stage_run(struct chain_memory *memory, unsigned number, const struct plan_move *move);

/*
 * Whether a hop may be worked on: not held, something waits, and there is room for a burst behind it (local
 * back-pressure). `most_behind` packets may wait in the next ring.
 */
bool hop_may_run(const struct chain_plan *plan, const struct hop *hop, uint32_t most_behind);

#endif
