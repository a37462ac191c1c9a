/* Which CPU each instance runs on. */
#define _GNU_SOURCE
#include "cores.h"

#include "message.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

static void check(int cpu, const int *cpus, unsigned count, const cpu_set_t *allowed)
{
	if (cpu < 0 || cpu >= CPU_SETSIZE || !CPU_ISSET((unsigned)cpu, allowed))
		fail(EXIT_TESTBED, "`taskset -p $$` shows the CPUs this process may use", "CPU %d does not exist or is not allowed",
		     cpu);
	for (unsigned i = 0; i < count; i++)
		if (cpus[i] == cpu)
			fail(EXIT_USAGE, "one CPU per instance", "CPU %d is named twice in --cores", cpu);
}

unsigned cores_parse(const char *text, int *cpus, unsigned most)
{
	cpu_set_t allowed;
	unsigned count = 0;

	sched_getaffinity(0, sizeof(allowed), &allowed);
	while (*text) {
		char *end;
		long first = strtol(text, &end, 10), last = first;

		if (end != text && *end == '-') {
			text = end + 1;
			last = strtol(text, &end, 10);
		}
		if (end == text || (*end && *end != ',') || first < 0 || last < first || last >= CPU_SETSIZE)
			fail(EXIT_USAGE, "e.g. --cores 1 or --cores 1,2 or --cores 1-3", "--cores does not understand '%s'", text);
		for (long cpu = first; cpu <= last && count < most; cpu++) {
			check((int)cpu, cpus, count, &allowed);
			cpus[count++] = (int)cpu;
		}
		text = *end ? end + 1 : end;
	}
	return count;
}
