/* Packet classification by five-tuple rules, first match wins: rte_acl in the DPDK build, a linear scan without it. */
#ifndef SLOMO_CLASSIFIER_H
#define SLOMO_CLASSIFIER_H

#include "headers.h"

#include <stdbool.h>
#include <stdint.h>

#define RULE_NONE UINT32_MAX
#define PROTOCOL_ANY 0

struct rule {
	uint32_t source, destination; /* host order */
	uint8_t source_length, destination_length;
	uint16_t source_port_low, source_port_high;
	uint16_t destination_port_low, destination_port_high;
	uint8_t protocol; /* PROTOCOL_ANY for all */
	bool deny;
};

struct classifier;

struct classifier *classifier_create(const struct rule *rules, uint32_t count, unsigned number);
void classifier_release(struct classifier *classifier);

/* Index of the first rule that matches each key, RULE_NONE where none does. */
void classifier_match(struct classifier *classifier, const struct flow_key *keys, uint32_t *matches, uint32_t count);

#endif
