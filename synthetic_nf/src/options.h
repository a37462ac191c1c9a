/* The command line: knobs from knobs.yaml, and settings that say what runs where. */
#ifndef SLOMO_OPTIONS_H
#define SLOMO_OPTIONS_H

#include "knobs_table.h"

#include <stdbool.h>
#include <stdint.h>

#define VDEVS_MOST 64

struct options {
	double knobs[KNOB_COUNT];
	bool knob_given[KNOB_COUNT];
	const char *nf;
	const char *cores; /* "1,2,5": one per instance; NULL leaves the threads unpinned */
	const char *pcap;
	const char *tx_pcap;
	const char *vdevs[VDEVS_MOST];
	unsigned vdev_count;
	const char *replay; /* "forever" or "once" */
	const char *pages;  /* "auto", "huge", "transparent", "small" */
	const char *file_prefix;
	const char *routes_file;
	const char *rules_file;
	const char *patterns_file;
	const char *crypto_device;
	const char *cycles; /* compute: "550", or "120,270,550" to draw from */
	const char *cycles_from; /* compute: "15:1650,30:550", in place of them from then on */
	const char *chain;  /* plan of a chain of processes; see chain_plan.h */
	double packets; /* stop after so many per instance; 0: never */
	double duration_s;
	double interval_s;
	double memory_mib;
	double flows;
	double tx_first;
	double seed;
	double routes;
	double rules;
	double patterns;
	double backends;
	double flow_capacity;
	bool no_huge;
	bool regex;
	bool drop_matches;
	bool die_with_parent;
	bool calibrate;
	char **rest; /* what stands after "--": arguments of DPDK's EAL */
	int rest_count;
};

/* Read the command line; ends the process after --help, --version, --knobs, --list-nfs and on every mistake (code 2). */
struct options options_parse(int count, char **words);

static inline uint64_t knob_integer(const struct options *options, enum knob knob)
{
	return (uint64_t)options->knobs[knob];
}

#endif
