/* What lies under the packets: DPDK's environment layer, or nothing. */
#ifndef SLOMO_PLATFORM_H
#define SLOMO_PLATFORM_H

#include "options.h"

#include <stdbool.h>

struct worker;

/* Bring up the environment (hugepages, ports, telemetry); ends the process (code 3) when it does not come up. */
void platform_start(const struct options *options);
void platform_stop(void);

/* Remove at once what would stay behind if this process were killed; it is no longer seen by telemetry clients then. */
void platform_hide(void);

/* Offer the workers' counters on the DPDK telemetry socket as /slomo/nf,<instance>. */
void platform_publish(struct worker *workers, unsigned count);

/* For threads that touch packets. */
void platform_enter_thread(void);

/* Whether packet memory lies in hugepages, and the name of this process in /var/run/dpdk ("" without DPDK). */
bool platform_hugepages(void);
const char *platform_file_prefix(void);

#endif
