/* Proof that the competitor presses as hard as a plain loop on this machine. */
#ifndef SLOMO_CALIBRATE_H
#define SLOMO_CALIBRATE_H

#include "options.h"

/* For every pattern, print one JSON line that sets the competitor beside a plain loop over the same kind of memory. */
void calibrate(const struct options *options, int cpu);

#endif
