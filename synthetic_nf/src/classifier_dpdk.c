/* Packet classification by rte_acl (multi-bit tries, SIMD): the library behind DPDK's l3fwd-acl. */
#include "classifier.h"
#include "message.h"

#include <rte_acl.h>
#include <rte_errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

enum { FIELD_PROTOCOL, FIELD_SOURCE, FIELD_DESTINATION, FIELD_SOURCE_PORT, FIELD_DESTINATION_PORT, FIELD_COUNT };

/* What rte_acl looks at; its first field must be one byte and the others lie in groups of four bytes. */
struct acl_key {
	uint8_t protocol;
	uint8_t zeros[3];
	uint32_t source, destination;
	uint16_t source_port, destination_port;
};

RTE_ACL_RULE_DEF(acl_rule, FIELD_COUNT);

#define FIELD(kind, bytes, index, group, member) \
	{ .type = RTE_ACL_FIELD_TYPE_##kind, .size = bytes, .field_index = index, .input_index = group, \
	  .offset = offsetof(struct acl_key, member) }
static const struct rte_acl_field_def FIELDS[FIELD_COUNT] = {
	FIELD(BITMASK, 1, FIELD_PROTOCOL, 0, protocol),
	FIELD(MASK, 4, FIELD_SOURCE, 1, source),
	FIELD(MASK, 4, FIELD_DESTINATION, 2, destination),
	FIELD(RANGE, 2, FIELD_SOURCE_PORT, 3, source_port),
	FIELD(RANGE, 2, FIELD_DESTINATION_PORT, 3, destination_port),
};

struct classifier {
	struct rte_acl_ctx *context; /* NULL without rules */
};

static struct acl_rule convert(const struct rule *rule, uint32_t index)
{
	struct acl_rule converted = { .data = { .userdata = index + 1,
						.category_mask = 1,
						.priority = (int32_t)(RTE_ACL_MAX_PRIORITY - (int32_t)index) } };

	converted.field[FIELD_PROTOCOL].value.u8 = rule->protocol;
	converted.field[FIELD_PROTOCOL].mask_range.u8 = rule->protocol == PROTOCOL_ANY ? 0 : 0xff;
	converted.field[FIELD_SOURCE].value.u32 = rule->source;
	converted.field[FIELD_SOURCE].mask_range.u32 = rule->source_length;
	converted.field[FIELD_DESTINATION].value.u32 = rule->destination;
	converted.field[FIELD_DESTINATION].mask_range.u32 = rule->destination_length;
	converted.field[FIELD_SOURCE_PORT].value.u16 = rule->source_port_low;
	converted.field[FIELD_SOURCE_PORT].mask_range.u16 = rule->source_port_high;
	converted.field[FIELD_DESTINATION_PORT].value.u16 = rule->destination_port_low;
	converted.field[FIELD_DESTINATION_PORT].mask_range.u16 = rule->destination_port_high;
	return converted;
}

static void build(struct classifier *classifier, const struct rule *rules, uint32_t count)
{
	struct rte_acl_config config = { .num_categories = 1, .num_fields = FIELD_COUNT };

	memcpy(config.defs, FIELDS, sizeof(FIELDS));
	for (uint32_t i = 0; i < count; i++) {
		struct acl_rule rule = convert(&rules[i], i);

		if (rte_acl_add_rules(classifier->context, (const struct rte_acl_rule *)&rule, 1) != 0)
			fail(EXIT_USAGE, "look at its prefixes and port ranges", "rte_acl refuses rule %u", i + 1);
	}
	if (rte_acl_build(classifier->context, &config) != 0)
		fail(EXIT_TESTBED, "use fewer rules or raise --memory-mib", "rte_acl cannot build a trie of %u rules", count);
}

struct classifier *classifier_create(const struct rule *rules, uint32_t count, unsigned number)
{
	struct classifier *classifier = allocate(1, sizeof(*classifier));
	char name[RTE_ACL_NAMESIZE];
	struct rte_acl_param parameters = { .name = name, .socket_id = SOCKET_ID_ANY,
					    .rule_size = RTE_ACL_RULE_SZ(FIELD_COUNT), .max_rule_num = count };

	if (count == 0)
		return classifier;
	snprintf(name, sizeof(name), "rules%u", number);
	classifier->context = rte_acl_create(&parameters);
	if (!classifier->context)
		fail(EXIT_TESTBED, "raise --memory-mib", "cannot create the classifier: %s", rte_strerror(rte_errno));
	build(classifier, rules, count);
	return classifier;
}

void classifier_release(struct classifier *classifier)
{
	rte_acl_free(classifier->context);
	free(classifier);
}

void classifier_match(struct classifier *classifier, const struct flow_key *keys, uint32_t *matches, uint32_t count)
{
	struct acl_key converted[BURST_MOST];
	const uint8_t *places[BURST_MOST];

	if (!classifier->context) {
		memset(matches, 0xff, count * sizeof(*matches));
		return;
	}
	for (uint32_t i = 0; i < count; i++) {
		converted[i] = (struct acl_key){ keys[i].protocol, { 0 }, keys[i].source, keys[i].destination,
						 keys[i].source_port, keys[i].destination_port };
		places[i] = (const uint8_t *)&converted[i];
	}
	rte_acl_classify(classifier->context, places, matches, count, 1);
	for (uint32_t i = 0; i < count; i++)
		matches[i] = matches[i] ? matches[i] - 1 : RULE_NONE;
}
