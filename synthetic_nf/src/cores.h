/* Which CPU each instance runs on. */
#ifndef SLOMO_CORES_H
#define SLOMO_CORES_H

/* Read "1,2,5" or "1-3" into `cpus`; checks that each exists, may be used, and is there once. Returns how many. */
unsigned cores_parse(const char *text, int *cpus, unsigned most);

#endif
