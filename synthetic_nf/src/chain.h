/* Run chains of network functions, each in a process of its own. */
#ifndef SLOMO_CHAIN_H
#define SLOMO_CHAIN_H

#include "options.h"

/* Start all stages, feed them until the time is over or a signal comes, report, and leave nothing behind. */
int chain_run(const struct options *options);

#endif
