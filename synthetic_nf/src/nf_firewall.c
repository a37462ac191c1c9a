/* Stateless firewall: five-tuple rules, the first match decides, what matches none passes. */
#include "classifier.h"
#include "message.h"
#include "nf.h"
#include "random.h"
#include "text_file.h"

#include <stdio.h>
#include <stdlib.h>

enum { COUNTER_ALLOWED, COUNTER_DENIED, COUNTER_NOT_IP };

struct firewall {
	struct classifier *classifier;
	struct rule *rules;
	uint32_t count;
};

/* "80" or "1024-65535" or "any" */
static int parse_ports(const char *text, uint16_t *low, uint16_t *high)
{
	unsigned first, last;
	char rest;

	if (strcmp(text, "any") == 0) {
		*low = 0;
		*high = UINT16_MAX;
		return 0;
	}
	if (sscanf(text, "%u-%u%c", &first, &last, &rest) != 2) {
		if (sscanf(text, "%u%c", &first, &rest) != 1)
			return -1;
		last = first;
	}
	if (first > last || last > UINT16_MAX)
		return -1;
	*low = (uint16_t)first;
	*high = (uint16_t)last;
	return 0;
}

static int parse_rule(const char *line, struct rule *rule)
{
	char action[8], source[32], destination[32], source_ports[16], destination_ports[16], protocol[8], rest;

	if (sscanf(line, "%7s %31s %31s %15s %15s %7s %c", action, source, destination, source_ports, destination_ports,
		   protocol, &rest) != 6)
		return -1;
	rule->deny = strcmp(action, "deny") == 0;
	rule->protocol = PROTOCOL_ANY;
	if (strcmp(protocol, "tcp") == 0)
		rule->protocol = PROTOCOL_TCP;
	else if (strcmp(protocol, "udp") == 0)
		rule->protocol = PROTOCOL_UDP;
	else if (strcmp(protocol, "any") != 0)
		return -1;
	if (!rule->deny && strcmp(action, "allow") != 0)
		return -1;
	if (parse_prefix(source, &rule->source, &rule->source_length) != 0 ||
	    parse_prefix(destination, &rule->destination, &rule->destination_length) != 0)
		return -1;
	if (parse_ports(source_ports, &rule->source_port_low, &rule->source_port_high) != 0)
		return -1;
	return parse_ports(destination_ports, &rule->destination_port_low, &rule->destination_port_high);
}

static void read_rules(struct firewall *firewall, const char *path)
{
	struct text_file file = text_file_read(path);

	firewall->rules = allocate(file.count, sizeof(*firewall->rules));
	firewall->count = file.count;
	for (unsigned i = 0; i < file.count; i++)
		if (parse_rule(file.lines[i], &firewall->rules[i]) != 0)
			fail(EXIT_USAGE, "a line is `deny 10.0.0.0/8 0.0.0.0/0 any 53 udp`", "'%s' line %u is no rule: '%s'", path,
			     file.numbers[i], file.lines[i]);
	text_file_release(&file);
}

/* "deny src net A.B.C.0/24, dst port P": a list that most packets walk to its end. */
static void generate_rules(struct firewall *firewall, uint32_t count, uint64_t seed)
{
	firewall->rules = allocate(count, sizeof(*firewall->rules));
	firewall->count = count;
	for (uint32_t i = 0; i < count; i++) {
		uint64_t bits = random_next(&seed);
		uint16_t port = (uint16_t)(bits >> 32);

		firewall->rules[i] = (struct rule){ .source = (uint32_t)bits & 0xffffff00u, .source_length = 24,
						    .source_port_high = UINT16_MAX, .destination_port_low = port,
						    .destination_port_high = port, .deny = true };
	}
}

static void firewall_start(struct nf_instance *self)
{
	const struct options *options = self->options;
	struct firewall *firewall = allocate(1, sizeof(*firewall));

	if (options->rules_file)
		read_rules(firewall, options->rules_file);
	else
		generate_rules(firewall, (uint32_t)options->rules, (uint64_t)options->seed);
	firewall->classifier = classifier_create(firewall->rules, firewall->count, self->number);
	self->state = firewall;
	self->counters[COUNTER_ALLOWED].name = "allowed";
	self->counters[COUNTER_DENIED].name = "denied";
	self->counters[COUNTER_NOT_IP].name = "not_ipv4";
}

static void decide(struct nf_instance *self, struct packet *packet, uint32_t match)
{
	const struct firewall *firewall = self->state;
	bool deny = match != RULE_NONE && firewall->rules[match].deny;

	if (deny)
		packet->verdict = VERDICT_DROP;
	counter_add(&self->counters[deny ? COUNTER_DENIED : COUNTER_ALLOWED].value, 1);
}

static void firewall_process(struct nf_instance *self, struct packet *packets, uint32_t count)
{
	const struct firewall *firewall = self->state;
	struct flow_key keys[BURST_MOST];
	uint32_t matches[BURST_MOST], indices[BURST_MOST], found = 0;

	for (uint32_t i = 0; i < count; i++) {
		struct headers headers = headers_find(&packets[i]);

		if (!headers.ip) {
			packets[i].verdict = VERDICT_DROP;
			counter_add(&self->counters[COUNTER_NOT_IP].value, 1);
			continue;
		}
		indices[found] = i;
		keys[found++] = headers_flow(&headers);
	}
	classifier_match(firewall->classifier, keys, matches, found);
	for (uint32_t i = 0; i < found; i++)
		decide(self, &packets[indices[i]], matches[i]);
	counter_add(&self->accesses, found);
}

static void firewall_stop(struct nf_instance *self)
{
	struct firewall *firewall = self->state;

	classifier_release(firewall->classifier);
	free(firewall->rules);
	free(firewall);
}

const struct nf nf_firewall = {
	.name = "firewall",
	.summary = "stateless five-tuple rules (rte_acl), first match decides",
	.start = firewall_start,
	.process = firewall_process,
	.stop = firewall_stop,
};
