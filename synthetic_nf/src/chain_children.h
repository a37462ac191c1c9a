/* The processes of the stages: started, moved to another CPU and memory node, ended. */
#ifndef SLOMO_CHAIN_CHILDREN_H
#define SLOMO_CHAIN_CHILDREN_H

#include "chain_memory.h"

#define HEARD_BYTES 4096

struct chain_children {
	struct chain_memory *memory;
	struct chain_plan *plan;
	pid_t manager;
	unsigned next_move;
	pid_t heir, leaving; /* 0 where no stage moves */
	int cpu_before;
	uint64_t begun_ticks;
	char heard[HEARD_BYTES]; /* of a line that is not whole yet */
	size_t heard_count;
};

void chain_children_start(struct chain_children *children, struct chain_memory *memory, struct chain_plan *plan);

/*
 * Begin the next move when its time has come, and bring one that is under way further: make before break. The heir is
 * started beside the process that runs the stage; when it is ready, that one hands its rings over between two bursts. An
 * heir that cannot start changes nothing.
 */
void chain_children_move(struct chain_children *children, double time_ms);

/* Add the moves that came by standard input since the last call. */
void chain_children_hear(struct chain_children *children);

/* The exit code of a stage that ended before its time; 0 while all run. */
int chain_children_ended(struct chain_children *children);

/* Ask all to end, and kill those that do not. */
void chain_children_end(struct chain_children *children);

#endif
