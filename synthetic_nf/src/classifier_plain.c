/* Packet classification without DPDK: the rules one after the other, as Click's IPFilter does for short lists. */
#include "classifier.h"

#include "message.h"

#include <stdlib.h>

struct classifier {
	struct rule *rules;
	uint32_t count;
};

struct classifier *classifier_create(const struct rule *rules, uint32_t count, unsigned number)
{
	struct classifier *classifier = allocate(1, sizeof(*classifier));

	(void)number;
	classifier->rules = allocate(count, sizeof(*rules));
	memcpy(classifier->rules, rules, count * sizeof(*rules));
	classifier->count = count;
	return classifier;
}

void classifier_release(struct classifier *classifier)
{
	free(classifier->rules);
	free(classifier);
}

static bool in_prefix(uint32_t address, uint32_t prefix, uint8_t length)
{
	return length == 0 || ((address ^ prefix) >> (32 - length)) == 0;
}

static bool applies(const struct rule *rule, uint32_t source, uint32_t destination, uint16_t source_port,
		    uint16_t destination_port, uint8_t protocol)
{
	return in_prefix(source, rule->source, rule->source_length) &&
	       in_prefix(destination, rule->destination, rule->destination_length) &&
	       (rule->protocol == PROTOCOL_ANY || rule->protocol == protocol) &&
	       source_port >= rule->source_port_low && source_port <= rule->source_port_high &&
	       destination_port >= rule->destination_port_low && destination_port <= rule->destination_port_high;
}

static uint32_t first_match(const struct classifier *classifier, const struct flow_key *key)
{
	uint32_t source = load32((const uint8_t *)&key->source), destination = load32((const uint8_t *)&key->destination);
	uint16_t source_port = load16((const uint8_t *)&key->source_port);
	uint16_t destination_port = load16((const uint8_t *)&key->destination_port);

	for (uint32_t i = 0; i < classifier->count; i++)
		if (applies(&classifier->rules[i], source, destination, source_port, destination_port, key->protocol))
			return i;
	return RULE_NONE;
}

void classifier_match(struct classifier *classifier, const struct flow_key *keys, uint32_t *matches, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		matches[i] = first_match(classifier, &keys[i]);
}
